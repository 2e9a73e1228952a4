"""Checkpoints: the state of a training on disk, written whole, found by content, read safely."""
