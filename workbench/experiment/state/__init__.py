"""State of a training beside its weights: remembered before a step, restored, sent to ranks."""
