"""The input of a simulator from a memory record: a program, what was there before, the settings."""

from __future__ import annotations

import numpy as np

from workbench.allocator.replay.program import Lifetimes
from workbench.allocator.replay.start_state import StartBlock, StartSegment, StartState
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import I32
from workbench.records import EVENT_KINDS, POOLS, MemoryRecord

_RELEASED = [EVENT_KINDS.index(name) for name in ("segment_free", "segment_unmap")]
_REFUSED = EVENT_KINDS.index("oom")
_FOLLOWS_A_RETRY = [EVENT_KINDS.index(name) for name in ("segment_alloc", "segment_map", "oom")]

CUT_OFF = (
    "The recording ends with a refused request: what would have been asked for after it is not "
    "known, so this is the least that it takes."
)
"""Included in the reasons of a prediction from such a recording."""


def is_cut_off(record: MemoryRecord) -> bool:
    """Return whether a record ends with a refused request, or was predicted from one that does.

    What it requests is then known only up to that point: if it does not fit that is certain, if it
    fits that is not.
    """
    kinds = record.event_kind
    return (len(kinds) > 0 and int(kinds[-1]) == _REFUSED) or CUT_OFF in record.reasons


def recorded_settings(record: MemoryRecord) -> AllocatorSettings:
    """Return the settings it was recorded or simulated under; the defaults if not known."""
    words = record.settings
    if not words and not record.is_predicted and record.certificate is not None:
        words = record.certificate.settings  # a record saved when only certificates stored them
    return AllocatorSettings.parse(words, tolerant=True)


def lifetimes_of_record(record: MemoryRecord, *, with_refused: bool) -> Lifetimes:
    """Return the blocks of ``record``.

    Args:
        record: a recording or a snapshot.
        with_refused: whether refused requests are appended, as blocks that are freed at once.
    """
    private = np.zeros(len(record.block_start), dtype=np.int32)
    known = record.block_segment >= 0
    private[known] = record.segment_private[record.block_segment[known]]
    refused = len(record.oom_event) if with_refused else 0
    none, never = np.zeros(refused, dtype=np.int32), np.full(refused, -1, dtype=np.int32)
    default_stream = np.zeros(refused, dtype=np.int64)
    return Lifetimes(
        start=np.append(record.block_start, record.oom_event[:refused]),
        end=np.append(record.block_end, record.oom_event[:refused]),
        pending=np.append(record.block_pending, never),
        requested=np.append(record.block_requested, record.oom_bytes[:refused]),
        stream=np.append(record.block_stream, default_stream),
        private=np.append(private, none),
        emptied=_emptied(record),
    )


def _emptied(record: MemoryRecord) -> I32:
    """Return the events at which the program emptied the cache.

    A retry writes the same, and then allocates a new segment: if one follows, it is assumed to be a
    retry.
    """
    back = np.isin(record.event_kind, _RELEASED)
    first = np.flatnonzero(back & ~np.append(False, back[:-1]))
    last = np.flatnonzero(back & ~np.append(back[1:], False))
    follows = np.append(record.event_kind, 0)[last + 1]
    by_hand = ~np.isin(follows, _FOLLOWS_A_RETRY) | (last + 1 == len(back))
    return first[by_hand].astype(np.int32)


def start_of_record(record: MemoryRecord) -> tuple[StartState, dict[int, int]]:
    """Return the state before the first event, and row of a block -> its address."""
    segments = _segments_before(record)
    there: dict[int, int] = {}
    rows = np.flatnonzero((record.block_start < 0) & (record.block_segment >= 0))
    for row in rows[np.argsort(record.block_address[rows], kind="stable")].tolist():
        segment = segments.get(int(record.block_segment[row]))
        if segment is not None:
            address = int(record.block_address[row])
            requested, size = int(record.block_requested[row]), int(record.block_bytes[row])
            segment.blocks.append(StartBlock(address, requested, size))
            there[row] = address
    return StartState(list({id(segment): segment for segment in segments.values()}.values())), there


def _segments_before(record: MemoryRecord) -> dict[int, StartSegment]:
    """Return row -> the segment, in order of address.

    Adjacent mapped pages are one segment, because a block may extend across them.
    """
    rows = np.flatnonzero(record.segment_start < 0)
    found: dict[int, StartSegment] = {}
    last: StartSegment | None = None
    for row in rows[np.argsort(record.segment_address[rows], kind="stable")].tolist():
        segment = StartSegment(
            int(record.segment_address[row]),
            int(record.segment_bytes[row]),
            int(record.segment_stream[row]),
            int(record.segment_pool[row]) == POOLS.index("large"),
            int(record.segment_private[row]),
            is_expandable=bool(record.segment_expandable[row]),
        )
        if last is not None and _continues(last, segment):
            last.size += segment.size
        else:
            last = segment
        found[row] = last
    return found


def _continues(last: StartSegment, segment: StartSegment) -> bool:
    """Return whether ``segment`` is the next pages of ``last``."""
    return (
        last.is_expandable
        and segment.is_expandable
        and last.address + last.size == segment.address
        and (last.stream, last.is_large, last.private)
        == (segment.stream, segment.is_large, segment.private)
    )
