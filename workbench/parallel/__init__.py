"""Parallel training: a running experiment goes on in worker processes, and comes home."""
