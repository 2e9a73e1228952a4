"""``torch.compile``: its options, what it needs, what breaks a graph."""
