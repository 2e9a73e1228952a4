"""One step, and what is done around it."""
