"""Which samples of a batch belong to a rank."""
