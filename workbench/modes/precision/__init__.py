"""In which types a step computes, and the scale of fp16."""
