"""Bytes that a graph keeps alive for backward, counted per storage and once each.

A ``SavedTensor`` is inspected without unpacking it. Unpacking would run the user's hooks, and under
non-reentrant checkpointing the hook is the forward itself; what a region keeps for that is held by
the nodes inside. Storages that would live anyway (parameters, buffers, inputs) are totalled
separately: freeing the graph would not free them. The contents of an object on the ``ctx`` of a
custom Function are not counted either if others hold that object as well.

A Python number in an operation (``x * 2.0``) is kept too, as a scalar in host memory, whatever the
device of ``x``. It is not counted: torch passes it to no saved-tensor hook, and only what hooks see
is counted.
"""

from __future__ import annotations

import operator
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.graph.capture.module_rows import inside_module
from workbench.graph.core.held_tensors import MOST_OBJECTS, Search, held_by, holds_nothing
from workbench.graph.core.number_format import byte_size, plural
from workbench.graph.core.tensor_memory import Memory, memory_of
from workbench.graph.core.walk import shape_text
from workbench.records import STORAGE_KINDS, GraphNode
from workbench.torch_private.autograd import forward_class, is_freed, raw_slots, raw_values
from workbench.torch_private.checkpoint import Kept, Regions, is_holder
from workbench.torch_private.self_check import self_check
from workbench.torch_private.tensors import is_wrapped_number

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from workbench.records import GraphRecord


# Pure functions over a record: what nodes keep alive for backward, and which others hold it too.

KEPT_FOR_CHECKPOINT = "checkpointed input"
"""Name of a saved tensor that was passed to a region of non-reentrant checkpointing."""
KEPT_BY_POLICY = "kept by a policy"
"""Name of a result that such a region keeps, by the policy of selective checkpointing."""
_ACTIVATION = STORAGE_KINDS.index("activation")


@dataclass(frozen=True, kw_only=True)
class HeldStorage:
    """One storage that a node, or the nodes of a module, hold for backward."""

    storage: int
    """Row in the record's ``storage_*`` columns."""
    names: tuple[str, ...]
    """torch's names of the saved tensors stored in it (``input``, ``result1``);
    ``checkpointed input`` for what an activation checkpoint keeps to compute them again, and
    ``kept by a policy`` for what its policy keeps so that it is not computed again."""
    shapes: tuple[str, ...]
    """Shape of each of ``names``, ``128×64×16×16``."""
    num_bytes: int
    """Size of the whole storage, which may be larger than the saved tensors in it."""
    kind: str
    """One of `STORAGE_KINDS`."""
    others: tuple[GraphNode, ...]
    """The other nodes that hold it, in forward order; for a module, those outside it."""
    holder: str = "node"
    """What was queried: ``node`` or ``module``."""

    @property
    def freed_bytes(self) -> int:
        """Bytes that would be freed if this node, or all of this module, released it.

        Zero for a parameter, a buffer or an input, which live anyway, and zero for a storage that
        another node holds. A record does not know what the user's own variables hold.
        """
        return self.num_bytes if self.kind == "activation" and not self.others else 0

    def __str__(self) -> str:
        tensors = ", ".join(f"{n} {s}" for n, s in zip(self.names, self.shapes, strict=True))
        text = f"{tensors}: {byte_size(self.num_bytes)}, {self.kind}"
        if not self.others:
            return f"{text}, held by this {self.holder} alone"
        first = "; ".join(_described(node) for node in self.others[:3])
        more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""
        return f"{text}, also held by {first}{more}"


