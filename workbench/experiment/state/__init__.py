"""State of a training other than its weights: saved before a step, restored, sent to ranks."""
