"""What a training has beside its weights: remembered before a step, put back, carried elsewhere."""
