"""The private part of `torch.utils.checkpoint` on which a capture is built.

Read in torch 2.13 and verified by ``tests/unit/torch_private/test_checkpoint.py``. A region of
non-reentrant checkpointing is a ``_CheckpointFrame``. The nodes created inside hold a ``_Holder``
for each value that they would save; the frame holds these weakly, and keeps what the region needs
to compute the values again. No reference leads from a holder to its frame, other than through the
C++ hooks of the saved value, so the frames are looked up among Python's objects.

What a policy makes a region keep (selective checkpointing) is not saved by any node: the dispatch
mode in which the forward ran put it into a store that the mode of the recomputation reads
(``_CachedTorchDispatchMode``), and only the function that computes the region again refers to that
store.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from types import CellType
from typing import Any, NamedTuple

from workbench.torch_private.lookup import Check, expect


def is_holder(value: Any) -> bool:
    """Return whether a node saved ``value`` in place of one that a checkpoint will recompute."""
    module = sys.modules.get("torch.utils.checkpoint")
    return module is not None and type(value) is getattr(module, "_Holder", None)


class Kept(NamedTuple):
    """What one region keeps."""

    given: list[Any]
    """The raw values that it was called with: tensors, or what a pack hook made of one, and
    containers and numbers for arguments that are not tensors; the dictionary of keyword arguments
    comes last."""
    function: Any
    """The function that it calls, with everything that this function holds."""
    results: list[Any]
    """The results of operations that a policy makes it keep, so that they are not computed
    again."""
    context: Any
    """The context in which it recomputes them; None if that cannot be found."""


class Regions:
    """What each live region of non-reentrant checkpointing keeps; held until this is released.

    Python's youngest objects are searched first: the frames of a forward that just ran are there.
    The oldest generation may have a million objects, which takes a tenth of a second.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}
        self._generations = iter(range(len(gc.get_count())))

    def kept_by(self, holder: Any) -> Kept | None:
        """Return what the region of ``holder`` keeps; None if it is not found.

        All holders of a region return the same object. With a torch that keeps it elsewhere, the
        result is None.
        """
        while id(holder) not in self._kept:
            generation = next(self._generations, None)
            if generation is None:
                return None
            self._kept |= _kept_in(generation)
        return self._kept[id(holder)]


def _kept_in(generation: int) -> dict[int, Kept]:
    """Return what the region of each live holder keeps, by ``id``, for one of gc's generations.

    An id is valid as long as the caller holds the node.
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
    """Return what a ``SavedTensor`` holds, not unpacked: that would run hooks."""
    return value.data if type(value).__name__ == "SavedTensor" else value


def _cells(recompute: Any) -> dict[str, Any]:
    """Return the variables that only the recomputing function holds, by their names there."""
    names: tuple[str, ...] = getattr(getattr(recompute, "__code__", None), "co_freevars", ())
    closure: tuple[CellType, ...] = getattr(recompute, "__closure__", None) or ()
    found: dict[str, Any] = {}
    for name, cell in zip(names, closure, strict=False):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            found[name] = cell.cell_contents
    return found


def _results(context: Any) -> list[Any]:
    """Return what a policy kept, from the store of the context that recomputes the rest.

    The store is operation -> number of the call -> its result, with every tensor in a wrapper.
    """
    from torch.utils import _pytree

    if type(context).__module__ != "torch.utils.checkpoint":
        return []
    store: Any = vars(context).get("storage", {})
    results = [result for calls in store.values() for result in calls.values()]
    return [getattr(leaf, "val", None) for leaf in _pytree.tree_leaves(results)]


# -- checks ---------------------------------------------------------------------------------


def _check_region() -> None:
    import torch
    from torch.utils.checkpoint import checkpoint

    from workbench.torch_private.autograd import raw_values

    def function(value: torch.Tensor) -> torch.Tensor:
        return value.exp()

    leaf = torch.ones(2, device="cpu", requires_grad=True)
    result: Any = checkpoint(function, leaf, use_reentrant=False, preserve_rng_state=False)
    (saved,) = raw_values(result.grad_fn, "_raw_saved_result")
    expect(is_holder(saved), "a node inside holds something else")
    kept = Regions().kept_by(saved)
    if kept is None:
        raise AssertionError("what a region keeps is not found")
    expect(kept.given[0] is leaf, "a region keeps another input")
    expect(kept.function is function, "a region keeps another function")
    expect(kept.context is not None, "a region recomputes in another context")


CHECKS = (
    Check(
        (
            "torch.utils.checkpoint._Holder",
            "torch.utils.checkpoint._CheckpointFrame",
            "torch.utils.checkpoint._CheckpointFrame.saved_args",
            "torch.utils.checkpoint._CheckpointFrame.recompute_fn",
            "torch.utils.checkpoint._CheckpointFrame.weak_holders",
        ),
        "the memory of checkpointed regions",
        _check_region,
    ),
)
