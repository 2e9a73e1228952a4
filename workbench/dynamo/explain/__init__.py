"""Compiling in another process: to say what would happen, or to have it ready."""
