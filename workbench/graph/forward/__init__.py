"""Watching a forward: which module, line and branch ran, and where the graph was left."""
