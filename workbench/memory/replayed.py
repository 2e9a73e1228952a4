"""What a replay of a trace by the allocator's rules adds to its record.

A trace says what was asked for; what a freed block occupied is known only to somebody who does what
the allocator did (`workbench.allocator.replay`). How far that came out as recorded is in the
certificate. A trace that cannot be replayed is shown all the same, with requests rounded up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator.replay import replay
from workbench.allocator.snapshot import Snapshot
from workbench.records import Certificate

MOST_EVENTS = 500_000
"""Entries of a trace that are replayed as it is opened, about a second's worth."""


class Replayed(NamedTuple):
    """What there is to say; nothing known and a sentence where there was no replay."""

    sizes: npt.NDArray[np.int64] | None = None
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()


def replayed(snapshot: Snapshot) -> Replayed:
    """Replay the trace of a snapshot; never raises, as a trace may say anything."""
    if snapshot.num_events == 0:
        return Replayed()
    if snapshot.num_events > MOST_EVENTS:
        return _without(f"traces of up to {MOST_EVENTS:,} events are, this has more")
    try:
        found = replay(snapshot)
    except Exception as error:  # noqa: BLE001 - an unvouched trace must not keep its record away
        return _without(" ".join(f"{type(error).__name__}: {error}".split())[:300])
    made = found.certificate
    counts = {name: getattr(made, name) for name in ("addresses", "segments", "releases", "blocks")}
    certificate = Certificate(
        **{name: count.alike for name, count in counts.items()},
        **{f"num_{name}": count.total for name, count in counts.items()},
        first_difference=made.first_difference,
        covers=made.covers,
    )
    return Replayed(found.sizes, certificate)


def _without(why: str) -> Replayed:
    note = f"Not replayed, so sizes of freed blocks are requests rounded up to 512 B: {why}."
    return Replayed(notes=(note,))
