"""A rank: its part of each batch, and what it reports."""
