"""Jupyter server extension: TensorBoard behind Jupyter's login, runs on disk, memory files.

The Jupyter server imports this package, so nothing in it may import torch.
"""
