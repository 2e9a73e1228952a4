"""A training in worker processes, as its kernel sees it."""
