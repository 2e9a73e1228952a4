"""A snapshot with what its replay found: the true sizes of blocks, and how far it can be trusted.

A trace says what was asked for; what a freed block occupied is known only to somebody who does what
the allocator did (`workbench.allocator.replay`). How far that came out as recorded is in the
certificate. A trace that cannot be replayed is shown all the same, with requests rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator import certificate as allocator
from workbench.allocator.replay import replay
from workbench.allocator.snapshot import Snapshot
from workbench.memory.from_snapshot import record_of_snapshot
from workbench.records import Certificate, MemoryRecord

MOST_EVENTS = 300_000
"""Events that are replayed while a file opens: a second or two."""


class Replayed(NamedTuple):
    """What there is to say; nothing known and a sentence where there was no replay."""

    sizes: npt.NDArray[np.int64] | None = None
    """See `workbench.memory.lives.lives_of`."""
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()


def replayed(snapshot: Snapshot) -> Replayed:
    """Replay the trace of a snapshot; never raises, as a trace may say anything."""
    if not snapshot.num_events:
        return Replayed()
    if snapshot.num_events > MOST_EVENTS:
        return Replayed(notes=(f"Not replayed: its trace has more than {MOST_EVENTS:,} events.",))
    try:
        found = replay(snapshot)
    except Exception as error:  # noqa: BLE001 - an unvouched trace must not keep its record away
        why = " ".join(str(error).split())[:300] or type(error).__name__
        return Replayed(notes=(f"Not replayed: {why}.",))
    return Replayed(found.sizes, as_record(found.certificate))


def replayed_record(snapshot: Snapshot, *, title: str, notes: Sequence[str] = ()) -> MemoryRecord:
    """The record of a snapshot, with a certificate where its trace can be replayed.

    Args:
        snapshot: as `workbench.allocator.decode` reads it.
        title: what it is called on screen.
        notes: further sentences for the reader.
    """
    found = replayed(snapshot)
    return record_of_snapshot(
        snapshot,
        title=title,
        sizes=found.sizes,
        certificate=found.certificate,
        notes=(*notes, *found.notes),
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
        first_difference=found.first_difference,
        covers=found.covers,
    )
