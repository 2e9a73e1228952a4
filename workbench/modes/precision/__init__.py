"""The types that a step computes in, and the scale of fp16."""
