"""A forward is watched: which module ran, which line, which branch, where the graph was left."""
