"""A recorded program run again by the simulator: from the same start, or from nothing.

Under the recorded settings, with the recorded batch, it begins with the segments and blocks that
were there before the first event, each at its address. Under any others it is not known where they
would have been, so they are requested first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from workbench.allocator.replay.program import Lifetimes, Outcome, run
from workbench.allocator.simulator.gpus import Gpu
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import I32
from workbench.memory.reading.recorded_program import (
    is_cut_off,
    lifetimes_of_record,
    recorded_settings,
)
from workbench.memory.reading.sums import between
from workbench.memory.simulation.allocator_setup import set_up_allocator
from workbench.memory.simulation.batch_scaling import assumptions
from workbench.records import MemoryRecord


class Rerun:
    """A recording that questions are about, with a batch and calls that empty the cache.

    Args:
        record: a recording or a snapshot.
        batch: samples in the batch; None: as recorded.
        empty_before: name of a phase before which the cache is emptied. This is then assumed for
            the steps before, too: what was cached when the recording began is released.

    Raises:
        ValueError: the recording does not know its batch, or has no such phase.
    """

    def __init__(
        self, record: MemoryRecord, batch: int | None = None, empty_before: str = ""
    ) -> None:
        self.record = record
        self.recorded = recorded_settings(record)
        self.is_cut_off = is_cut_off(record)
        self.batch = record.batch_size if batch is None else batch
        recorded_lifetimes = lifetimes_of_record(record, with_refused=True)
        self.assumptions = assumptions(record, recorded_lifetimes, self.batch)
        self.empties = empty_before != ""
        self.is_recorded = self.batch == record.batch_size and not self.empties
        if self.empties:
            emptied = _emptied(record, recorded_lifetimes, empty_before)
            self.assumptions = [
                replace(lifetimes, emptied=emptied) for lifetimes in self.assumptions
            ]

    @cached_property
    def at_least(self) -> int:
        """The bytes without which it cannot run: those requested and not yet freed."""
        return max(
            _most_live(lifetimes, len(self.record.event_kind)) for lifetimes in self.assumptions
        )

    @cached_property
    def is_reproduced(self) -> bool:
        """Whether the unchanged program has the recorded peak, and the certificate is exact."""
        certificate = self.record.certificate
        if certificate is None or not certificate.exact:
            return False
        recorded_lifetimes = lifetimes_of_record(self.record, with_refused=False)
        set_up = set_up_allocator(self.record, recorded_lifetimes, self.recorded, None)
        baseline = run(set_up.program, set_up.allocator, set_up.there)
        return baseline.peak_reserved == int(self.record.reserved().max())

    def outcomes(self, settings: AllocatorSettings, gpu: Gpu | None) -> tuple[list[Outcome], bool]:
        """Return each assumption's outcome, and whether all began with what was there before."""
        runs = [self._run(lifetimes, settings, gpu) for lifetimes in self.assumptions]
        return [outcome for outcome, _ in runs], all(restored for _, restored in runs)

    def covers(self, outcome: Outcome) -> bool:
        """Return whether the certificate covers the cases of a run from the same start."""
        certificate = self.record.certificate
        if certificate is None or not self.is_reproduced or self.batch != self.record.batch_size:
            return False
        cases = certificate.cases
        if (outcome.num_retries or not outcome.fits) and "out of memory" not in cases:
            return False
        return self.is_recorded or "segments given back" in cases

    def _run(
        self, lifetimes: Lifetimes, settings: AllocatorSettings, gpu: Gpu | None
    ) -> tuple[Outcome, bool]:
        """Return the outcome, and whether it began with what was there before."""
        set_up = set_up_allocator(self.record, lifetimes, settings, gpu)
        if self.empties:
            set_up.allocator.empty_cache()
        return run(set_up.program, set_up.allocator, set_up.there), set_up.is_restored


def _emptied(record: MemoryRecord, lifetimes: Lifetimes, phase: str) -> I32:
    """Return events before which the cache is emptied: the program's, and where a phase begins."""
    starts = [found.start for found in record.phases if found.name == phase]
    if not starts:
        known = ", ".join(sorted({found.name for found in record.phases})) or "none"
        raise ValueError(f"the recording has no phase {phase!r}; known are: {known}")
    return np.union1d(lifetimes.emptied, np.array(starts)).astype(np.int32)


def _most_live(lifetimes: Lifetimes, num_events: int) -> int:
    """Return the largest number of bytes requested and not freed at any event."""
    return int(between(lifetimes.start, lifetimes.end, lifetimes.requested, num_events + 2).max())
