"""What the regions of non-reentrant activation checkpointing keep to compute their values again.

Each node made inside a region keeps it, and with it what the region was called with: the bytes that
checkpointing costs. Values that the checkpointed function brings along itself, without being given
them, are not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.graph.names import plain_tensors
from workbench.graph.torch_private_checkpoint import Regions, is_holder

if TYPE_CHECKING:
    import torch


@dataclass
class CheckpointInputs:
    """Finds what a saved value's region keeps; looks for regions only if there are any."""

    num_values: int = 0
    """Values seen that will be computed again."""
    num_unknown: int = 0
    """How often a region was not found."""
    _regions: Regions = field(default_factory=Regions, repr=False)

    def kept_by(self, values: Iterable[Any]) -> list[torch.Tensor]:
        """The tensors, each with a storage, that the regions of one node's ``values`` keep."""
        found: dict[int, torch.Tensor] = {}
        for value in filter(is_holder, values):
            self.num_values += 1
            for tensor in self._tensors(value):
                found[id(tensor)] = tensor
        return [part for tensor in found.values() for part in plain_tensors(tensor)]

    def let_go(self) -> None:
        """Hold no tensor any longer."""
        self._regions = Regions()

    def _tensors(self, holder: Any) -> list[torch.Tensor]:
        import torch
        from torch.utils import _pytree

        found: list[torch.Tensor] = []
        values = self._regions.kept_by(holder)
        self.num_unknown += values is None
        for kept in _pytree.tree_leaves(values or []):
            if isinstance(kept, torch.Tensor):
                found.append(kept)
            elif is_holder(kept):  # the input of a region inside another
                found += self._tensors(kept)
        return found

    def notes(self) -> list[str]:
        """What the sum of saved bytes has of it, in a sentence or two."""
        if not self.num_values:
            return []
        counted = (
            "what the checkpointed regions were given is kept for that too, and is not in the sum"
            if self.num_unknown
            else "what the checkpointed regions were given is kept for that, and is counted"
        )
        return [
            f"{self.num_values} saved values belong to activation checkpointing: they hold no "
            f"bytes and are computed again in backward; {counted}."
        ]
