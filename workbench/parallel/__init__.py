"""Parallel training: a running experiment continues in worker processes, and comes back."""
