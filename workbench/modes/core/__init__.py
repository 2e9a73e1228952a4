"""What a mode is, and what all modes stand on."""
