"""The layout of a model over ranks: DDP and FSDP2."""
