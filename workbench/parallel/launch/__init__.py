"""Worker processes are started, found again, and ended."""
