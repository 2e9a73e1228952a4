"""The CUDA caching allocator without CUDA: its snapshots read, its rules replayed.

Standard library and numpy only, so that a Jupyter server can open a snapshot as well as a kernel
that never used a GPU. What the allocator's blocks were *for* is known to `workbench.memory`.
"""
