"""What an experiment publishes: events, captures, facts, its run directory."""
