"""What an experiment says of itself: events, captures, facts, its run directory."""
