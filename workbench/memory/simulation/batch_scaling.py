"""How the sizes of a recorded step depend on its batch.

Activations of twice as many samples are twice as large, scores of every sample against every other
four times; parameters and what the optimizer keeps do not grow. A recorder that knows the batch
records for each block how it *grows* (``block_growth``). For some this cannot be determined, so the
program with another batch is run under every assumption about these: they all grow in
proportion, or none does, and temporaries, which follow rules of their own, are combined with the
others both ways. A *steep* block was seen to grow faster than the batch: it is tried in proportion,
with the batch's square and with its cube. The results of all assumptions make the interval that a
prediction is given with.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt

from workbench.allocator.replay.program import Lifetimes
from workbench.records import CATEGORIES, GROWTHS, MemoryRecord

_UNKNOWN, _STEEP = GROWTHS.index("unknown"), GROWTHS.index("steep")
_KNOWN = {GROWTHS.index("batch"): 1, GROWTHS.index("square"): 2}
"""The power of the batch to which a block's size is proportional; for the others it is 0."""
_TEMPORARY = CATEGORIES.index("temporaries")
_MOST_BYTES = 2**53
"""The largest size of one block; larger numbers are not a question about a GPU."""


def assumptions(record: MemoryRecord, lifetimes: Lifetimes, batch: int) -> list[Lifetimes]:
    """Return ``lifetimes`` with ``batch`` samples, under each assumption about what is not known.

    Args:
        record: the record that ``lifetimes`` belong to.
        lifetimes: its blocks, followed by refused requests, about which nothing is known.
        batch: samples in the step's batch.

    Raises:
        ValueError: the recording does not know its batch, or ``batch`` is not a valid one.
    """
    if batch == record.batch_size:
        return [lifetimes]
    _check(record, batch)
    num_refused = len(lifetimes.start) - len(record.block_growth)
    growth = np.append(record.block_growth, np.full(num_refused, _UNKNOWN))
    is_temporary = np.append(record.block_category == _TEMPORARY, np.zeros(num_refused, dtype=bool))
    unknown = growth == _UNKNOWN
    open_ones = (
        (unknown & is_temporary, (0, 1)),
        (unknown & ~is_temporary, (0, 1)),
        (growth == _STEEP, (1, 2, 3)),
    )
    groups = [(group, powers) for group, powers in open_ones if group.any()]
    found: list[Lifetimes] = []
    for chosen in product(*(powers for _, powers in groups)):
        power = np.zeros(len(growth), dtype=np.int64)
        for kind, known in _KNOWN.items():
            power[growth == kind] = known
        for (group, _), tried in zip(groups, chosen, strict=True):
            power[group] = tried
        found.append(
            replace(lifetimes, requested=_scaled(lifetimes, power, batch, record.batch_size))
        )
    return found


def _check(record: MemoryRecord, batch: int) -> None:
    if record.batch_size < 1:
        raise ValueError(
            "the recording does not say how many samples its batch has: record a step of an "
            "Experiment to request another batch"
        )
    if batch < 1:
        raise ValueError(f"a batch of {batch:,} has no samples; it has at least 1")


def _scaled(
    lifetimes: Lifetimes, power: npt.NDArray[np.int64], batch: int, before: int
) -> npt.NDArray[np.int64]:
    """Return bytes in proportion to a power of the batch, rounded up; exact for whole samples."""
    found = lifetimes.requested.copy()
    for tried in range(1, int(power.max(initial=0)) + 1):
        rows = np.flatnonzero(power == tried)
        new, old = batch**tried, before**tried
        # Python's integers: a product of bytes and powers exceeds 64 bits before it is divided.
        sizes = [-(-size * new // old) for size in lifetimes.requested[rows].tolist()]
        if max(sizes, default=0) > _MOST_BYTES:
            raise ValueError(
                f"a batch of {batch:,} requests more than {_MOST_BYTES >> 50:,} PiB at once; it "
                f"was recorded with {before:,}"
            )
        found[rows] = sizes
    return found
