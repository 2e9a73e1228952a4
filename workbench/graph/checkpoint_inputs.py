"""What the regions of non-reentrant activation checkpointing keep to compute their values again.

Each node made inside a region keeps it, and with it what the region was called with, what its
function brings along, and the results that a policy has it keep: the bytes that checkpointing
costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.graph.holders import KEPT_BY_POLICY, KEPT_FOR_CHECKPOINT
from workbench.graph.tensors_within import Search
from workbench.graph.torch_private_checkpoint import Kept, Regions, is_holder
from workbench.graph.wording import plural

Named = tuple[str, torch.Tensor]


@dataclass
class CheckpointInputs:
    """Finds what a saved value's region keeps; looks for regions only if there are any."""

    num_values: int = 0
    """Values seen that will be computed again."""
    num_unknown: int = 0
    """How often a region was not found."""
    has_unknown_context: bool = False
    """Whether one was found of which it is not known whether it has a policy."""
    _results: set[int] = field(default_factory=set[int], repr=False)
    """``id`` of each result that a policy keeps; they live as long as the regions are held."""
    _regions: Regions = field(default_factory=Regions, repr=False)
    _search: Search = field(default_factory=Search, repr=False)
    _of_function: Search = field(default_factory=lambda: Search(into_objects=False), repr=False)
    """The object whose method is checkpointed lives on its own."""
    _found: dict[int, tuple[Kept, list[Named]]] = field(
        default_factory=dict[int, tuple[Kept, list[Named]]], repr=False
    )
    """By ``id`` of what a region keeps."""
    num_results: int = 0
    """Results that policies keep."""

    def kept_by(self, values: Iterable[Any]) -> list[Named]:
        """The tensors that the regions of one node's ``values`` keep, each once, by name."""
        found: dict[int, Named] = {}
        for value in filter(is_holder, values):
            self.num_values += 1
            for name, tensor in self._tensors(value):
                found.setdefault(id(tensor), (name, tensor))
        return list(found.values())

    def let_go(self) -> None:
        """Hold no tensor any longer."""
        self.num_results = len(self._results)
        self._regions = Regions()
        self._search.forget()
        self._of_function.forget()
        self._found.clear()

    def _tensors(self, holder: Any) -> list[Named]:
        kept = self._regions.kept_by(holder)
        if kept is None:
            self.num_unknown += 1
            return []
        known = self._found.get(id(kept))
        if known is None:
            known = self._found[id(kept)] = kept, list(self._of_region(kept))
        return known[1]

    def _of_region(self, kept: Kept) -> Iterator[Named]:
        from torch.utils import _pytree

        self.has_unknown_context |= kept.context is None
        for value in _pytree.tree_leaves(kept.given):
            if isinstance(value, torch.Tensor):
                yield KEPT_FOR_CHECKPOINT, value
            elif is_holder(value):  # the input of a region inside another
                yield from self._tensors(value)
        for tensor in self._of_function.within(kept.function).tensors:
            yield KEPT_FOR_CHECKPOINT, tensor
        results = [one for one in kept.results if isinstance(one, torch.Tensor)]
        for tensor in (*results, *self._search.attributes(kept.context).tensors):
            self._results.add(id(tensor))
            yield KEPT_BY_POLICY, tensor

    def notes(self) -> list[str]:
        """What the sum of saved bytes has of it, in a sentence or two."""
        if not self.num_values:
            return []
        counted = (
            "what the checkpointed regions were given is kept for that too, and is not in the sum"
            if self.num_unknown
            else "what the checkpointed regions were given is kept for that, and is counted"
        )
        found = [
            f"{self.num_values} saved values belong to activation checkpointing: they hold no "
            f"bytes and are computed again in backward; {counted}."
        ]
        if self.num_results:
            found.append(
                f"{plural(self.num_results, 'result')} of operations in checkpointed regions are "
                "kept by a policy (selective activation checkpointing) and not computed again; "
                "their bytes are counted."
            )
        if self.has_unknown_context:
            found.append(
                "Whether a policy keeps results of operations in checkpointed regions could not be "
                "seen; if one does, their bytes are missing."
            )
        return found
