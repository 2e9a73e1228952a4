"""A step on a card that nobody here has: of a copy, run the way CUDA would.

`predict` tells the story; docs/memory.md says what it leaves out.
"""
