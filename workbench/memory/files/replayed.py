"""A snapshot with what its replay found: the true sizes of blocks, and how far it can be trusted.

A trace says what was asked for; what a freed block occupied is known only to somebody who does what
the allocator did (`workbench.allocator.replay.replay`). How far that came out as recorded is in the
certificate. A trace that cannot be replayed is shown all the same, with requests rounded up.
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
"""Events of a trace that is replayed unasked. To read so many from a file takes 1.7 s of processor
time, the replay 0.7 s and the record 0.2 s."""
_EVENTS_PER_S = 800_000


class Replayed(NamedTuple):
    """What there is to say; nothing known and a sentence where there was no replay."""

    sizes: npt.NDArray[np.int64] | None = None
    """See `workbench.memory.reading.lives.lives_of`."""
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()
    shortages: Mapping[int, Shortage] = MappingProxyType({})
    """See `workbench.allocator.replay.replay.Replay`."""


def replayed(snapshot: Snapshot, *, certify: bool = False) -> Replayed:
    """Replay the trace of a snapshot; never raises, as a trace may say anything.

    Args:
        snapshot: one device of a snapshot.
        certify: replay it however long it is, not only up to `MOST_EVENTS`.
    """
    if not snapshot.num_events:
        return Replayed()
    if snapshot.num_events > MOST_EVENTS and not certify:
        return Replayed(notes=(_too_long(snapshot.num_events),))
    try:
        found = replay(snapshot)
    except Exception as error:  # noqa: BLE001 - an unvouched trace must not keep its record away
        why = " ".join(str(error).split())[:300] or type(error).__name__
        return Replayed(notes=(f"Not replayed: {why}.",))
    return Replayed(found.sizes, as_record(found.certificate), shortages=found.shortages)


def replayed_record(
    snapshot: Snapshot, *, title: str, notes: Sequence[str] = (), certify: bool = False
) -> MemoryRecord:
    """The record of a snapshot, with a certificate where its trace can be replayed.

    Args:
        snapshot: as `workbench.allocator.snapshot.decode` reads it.
        title: what it is called on screen.
        notes: further sentences for the reader.
        certify: see `replayed`.

    Raises:
        RecordError: it holds numbers that no allocator writes, and no reader of a record takes.
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
        "replayed unasked. wb.memory(path, certify=True) replays a snapshot file of any length, "
        f"this one in about {num_events / _EVENTS_PER_S:.0f} s more."
    )


def as_record(found: allocator.Certificate) -> Certificate:
    """A replay's certificate as it is kept in a record."""
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