def holders(record: GraphRecord, node: int | GraphNode | str) -> tuple[HeldStorage, ...]:
    """Storages that ``node`` holds for backward, and the other nodes that hold the same ones.

    Args:
        record: a captured graph.
        node: a row of ``record.nodes``, the node itself, or the qualified name of a module, which
            stands for all nodes in it.

    Returns:
        Storages in the order in which they were saved; empty for a node that saves nothing.

    Raises:
        IndexError: there is no such row.
        TypeError: ``node`` is none of these.
        ValueError: the graph has no node of such a module; the message lists close names.
    """
    is_module = isinstance(node, str)
    rows = np.flatnonzero(inside_module(record, node)) if is_module else [check_row(record, node)]
    own = set(map(int, rows))
    by_storage: dict[int, list[int]] = defaultdict(list)
    for hold in np.flatnonzero(np.isin(record.hold_node, rows)).tolist():
        by_storage[int(record.hold_storage[hold])].append(hold)
    users = _nodes_of(record, by_storage)
    return tuple(
        HeldStorage(
            storage=storage,
            names=tuple(record.strings[record.hold_name[hold]] for hold in holds),
            shapes=tuple(record.strings[record.hold_shape[hold]] for hold in holds),
            num_bytes=int(record.storage_bytes[storage]),
            kind=STORAGE_KINDS[record.storage_kind[storage]],
            others=tuple(GraphNode.of(record, row) for row in users[storage] if row not in own),
            holder="module" if is_module else "node",
        )
        for storage, holds in by_storage.items()
    )


def check_row(record: GraphRecord, node: int | GraphNode) -> int:
    """The row of ``node``.

    Raises:
        IndexError: there is no such row.
        TypeError: ``node`` is neither a row nor a node.
    """
    try:
        row = node.index if isinstance(node, GraphNode) else operator.index(node)
    except TypeError:
        raise TypeError(
            "expected a node of record.nodes, its row as an integer, or the qualified name of a "
            f"module as a string; got {node!r} ({type(node).__name__})"
        ) from None
    if not 0 <= row < len(record.node_type):
        raise IndexError(
            f"there is no node {row}: this graph has nodes 0 to {len(record.node_type) - 1}; see "
            "record.nodes"
        )
    return row


