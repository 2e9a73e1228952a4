"""What an experiment is given: loss, optimizer, schedule, and a new model."""
