"""What a mode was measured to change."""
