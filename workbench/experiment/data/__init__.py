"""What an experiment trains on, and where a run is in it."""
