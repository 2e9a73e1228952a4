"""Bytes that a graph keeps alive for backward, counted per storage and once each.

A ``SavedTensor`` is looked at without unpacking it. Unpacking would run the user's hooks, and under
non-reentrant checkpointing the hook is the forward itself; what a region keeps for that is held by
the nodes inside. Storages that would live anyway (parameters, buffers, inputs) are totalled apart:
freeing the graph would not free them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.graph.capture import shape_text
from workbench.graph.checkpoint_inputs import CheckpointInputs
from workbench.graph.holders import KEPT_FOR_CHECKPOINT
from workbench.graph.names import has_own_storage, plain_tensors
from workbench.graph.torch_private import (
    forward_class,
    is_freed,
    raw_slots,
    raw_values,
    storage_key,
)
from workbench.graph.torch_private_checkpoint import is_holder
from workbench.records import STORAGE_KINDS

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

_KIND_ROW = {kind: row for row, kind in enumerate(STORAGE_KINDS)}

FREED = (
    "Backward has already run, so what was saved for it is freed: bytes are missing; capture "
    "before backward to see them."
)


@dataclass
class Holds:
    """Which node holds which storage, one row per saved tensor, and the storages."""

    node: list[int] = field(default_factory=list[int])
    storage: list[int] = field(default_factory=list[int])
    name: list[str] = field(default_factory=list[str])
    shape: list[str] = field(default_factory=list[str])
    storage_bytes: list[int] = field(default_factory=list[int])
    storage_kind: list[int] = field(default_factory=list[int])


@dataclass
class SavedBytes:
    """What each node holds; plain numbers."""

    first: list[int]
    """Per row, bytes of storages that this node is the first to hold."""
    shared: list[int]
    """Per row, bytes of storages that an earlier row holds already."""
    totals: dict[str, int] = field(
        default_factory=lambda: {"parameter": 0, "buffer": 0, "input": 0}
    )
    holds: Holds = field(default_factory=Holds)
    num_freed: int = 0
    """Nodes whose saved tensors a backward has freed."""
    regions: CheckpointInputs = field(default_factory=CheckpointInputs)
    """Values that activation checkpointing will compute again, and what it keeps for that."""
    num_packed: int = 0
    """Values a pack hook turned into something that holds no visible tensor."""
    num_unsized: int = 0
    """Saved tensors whose layout has no storage to measure."""

    def notes(self) -> list[str]:
        """One sentence for each thing that could not be counted."""
        found: list[str] = []
        if self.num_freed:
            found.append(FREED)
        found += self.regions.notes()
        if self.num_packed:
            found.append(
                f"{self.num_packed} saved values were packed by a saved-tensor hook into something "
                "other than a tensor; their bytes are not counted."
            )
        if self.num_unsized:
            found.append(
                f"{self.num_unsized} saved tensors have a layout without a storage; their bytes "
                "are not counted."
            )
        return found


def count_saved(nodes: Sequence[Node], held_anyway: Mapping[int, str]) -> SavedBytes:
    """Count what ``nodes``, in forward order, hold.

    Args:
        nodes: live nodes.
        held_anyway: storage identity -> ``parameter``, ``buffer`` or ``input``.
    """
    result = SavedBytes([0] * len(nodes), [0] * len(nodes))
    slots: dict[type, tuple[str, ...]] = {}
    seen: dict[int, int] = {}
    for row, node in enumerate(nodes):
        names = slots.get(type(node))
        if names is None:
            names = slots[type(node)] = raw_slots(type(node))
        if names:
            _count_node(result, row, _held(result, node, names), seen, held_anyway)
    result.regions.let_go()
    return result


def _count_node(
    result: SavedBytes,
    row: int,
    tensors: Iterable[tuple[str, torch.Tensor]],
    seen: dict[int, int],
    held_anyway: Mapping[int, str],
) -> None:
    """Count what ``row`` holds; ``seen`` is storage identity -> row in the table of storages."""
    own: set[int] = set()
    holds = result.holds
    for name, tensor in tensors:
        key, size = storage_key(tensor)
        kind = held_anyway.get(key, "activation")
        storage = seen.get(key)
        is_first = storage is None
        if storage is None:
            storage = seen[key] = len(holds.storage_bytes)
            holds.storage_bytes.append(size)
            holds.storage_kind.append(_KIND_ROW[kind])
        holds.node.append(row)
        holds.storage.append(storage)
        holds.name.append(name)
        holds.shape.append(shape_text(tensor.shape))
        if key in own:
            continue
        own.add(key)
        if kind != "activation":
            result.totals[kind] += size if is_first else 0
        elif is_first:
            result.first[row] += size
        else:
            result.shared[row] += size


def _held(
    result: SavedBytes, node: Node, slots: tuple[str, ...]
) -> Iterable[tuple[str, torch.Tensor]]:
    """Tensors ``node`` holds, by name, with what cannot be counted noted in ``result``."""
    others: list[Any] = []
    empty = ""
    for slot in slots:
        name = slot[len("_raw_saved_") :]
        for value in raw_values(node, slot):
            if value is None:
                empty = empty or slot
            elif has_own_storage(value):
                yield name, value
            else:
                others.append(value)
                for tensor in _parts(result, value):
                    yield name, tensor
    for tensor in result.regions.kept_by(others) if others else ():
        yield KEPT_FOR_CHECKPOINT, tensor
    if empty and is_freed(node, empty):
        result.num_freed += 1
    if forward_class(node) is not None:
        yield from _on_context(result, node)


def _on_context(result: SavedBytes, node: Node) -> Iterable[tuple[str, torch.Tensor]]:
    """What a custom Function keeps on its ``ctx``, apart from what it saved for backward."""
    for name, value in list(vars(node).items()):
        for tensor in _stashed(result, value):
            yield f"ctx.{name}", tensor


def _stashed(result: SavedBytes, value: Any) -> Iterable[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield from _parts(result, value)
    elif isinstance(value, (tuple, list, dict)):
        items: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for item in items:
            if isinstance(item, torch.Tensor):
                yield from _parts(result, item)


def _parts(result: SavedBytes, value: Any) -> Iterable[torch.Tensor]:
    """The tensors with storages behind one raw saved value."""
    import torch

    if isinstance(value, torch.Tensor):
        parts = plain_tensors(value)
        result.num_unsized += not parts
        yield from parts
    elif not is_holder(
        value
    ):  # what a pack hook returned: save_on_cpu, for one, returns (device, tensor)
        found = list(_stashed(result, value))
        result.num_packed += not found
        yield from found
