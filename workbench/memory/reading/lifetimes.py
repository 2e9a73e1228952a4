"""The blocks of an allocator's trace, each as a lifetime at an address.

A trace reports ``alloc``, ``free_requested`` and ``free_completed`` for addresses. Sorted by
address, and by time within one, it is divided into *lifetimes*: each begins with an ``alloc`` or,
if the ``alloc`` came before the trace began, with what ended the block. Everything here works on
whole columns, so that a million events take well under a second.

A trace contains the *requested* size of a block. The size that it occupies is known for the blocks
that are there at the end; for the others a replay can determine it (`lifetimes_of`'s ``sizes``),
and without a replay it is the request rounded up, which leaves out a remainder too small to be
split off. Schema and rules: ``torch/cuda/_memory_viz.py`` and ``c10/cuda/CUDACachingAllocator.cpp``
of PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.allocator.simulator.rounding import round_sizes
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    PENDING,
    Snapshot,
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Lifetimes:
    """One row per block: those that the trace never mentions, then the others in order of time.

    Events are numbered among those that `Lifetimes.kept` keeps.
    """

    kept: npt.NDArray[np.bool_]
    """For each entry of the trace, whether it is an event: all are, except a request to free that
    the next entry completes."""
    start: Ints
    end: Ints
    pending: Ints
    num_bytes: Ints
    requested: Ints
    address: Ints
    stream: Ints
    stack: Ints
    """Row of a stack of the snapshot, -1 without one."""


def lifetimes_of(snapshot: Snapshot, sizes: Ints | None = None) -> Lifetimes:
    """Return every block of the trace and of the final segments.

    Args:
        snapshot: one device of a snapshot.
        sizes: bytes that the block of an entry occupies, one per entry of the trace, if a replay
            has determined them; entries that are not about a block are not read.
    """
    kept = kept_events(snapshot)
    event = np.cumsum(kept) - 1
    first, alloc, request, done, follower = _entries_of_lifetimes(snapshot)
    if sizes is None:
        sizes = round_sizes(
            snapshot.size, AllocatorSettings.of_snapshot_or_default(snapshot.settings)
        )
    sized = np.asarray(sizes, dtype=np.int64)
    end = np.where(done >= 0, done, follower)
    address = snapshot.address[first]
    found = _Final(snapshot, address, end < 0)
    num_bytes = sized[first].astype(np.int64)
    num_bytes[found.lifetime] = snapshot.block_bytes[found.row]
    waited = (request >= 0) & kept[request]
    there = found.before
    never = np.full(len(there), -1, dtype=np.int64)
    stream_before = snapshot.segment_stream[snapshot.block_segment[there]]
    waits = np.where(waited, _at(event, request), -1)
    stack = np.where(alloc >= 0, snapshot.trace_stack[first], -1)
    return Lifetimes(
        kept=kept,
        start=np.append(never, _at(event, alloc)),
        end=np.append(never, _at(event, end)),
        pending=np.append(_pending_before(snapshot, there), waits),
        num_bytes=np.append(snapshot.block_bytes[there], num_bytes),
        requested=np.append(snapshot.block_requested[there], snapshot.size[first]),
        address=np.append(snapshot.block_address[there], address),
        stream=np.append(stream_before, snapshot.stream[first]),
        stack=np.append(snapshot.block_stack[there], stack),
    )


def kept_events(snapshot: Snapshot) -> npt.NDArray[np.bool_]:
    """Return which entries are events of a record; a request completed by the next entry is not."""
    kept = np.ones(snapshot.num_events, dtype=np.bool_)
    follows = (snapshot.action[1:] == FREE_COMPLETED) & (
        snapshot.address[1:] == snapshot.address[:-1]
    )
    kept[:-1] = ~((snapshot.action[:-1] == FREE_REQUESTED) & follows)
    return kept


def _entries_of_lifetimes(snapshot: Snapshot) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return the entries of each lifetime, in order of time; -1 if there is none.

    These are its first entry, its ``alloc``, request and completion, and the ``alloc`` that reused
    its address although the trace has no entry that ended it.
    """
    entries = np.flatnonzero(snapshot.action <= FREE_COMPLETED)
    order = entries[np.argsort(snapshot.address[entries], kind="stable")]
    address, action = snapshot.address[order], snapshot.action[order]
    if not len(order):
        none = np.zeros(0, dtype=np.int64)
        return none, none, none, none, none
    begins = action == ALLOC
    begins[0] = True
    begins[1:] |= (address[1:] != address[:-1]) | (action[:-1] == FREE_COMPLETED)
    lifetime = np.cumsum(begins) - 1
    first = order[begins]
    kinds = [np.full(len(first), -1, dtype=np.int64) for _ in range(3)]
    for kind, wanted in zip(kinds, (ALLOC, FREE_REQUESTED, FREE_COMPLETED), strict=True):
        chosen = action == wanted
        kind[lifetime[chosen]] = order[chosen]
    follower = np.full(len(first), -1, dtype=np.int64)
    same = address[begins][1:] == address[begins][:-1]
    follower[:-1][same] = first[1:][same]
    by_time = np.argsort(first, kind="stable")
    alloc, request, done = (kind[by_time] for kind in kinds)
    return first[by_time], alloc, request, done, follower[by_time]


class _Final:
    """The lifetimes that are the blocks which the segments hold at the end."""

    def __init__(self, snapshot: Snapshot, address: Ints, lasts: npt.NDArray[np.bool_]) -> None:
        there = np.flatnonzero(snapshot.block_state != FREE)
        lifetimes = np.flatnonzero(lasts)
        lifetimes = lifetimes[np.argsort(address[lifetimes], kind="stable")]
        at = np.searchsorted(address[lifetimes], snapshot.block_address[there])
        at = np.minimum(at, max(len(lifetimes) - 1, 0))
        known = (
            address[lifetimes[at]] == snapshot.block_address[there]
            if len(lifetimes)
            else np.zeros(len(there), dtype=np.bool_)
        )
        self.lifetime = lifetimes[at[known]] if len(lifetimes) else lifetimes
        self.row = there[known]
        self.before = there[~known]
        """Blocks that the trace never mentions."""


def _at(event: Ints, entry: Ints) -> Ints:
    return np.where(entry >= 0, event[entry], -1) if len(event) else entry


def _pending_before(snapshot: Snapshot, blocks: Ints) -> Ints:
    """Return 0 for blocks whose free was requested before the trace: pending from its start."""
    waits = (snapshot.block_state[blocks] == PENDING) & (snapshot.num_events > 0)
    return np.where(waits, 0, -1)
