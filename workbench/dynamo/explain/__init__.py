"""Compiling in another process: to report what would happen, or to have it ready."""
