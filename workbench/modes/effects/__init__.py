"""Measured effects of a mode: badges, step times and their statistics."""
