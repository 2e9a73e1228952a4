"""Number of samples in the batch of a step, if it can be determined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.records import STORAGE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphRecord


def batch_size(batch: Any) -> int | None:
    """Length of the first dimension that all tensors of a batch share; None if they differ."""
    import torch

    from workbench.torch_private.pytree import tree_leaves

    sizes = {
        leaf.shape[0]
        for leaf in tree_leaves(batch)
        if isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.dim()
    }
    return sizes.pop() if len(sizes) == 1 else None


def held_batch_size(record: GraphRecord) -> int | None:
    """Batch size of the inputs that the graph holds (``8×3×64×64`` and ``8``), or None."""
    of_input = record.storage_kind[record.hold_storage] == STORAGE_KINDS.index("input")
    shapes = {record.strings[row] for row in np.unique(record.hold_shape[of_input]).tolist()}
    sizes = {shape.split("×", 1)[0] for shape in shapes - {"scalar"}}
    first = sizes.pop() if len(sizes) == 1 else ""
    return int(first) if first.isdigit() else None
