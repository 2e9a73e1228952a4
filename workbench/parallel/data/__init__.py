"""Which samples of a batch are a rank's."""
