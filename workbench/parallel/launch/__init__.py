"""Start worker processes, find them again, and end them."""
