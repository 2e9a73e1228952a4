"""Private names of torch, each wrapped once, by the part of torch that they are of."""
