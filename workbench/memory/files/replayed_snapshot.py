"""A snapshot with the result of its replay: the true sizes of blocks, and how exact the replay is.

A trace says what was requested; what a freed block occupied is known only by doing what the
allocator did (`workbench.allocator.replay.replay`). How far the replay matches the recording is in
the certificate. A trace that cannot be replayed is shown too, with requests rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator.replay import certificate as allocator
from workbench.allocator.replay.replay import replay
from workbench.allocator.shortage import Shortage
from workbench.allocator.snapshot.snapshot import Snapshot
from workbench.memory.files.from_snapshot import record_of_snapshot
from workbench.records import Certificate, MemoryRecord, RecordError
from workbench.records.check import DamagedError, check_record

MOST_EVENTS = 600_000
"""The largest number of events of a trace that is replayed by default. To read that many from a
file takes 1.7 s of CPU time, the replay 0.7 s and the record 0.2 s."""
_EVENTS_PER_S = 800_000


class Replayed(NamedTuple):
    """The result of a replay; if there was no replay, nothing is known and a note says why."""

    sizes: npt.NDArray[np.int64] | None = None
    """See `workbench.memory.reading.lifetimes.lifetimes_of`."""
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()
    shortages: Mapping[int, Shortage] = MappingProxyType({})
    """See `workbench.allocator.replay.replay.Replay`."""


def replayed(snapshot: Snapshot, *, certify: bool = False) -> Replayed:
    """Replay the trace of a snapshot; never raises, because a trace may contain anything.

    Args:
        snapshot: one device of a snapshot.
        certify: replay it whatever its length, not only up to `MOST_EVENTS`.
    """
    if not snapshot.num_events:
        return Replayed()
    if snapshot.num_events > MOST_EVENTS and not certify:
        return Replayed(notes=(_too_long(snapshot.num_events),))
    try:
        found = replay(snapshot)
    except Exception as error:  # noqa: BLE001 - an unverified trace must not prevent its record
        why = " ".join(str(error).split())[:300] or type(error).__name__
        return Replayed(notes=(f"Not replayed: {why}.",))
    return Replayed(found.sizes, as_record(found.certificate), shortages=found.shortages)


def replayed_record(
    snapshot: Snapshot, *, title: str, notes: Sequence[str] = (), certify: bool = False
) -> MemoryRecord:
    """Return the record of a snapshot, with a certificate if its trace can be replayed.

    Args:
        snapshot: a snapshot from `workbench.allocator.snapshot.decode`.
        title: the title shown on screen.
        notes: further sentences for the reader.
        certify: see `replayed`.

    Raises:
        RecordError: it contains numbers that no allocator writes, and no reader of a record
            accepts.
    """
    found = replayed(snapshot, certify=certify)
    record = record_of_snapshot(
        snapshot,
        title=title,
        sizes=found.sizes,
        certificate=found.certificate,
        shortages=found.shortages,
        notes=(*notes, *found.notes),
    )
    try:
        check_record(record, record.tables)
    except DamagedError as error:
        raise RecordError(f"{title} holds what no allocator writes: {error}") from None
    return record


def _too_long(num_events: int) -> str:
    return (
        f"Not replayed: its trace has {num_events:,} events, and no more than {MOST_EVENTS:,} are "
        "replayed by default. wb.memory(path, certify=True) replays a snapshot file of any length, "
        f"this one in about {num_events / _EVENTS_PER_S:.0f} s more."
    )


def as_record(found: allocator.Certificate) -> Certificate:
    """Convert a replay's certificate to the one that a record holds."""
    return Certificate(
        addresses=found.addresses.alike,
        num_addresses=found.addresses.total,
        segments=found.segments.alike,
        num_segments=found.segments.total,
        releases=found.releases.alike,
        num_releases=found.releases.total,
        blocks=found.blocks.alike,
        num_blocks=found.blocks.total,
        num_inferred=found.num_inferred,
        first_difference=found.first_difference,
        settings=found.settings.words,
        cases=found.cases,
    )
