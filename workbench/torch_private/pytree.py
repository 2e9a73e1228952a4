"""Nested containers: torch's own traversal, which includes types that users registered."""

from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

__all__ = ["tree_leaves", "tree_map", "tree_map_only"]
