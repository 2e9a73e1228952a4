"""One training step, validation, and what is measured around them."""
