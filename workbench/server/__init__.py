"""Jupyter server extension: TensorBoard behind Jupyter's login, and the runs on disk.

The Jupyter server imports this package, so nothing in it may import torch.
"""
