"""A step on a GPU that is not available here: computed on a copy, run the way CUDA would run it.

`predict` is the entry point; docs/memory.md says what it leaves out.
"""
