"""Two captures compared: what is the same, what differs, and why."""
