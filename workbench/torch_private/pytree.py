"""Nested containers: torch's own traversal, which includes types that users registered."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.torch_private.lookup import Check, expect, private

if TYPE_CHECKING:
    from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
else:
    tree_leaves = private("torch.utils._pytree.tree_leaves")
    tree_map = private("torch.utils._pytree.tree_map")
    tree_map_only = private("torch.utils._pytree.tree_map_only")

__all__ = ["CHECKS", "tree_leaves", "tree_map", "tree_map_only"]


def _check_trees() -> None:
    tree = {"a": [1, (2, "b")]}
    expect(tree_leaves(tree) == [1, 2, "b"], "leaves of a container are others")
    expect(tree_map(str, tree) == {"a": ["1", ("2", "b")]}, "a container is mapped in another way")
    expect(tree_map_only(int, str, tree) == {"a": ["1", ("2", "b")]}, "another type is mapped")


CHECKS = (
    Check(
        (
            "torch.utils._pytree.tree_leaves",
            "torch.utils._pytree.tree_map",
            "torch.utils._pytree.tree_map_only",
        ),
        "tensors inside a batch",
        _check_trees,
        vital_for=("training", "types"),
    ),
)
