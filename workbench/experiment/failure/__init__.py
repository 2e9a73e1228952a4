"""What went wrong in code of the user's, and what would help."""