def split_by_holder(
    record: GraphRecord, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Activation storages that only nodes ``inside`` hold, and those that others hold as well.

    Args:
        record: a captured graph.
        inside: one flag per node.

    Returns:
        Two flags per storage.
    """
    held_inside = np.zeros(len(record.storage_bytes), dtype=bool)
    held_outside = held_inside.copy()
    is_inside = inside[record.hold_node]
    held_inside[record.hold_storage[is_inside]] = True
    held_outside[record.hold_storage[~is_inside]] = True
    held_inside &= record.storage_kind == _ACTIVATION
    return held_inside & ~held_outside, held_inside & held_outside


def _described(node: GraphNode) -> str:
    where = f" in `{node.module}`" if node.module else ""
    line = f" ({node.source.label})" if node.source is not None else ""
    return f"`{node.op}`{where}{line}"


def _nodes_of(record: GraphRecord, storages: Iterable[int]) -> dict[int, list[int]]:
    """Storage -> the rows that hold it, ascending."""
    wanted = np.isin(record.hold_storage, list(storages))
    found: dict[int, list[int]] = defaultdict(list)
    for storage, row in zip(
        record.hold_storage[wanted].tolist(), record.hold_node[wanted].tolist(), strict=True
    ):
        if not found[storage] or found[storage][-1] != row:
            found[storage].append(row)
    return found


# What the regions of non-reentrant activation checkpointing keep to compute their values again.
#
# Each node made inside a region keeps the region alive, and with it the region's inputs, what its
# function references, and the results that a policy makes it keep: the bytes that checkpointing
# costs.

Named = tuple[str, torch.Tensor]


@dataclass
class CheckpointInputs:
    """Finds what a saved value's region keeps; looks for regions only if there are any."""

    num_values: int = 0
    """Number of values seen that will be computed again."""
    num_unknown: int = 0
    """Number of times that a region was not found."""
    has_unknown_context: bool = False
    """Whether a region was found for which it is not known whether it has a policy."""
    _results: set[int] = field(default_factory=set[int], repr=False)
    """``id`` of each result that a policy keeps; results live as long as the regions are held."""
    _regions: Regions = field(default_factory=Regions, repr=False)
    _search: Search = field(default_factory=Search, repr=False)
    _of_function: Search = field(default_factory=lambda: Search(into_objects=False), repr=False)
    """Leaves objects out: an object whose method is checkpointed lives on its own."""
    _found: dict[int, tuple[Kept, list[Named]]] = field(
        default_factory=dict[int, tuple[Kept, list[Named]]], repr=False
    )
    """By the ``id`` of what a region keeps."""
    num_results: int = 0
    """Number of results that policies keep."""

    def kept_by(self, values: Iterable[Any]) -> list[Named]:
        """Named tensors that the regions of one node's ``values`` keep, each once."""
        found: dict[int, Named] = {}
        for value in filter(is_holder, values):
            self.num_values += 1
            for name, tensor in self._tensors(value):
                found.setdefault(id(tensor), (name, tensor))
        return list(found.values())

    def release(self) -> None:
        """Release all tensors."""
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
        from workbench.torch_private.pytree import tree_leaves

        self.has_unknown_context |= kept.context is None
        for value in tree_leaves(kept.given):
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
        """Notes on which of these bytes the sum of saved bytes includes, in a sentence or two."""
        if not self.num_values:
            return []
        problems = [problem.sentence for problem in self_check("checkpoints")]
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
        return [*problems, *found]


# Objects that custom Functions keep on their ``ctx`` and others hold as well: the graph does not
# own them.
#
# A settings object with a cache, a bound method with its whole trainer: freeing the graph would
# free none of these, so their bytes are not the graph's. The contents of a list that only ``ctx``
# holds are.
#
# Python's own garbage collector distinguishes the two by counting, and so does this code: for each
# object reached from the nodes, the references that come from other reached objects are subtracted
# from its reference count. If any remain, the object is held elsewhere, with everything that can be
# reached from it (``deduce_unreachable`` in ``Modules/gcmodule.c`` of CPython). This is done for
# all nodes together, as several may keep the same list. Tensors are not checked in this way: one
# that is on ``ctx`` itself, or in what only the graph holds, counts as if it had been saved for
# backward, which keeps a tensor whoever else holds it.


@dataclass
class HeldElsewhere:
    """Objects that the graph does not own; valid while the graph lives."""

    ids: set[int] = field(default_factory=set[int])
    tensors: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """Tensors in these objects; the graph may hold them in another way too."""
    is_complete: bool = True
    """Whether everything was inspected; if not, an object may wrongly seem to be held elsewhere."""


def held_elsewhere(contexts: Iterable[dict[str, Any]], most: int = MOST_OBJECTS) -> HeldElsewhere:
    """Find the objects reached from ``contexts`` that others hold as well.

    Args:
        contexts: the attributes of each node; the caller keeps no other reference to what is in
            them.
        most: maximum number of objects to inspect.
    """
    reached, from_inside, is_complete = _reached_from(contexts, most)
    counts = _reference_counts(reached)
    (ours,) = _reference_counts({0: object()}).values()
    pending = [one for key, one in reached.items() if counts[key] > ours + from_inside[key]]
    result = HeldElsewhere(is_complete=is_complete)
    while pending:
        value = pending.pop()
        if issubclass(type(value), torch.Tensor):
            result.tensors.append(value)
        elif id(value) in reached and id(value) not in result.ids:
            result.ids.add(id(value))
            pending += held_by(value) or ()
    return result


def _reached_from(
    contexts: Iterable[dict[str, Any]], most: int
) -> tuple[dict[int, Any], Counter[int], bool]:
    """Objects by ``id``, number of references to each from among them, whether these are all."""
    reached: dict[int, Any] = {}
    from_inside: Counter[int] = Counter()
    is_complete = True
    pending = [value for context in contexts for value in context.values()]
    while pending:
        value = pending.pop()
        if holds_nothing(value) or issubclass(type(value), torch.Tensor):
            continue
        from_inside[id(value)] += 1
        if id(value) in reached:
            continue
        if len(reached) >= most:
            is_complete = False
            continue
        reached[id(value)] = value
        pending += held_by(value) or ()
    return reached, from_inside, is_complete


def _reference_counts(values: dict[int, Any]) -> dict[int, int]:
    """Reference counts, including references from ``values`` and from this function."""
    return {key: sys.getrefcount(value) for key, value in values.items()}


_KIND_ROW = {kind: row for row, kind in enumerate(STORAGE_KINDS)}

FREED = (
    "Backward has already run, so what was saved for it is freed: bytes are missing; capture "
    "before backward to see them."
)


@dataclass
class Holds:
    """Which node holds which storage, one row per saved tensor, and the storages themselves."""

    node: list[int] = field(default_factory=list[int])
    storage: list[int] = field(default_factory=list[int])
    name: list[str] = field(default_factory=list[str])
    shape: list[str] = field(default_factory=list[str])
    storage_bytes: list[int] = field(default_factory=list[int])
    storage_kind: list[int] = field(default_factory=list[int])


@dataclass
class SavedBytes:
    """Bytes that each node holds; plain numbers."""

    first: list[int]
    """Per row, bytes of storages that this node is the first to hold."""
    shared: list[int]
    """Per row, bytes of storages that an earlier row already holds."""
    totals: dict[str, int] = field(
        default_factory=lambda: {"parameter": 0, "buffer": 0, "input": 0}
    )
    holds: Holds = field(default_factory=Holds)
    num_freed: int = 0
    """Number of nodes whose saved tensors a backward pass has freed."""
    regions: CheckpointInputs = field(default_factory=CheckpointInputs)
    """Values that activation checkpointing will compute again, and what it keeps for that."""
    num_packed: int = 0
    """Number of values that a pack hook turned into something that holds no visible tensor."""
    num_virtual: int = 0
    """Number of storages that take no memory because they belong to meta or fake tensors."""
    unsized: Counter[str] = field(default_factory=Counter[str])
    """Kind of tensor whose memory cannot be found -> how many are saved."""
    closed: Counter[str] = field(default_factory=Counter[str])
    """Class of objects kept by custom Functions that cannot be inspected -> how many are kept."""
    num_cut_short: int = 0
    """Number of things kept by custom Functions that were not searched completely."""
    elsewhere_bytes: int = 0
    """Bytes in what custom Functions keep and others hold as well, if not part of another sum."""
    faults: list[str] = field(default_factory=list[str])
    """Reasons why nodes could not be inspected."""

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
                f"inspected, so bytes may be missing: {_counted(self.closed)}."
            )
        if self.num_cut_short:
            found.append(
                "Custom Functions keep so many objects on their ctx that not all were "
                "inspected; bytes may be missing."
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
    """One count; holds no part of the graph once it is done."""

    def __init__(self, held_anyway: Mapping[int, str], none_yet: list[int]) -> None:
        self._result = SavedBytes(none_yet, list(none_yet))
        self._held_anyway = held_anyway
        self._seen: dict[int, int] = {}
        """Identity of a storage -> row in the table of storages."""
        self._search = Search()
        self._on_ctx = Search()
        self._elsewhere = HeldElsewhere()

    def of(self, nodes: Sequence[Node]) -> SavedBytes:
        """Run the whole count."""
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
        result.regions.release()
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
        """Memory that ``node`` holds, by name; what cannot be counted is noted."""
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
        """Memory in what a pack hook returned: save_on_cpu, say, returns (device, tensor)."""
        if is_holder(value):
            return
        found = self._search.within(value)
        self._result.num_packed += not found.tensors
        for tensor in found.tensors:
            yield from self._memory(name, tensor)
