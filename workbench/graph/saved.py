"""Bytes that a graph keeps alive for backward, counted per storage and once each.

A ``SavedTensor`` is looked at without unpacking it. Unpacking would run the user's hooks, and under
non-reentrant checkpointing the hook is the forward itself; what a region keeps for that is held by
the nodes inside. Storages that would live anyway (parameters, buffers, inputs) are totalled apart:
freeing the graph would not free them. Nor does what is in an object on the ``ctx`` of a custom
Function count, where others hold that object as well (`workbench.graph.held_elsewhere`).

A Python number in an operation (``x * 2.0``) is kept too, as a scalar in host memory, whatever the
device of ``x``. It is not counted: torch hands it to no saved-tensor hook, and what is counted is
what hooks see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from workbench.graph.capture import shape_text
from workbench.graph.checkpoint_inputs import CheckpointInputs
from workbench.graph.held_elsewhere import HeldElsewhere, held_elsewhere
from workbench.graph.tensor_memory import Memory, memory_of
from workbench.graph.tensors_within import Search
from workbench.graph.torch_private import forward_class, is_freed, raw_slots, raw_values
from workbench.graph.torch_private_checkpoint import is_holder
from workbench.graph.torch_private_tensors import is_wrapped_number
from workbench.graph.wording import byte_size, plural
from workbench.records import STORAGE_KINDS

if TYPE_CHECKING:
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
    num_virtual: int = 0
    """Storages that take no memory, being of meta or fake tensors."""
    unsized: Counter[str] = field(default_factory=Counter[str])
    """Kind of tensor whose memory cannot be found -> how many are saved."""
    closed: Counter[str] = field(default_factory=Counter[str])
    """Class of what custom Functions keep and lets nobody look into it -> how many are kept."""
    num_cut_short: int = 0
    """Things that custom Functions keep of which not all was looked through."""
    elsewhere_bytes: int = 0
    """In what custom Functions keep and others hold as well, as far as it is in no other sum."""
    faults: list[str] = field(default_factory=list[str])
    """Why nodes could not be looked at."""

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
        if self.num_virtual:
            found.append(
                "Meta and fake tensors take no memory; the bytes of "
                f"{plural(self.num_virtual, 'saved storage')} are what real ones would take."
            )
        if self.unsized:
            found.append(
                "Where the memory of these saved tensors is could not be found, so their bytes are "
                f"not counted: {_counted(self.unsized)}."
            )
        if self.closed:
            found.append(
                "What these objects hold, which custom Functions keep on their ctx, could not be "
                f"looked into, so bytes may be missing: {_counted(self.closed)}."
            )
        if self.num_cut_short:
            found.append(
                "Custom Functions keep so many objects on their ctx that not all were looked "
                "through; bytes may be missing."
            )
        if self.elsewhere_bytes:
            found.append(
                "Objects that custom Functions keep on their ctx are held elsewhere as well, with "
                f"{byte_size(self.elsewhere_bytes)} of tensors in them: freeing the graph would "
                "not free these, and they are not counted."
            )
        if self.faults:
            found.append(
                f"What {plural(len(self.faults), 'node')} saved could not be read, so bytes are "
                f"missing ({self.faults[0]})."
            )
        return found


def _counted(found: Mapping[str, int]) -> str:
    """``3 of Hidden, 1 of Other``; the first four."""
    said = [f"{count:,} of {name}" for name, count in list(found.items())[:4]]
    return ", ".join(said) + (f" and {len(found) - 4} kinds more" if len(found) > 4 else "")


def count_saved(nodes: Sequence[Node], held_anyway: Mapping[int, str]) -> SavedBytes:
    """Count what ``nodes``, in forward order, hold.

    Args:
        nodes: live nodes.
        held_anyway: storage identity -> ``parameter``, ``buffer`` or ``input``.
    """
    return _Count(held_anyway, [0] * len(nodes)).of(nodes)


class _Count:
    """One count; holds nothing of the graph once it is done."""

    def __init__(self, held_anyway: Mapping[int, str], none_yet: list[int]) -> None:
        self._result = SavedBytes(none_yet, list(none_yet))
        self._held_anyway = held_anyway
        self._seen: dict[int, int] = {}
        """Identity of a storage -> row in the table of storages."""
        self._search = Search()
        self._on_ctx = Search()
        self._elsewhere = HeldElsewhere()

    def of(self, nodes: Sequence[Node]) -> SavedBytes:
        """The whole of it."""
        slots: dict[type, tuple[str, ...]] = {}
        result = self._result
        self._find_elsewhere(nodes)
        for row, node in enumerate(nodes):
            names = slots.get(type(node))
            if names is None:
                names = slots[type(node)] = raw_slots(type(node))
            if not names:
                continue
            try:
                self._count_node(row, self._held(node, names))
            except Exception as error:  # noqa: BLE001 - no tensor may break a capture
                result.faults.append(f"{type(error).__name__}: {error}".split("\n", 1)[0])
        result.regions.let_go()
        result.elsewhere_bytes = self._bytes_elsewhere()
        return result

    def _find_elsewhere(self, nodes: Sequence[Node]) -> None:
        contexts = [vars(node) for node in nodes if forward_class(node) is not None]
        if not any(contexts):
            return
        self._elsewhere = held_elsewhere(contexts)
        self._result.num_cut_short += not self._elsewhere.is_complete
        self._on_ctx = Search(leave_out=self._elsewhere.ids)

    def _bytes_elsewhere(self) -> int:
        found = [memory_of(tensor) or () for tensor in self._elsewhere.tensors]
        sizes = {one.key: one.num_bytes for memory in found for one in memory}
        counted = self._seen.keys() | self._held_anyway.keys()
        return sum(size for key, size in sizes.items() if key not in counted)

    def _count_node(self, row: int, held: Iterable[tuple[str, Memory]]) -> None:
        own: set[int] = set()
        result, holds = self._result, self._result.holds
        for name, (key, size, shape, is_virtual) in held:
            kind = self._held_anyway.get(key, "activation")
            storage = self._seen.get(key)
            is_first = storage is None
            if storage is None:
                storage = self._seen[key] = len(holds.storage_bytes)
                holds.storage_bytes.append(size)
                holds.storage_kind.append(_KIND_ROW[kind])
                result.num_virtual += is_virtual
            holds.node.append(row)
            holds.storage.append(storage)
            holds.name.append(name)
            holds.shape.append(shape_text(shape))
            if key in own:
                continue
            own.add(key)
            if kind != "activation":
                result.totals[kind] += size if is_first else 0
            elif is_first:
                result.first[row] += size
            else:
                result.shared[row] += size

    def _held(self, node: Node, slots: tuple[str, ...]) -> Iterable[tuple[str, Memory]]:
        """Memory that ``node`` holds, by name, with what cannot be counted noted."""
        packed: list[Any] = []
        empty = ""
        for slot in slots:
            name = slot[len("_raw_saved_") :]
            for value in raw_values(node, slot):
                if value is None:
                    empty = empty or slot
                elif isinstance(value, torch.Tensor):
                    if not is_wrapped_number(value):
                        yield from self._memory(name, value)
                else:
                    packed.append(value)
                    yield from self._packed(name, value)
        for name, tensor in self._result.regions.kept_by(packed) if packed else ():
            yield from self._memory(name, tensor)
        if empty and is_freed(node, empty):
            self._result.num_freed += 1
        if forward_class(node) is not None:
            yield from self._on_context(node)

    def _memory(self, name: str, tensor: torch.Tensor) -> Iterable[tuple[str, Memory]]:
        found = memory_of(tensor)
        if found is None:
            self._result.unsized[type(tensor).__name__] += 1
            return
        for one in found:
            yield name, one

    def _on_context(self, node: Node) -> Iterable[tuple[str, Memory]]:
        """What a custom Function keeps on its ``ctx``, apart from what it saved for backward."""
        for name, value in list(vars(node).items()):
            found = self._on_ctx.within(value)
            self._result.closed.update(found.closed)
            self._result.num_cut_short += not found.is_complete
            for tensor in found.tensors:
                yield from self._memory(f"ctx.{name}", tensor)

    def _packed(self, name: str, value: Any) -> Iterable[tuple[str, Memory]]:
        """Of what a pack hook returned: save_on_cpu, for one, returns (device, tensor)."""
        if is_holder(value):
            return
        found = self._search.within(value)
        self._result.num_packed += not found.tensors
        for tensor in found.tensors:
            yield from self._memory(name, tensor)
