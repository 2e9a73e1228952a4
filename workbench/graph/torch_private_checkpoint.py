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
from types import CellType
from typing import Any


def is_holder(value: Any) -> bool:
    """Whether ``value``, saved by a node, stands for one that a checkpoint will compute again."""
    module = sys.modules.get("torch.utils.checkpoint")
    return module is not None and type(value) is getattr(module, "_Holder", None)


class Regions:
    """What each live region of non-reentrant checkpointing keeps; holds it until it is let go.

    Python's youngest objects are looked through first: there a forward that just ran has its
    frames. The oldest generation may have a million objects, which takes a tenth of a second.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[Any]] = {}
        self._generations = iter(range(len(gc.get_count())))

    def kept_by(self, holder: Any) -> list[Any] | None:
        """The raw values that the region of ``holder`` keeps; None where it is not found.

        They are tensors, or what a pack hook made of one, and containers and numbers for arguments
        that are no tensors; the dictionary of keyword arguments comes last. What the checkpointed
        function brings along itself (a closure) is not among them. All holders of a region give
        one and the same list. A torch that keeps it elsewhere gives None.
        """
        while id(holder) not in self._kept:
            generation = next(self._generations, None)
            if generation is None:
                return None
            self._kept |= _kept_in(generation)
        return self._kept[id(holder)]


def _kept_in(generation: int) -> dict[int, list[Any]]:
    """``id`` of each live holder -> what its region keeps, of regions in one of gc's generations.

    An id holds as long as the caller holds the node.
    """
    frame_class = getattr(sys.modules.get("torch.utils.checkpoint"), "_CheckpointFrame", None)
    found: dict[int, list[Any]] = {}
    for frame in [one for one in gc.get_objects(generation) if type(one) is frame_class]:
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
    names: tuple[str, ...] = getattr(getattr(recompute, "__code__", None), "co_freevars", ())
    closure: tuple[CellType, ...] = getattr(recompute, "__closure__", None) or ()
    cells = dict(zip(names, closure, strict=False))
    return cells["kwargs"].cell_contents if "kwargs" in cells else None
