"""The private corner of `torch.utils.checkpoint` that a capture stands on.

Read in torch 2.13 and held by ``tests/unit/torch_private/test_checkpoint.py``. A region of
non-reentrant checkpointing is a ``_CheckpointFrame``. The nodes made inside hold a ``_Holder`` for
each value that they would save; the frame knows these weakly, and keeps what the region takes to
compute the values again. No reference leads from a holder to its frame, other than through the C++
hooks of the saved value, so the frames are looked up among Python's objects.

What a policy has a region keep (selective checkpointing) no node saves: the dispatch mode in which
the forward ran put it into a store that the mode of the recomputation reads
(``_CachedTorchDispatchMode``), and only the function that computes the region again refers to that.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from types import CellType
from typing import Any, NamedTuple


def is_holder(value: Any) -> bool:
    """Whether ``value``, saved by a node, stands for one that a checkpoint will compute again."""
    module = sys.modules.get("torch.utils.checkpoint")
    return module is not None and type(value) is getattr(module, "_Holder", None)


class Kept(NamedTuple):
    """What one region keeps."""

    given: list[Any]
    """The raw values that it was called with: tensors, or what a pack hook made of one, and
    containers and numbers for arguments that are no tensors; the dictionary of keyword arguments
    comes last."""
    function: Any
    """What it calls, with what that brings along."""
    results: list[Any]
    """The results of operations that a policy has it keep, so that they are not computed again."""
    context: Any
    """The context in which it computes them again; None where that is not to be found."""


class Regions:
    """What each live region of non-reentrant checkpointing keeps; holds it until it is let go.

    Python's youngest objects are looked through first: there a forward that just ran has its
    frames. The oldest generation may have a million objects, which takes a tenth of a second.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}
        self._generations = iter(range(len(gc.get_count())))

    def kept_by(self, holder: Any) -> Kept | None:
        """What the region of ``holder`` keeps; None where it is not found.

        All holders of a region give one and the same object. A torch that keeps it elsewhere gives
        None.
        """
        while id(holder) not in self._kept:
            generation = next(self._generations, None)
            if generation is None:
                return None
            self._kept |= _kept_in(generation)
        return self._kept[id(holder)]


def _kept_in(generation: int) -> dict[int, Kept]:
    """``id`` of each live holder -> what its region keeps, of regions in one of gc's generations.

    An id holds as long as the caller holds the node.
    """
    frame_class = getattr(sys.modules.get("torch.utils.checkpoint"), "_CheckpointFrame", None)
    found: dict[int, Kept] = {}
    for frame in [one for one in gc.get_objects(generation) if type(one) is frame_class]:
        if hasattr(frame, "saved_args"):
            cells = _cells(frame.recompute_fn)
            context = cells.get("recompute_context")
            given = [*map(_raw, frame.saved_args), cells.get("kwargs")]
            kept = Kept(given, cells.get("fn"), _results(context), context)
            holders = [reference() for reference in frame.weak_holders]
            found |= {id(holder): kept for holder in holders if holder is not None}
    return found


def _raw(value: Any) -> Any:
    """What a ``SavedTensor`` holds, not unpacked: that would run hooks."""
    return value.data if type(value).__name__ == "SavedTensor" else value


def _cells(recompute: Any) -> dict[str, Any]:
    """What only the function that computes a region again knows, by the name it has there."""
    names: tuple[str, ...] = getattr(getattr(recompute, "__code__", None), "co_freevars", ())
    closure: tuple[CellType, ...] = getattr(recompute, "__closure__", None) or ()
    found: dict[str, Any] = {}
    for name, cell in zip(names, closure, strict=False):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            found[name] = cell.cell_contents
    return found


def _results(context: Any) -> list[Any]:
    """What a policy had kept, from the store of the context that computes the rest again.

    The store is operation -> number of the call -> its result, every tensor of it in a wrapper.
    """
    from torch.utils import _pytree

    if type(context).__module__ != "torch.utils.checkpoint":
        return []
    store: Any = vars(context).get("storage", {})
    results = [result for calls in store.values() for result in calls.values()]
    return [getattr(leaf, "val", None) for leaf in _pytree.tree_leaves(results)]
