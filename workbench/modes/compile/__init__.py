"""``torch.compile``: options, what it needs of the machine, graph breaks."""
