"""The private corner of `torch.utils.checkpoint` that a capture stands on.

Read in torch 2.13 and held by ``tests/unit/graph/test_torch_private_checkpoint.py``. A region of
non-reentrant checkpointing is a ``_CheckpointFrame``. The nodes made inside hold a ``_Holder`` for
each value that they would save; the frame knows these weakly, and keeps what the region takes to
compute the values again. No reference leads from a holder to its frame, other than through the C++
hooks of the saved value, so the frames are looked up among Python's objects.
"""

from __future__ import annotations

import gc
import sys
from typing import Any


def is_holder(value: Any) -> bool:
    """Whether ``value``, saved by a node, stands for one that a checkpoint will compute again."""
    module = sys.modules.get("torch.utils.checkpoint")
    return module is not None and type(value) is getattr(module, "_Holder", None)


def kept_for_recomputation() -> dict[int, list[Any]]:
    """``id`` of each live holder -> what its region keeps; one list for all holders of a region.

    What is kept are the values as raw as in a node: a tensor, or what a pack hook made of it; a
    container or a number for an argument that is no tensor. What the checkpointed function brings
    along itself (a closure) is not among them. A torch that keeps it elsewhere gives ``{}``.

    The ids hold as long as the caller holds the nodes.
    """
    frame_class = getattr(sys.modules.get("torch.utils.checkpoint"), "_CheckpointFrame", None)
    found: dict[int, list[Any]] = {}
    for frame in [one for one in gc.get_objects() if type(one) is frame_class]:
        if hasattr(frame, "saved_args"):
            kept = [*map(_raw, frame.saved_args), _keyword_arguments(frame.recompute_fn)]
            holders = [reference() for reference in frame.weak_holders]
            found |= {id(holder): kept for holder in holders if holder is not None}
    return found


def _raw(value: Any) -> Any:
    """What a ``SavedTensor`` holds, not unpacked: that would run hooks."""
    return value.data if type(value).__name__ == "SavedTensor" else value


def _keyword_arguments(recompute: Any) -> Any:
    """The region's keyword arguments, which only the function that computes it again knows."""
    cells = dict(zip(recompute.__code__.co_freevars, recompute.__closure__ or (), strict=True))
    return cells["kwargs"].cell_contents if "kwargs" in cells else None
