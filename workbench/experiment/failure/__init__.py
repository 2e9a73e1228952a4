"""Failures of the user's code: what went wrong, and what would help."""
