"""The same program under other settings of the allocator, on another GPU, with another batch.

A recording says what was requested, including refused requests, and when it was freed. The
simulator does the rest, in well under a second for a training step. Under the recorded settings it
starts from the segments that were there before; under others, blocks that were there are requested
first.

An answer is based on *certified rules* if the settings are the recorded ones, the recording's
replay was exact to the last address, this method reproduces the recorded peak to the byte, and the
answer involves no case that the recording did not have. Any other answer follows the allocator's
source, and no trace has confirmed it; every answer says which of the two it is. With another batch,
the sizes themselves are an assumption (`workbench.memory.simulation.batch_scaling`), and an answer
is an interval.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Literal, SupportsIndex

from workbench.allocator.memory_limit import gpu_given
from workbench.allocator.replay.program import Outcome
from workbench.allocator.simulator.gpus import GPUS, Gpu
from workbench.allocator.simulator.settings import AllocatorSettings, SettingsError
from workbench.memory.reading.text import format_bytes, format_span
from workbench.memory.simulation.rerun import Rerun
from workbench.records import MemoryRecord

GOT_PAST = "got past the refused request; what follows it is not known"
"""For a recording that ends with a refused request, if that is served."""

Basis = Literal["recorded", "certified", "uncertified"]
"""The basis of a number: a measurement, rules that reproduce the recording, or rules that no trace
has confirmed."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WhatIf:
    """The result of a recorded program under other conditions: simulated, not measured."""

    settings: AllocatorSettings
    card: Gpu | None
    """None: a GPU without a limit."""
    batch: int
    """Samples in the batch; -1 if the recording does not know its own."""
    outcome: Outcome
    """Under the assumption that needs most; under one that does not fit, if there is one."""
    peak_interval: tuple[int, int]
    """Peak of the reserved bytes, at least and at most, over all assumptions about what is not
    known."""
    is_certified: bool
    """Whether the rules it is based on reproduced the recording itself."""

    num_refused: int
    """Requests that were refused when it was recorded, and are among those made here."""
    is_cut_off: bool
    """Whether the recording ends with a refused request: what follows it is not known, and every
    number is a lower bound."""

    @property
    def fits(self) -> bool:
        """Whether it is known to run to its end."""
        return self.outcome.fits and not self.is_cut_off

    def __str__(self) -> str:
        where = ""
        if self.card is not None:
            where = f" on {self.card.name} ({format_bytes(self.card.usable_bytes)} usable)"
        basis = "certified rules" if self.is_certified else "rules no trace has confirmed"
        text = f"{self.settings}{where}: peak reserved memory {format_span(*self.peak_interval)}"
        if self.outcome.failure is not None:
            text = f"{self.settings}{where}: out of memory {_moment(self.outcome)}{self.missing()}"
        elif self.is_cut_off:
            text += f" at least, {GOT_PAST}"
        elif self.num_refused:
            text += f", {self.num_refused:,} refused requests included"
        retries = self.outcome.num_retries
        if retries:
            text += f", everything unused released {_times(retries)}"
        return f"{text} (predicted, {basis})"

    def __repr__(self) -> str:
        return f"<WhatIf {self}>"

    def missing(self) -> str:
        """Return what was requested, and what was in the way."""
        found = self.outcome.shortage
        if found is None:
            return ""
        requested, largest = format_bytes(found.requested), format_bytes(found.largest_free)
        text = f" ({requested} requested, the largest free block has {largest}"
        if found.obstacles:
            count = len(self.outcome.in_the_way)
            held = format_bytes(found.obstacles[0].in_use)
            goes = "1 block goes" if count == 1 else f"{count:,} blocks go"
            text += f"; it fits once {goes}, {held}"
        return f"{text})"


def what_if(
    record: MemoryRecord,
    settings: AllocatorSettings | str = "",
    gpu: Gpu | str | SupportsIndex | None = None,
    *,
    batch: int | None = None,
    empty_before: str = "",
) -> WhatIf:
    """Run the program of ``record`` under ``settings`` on ``gpu``.

    Args:
        record: a recording or a snapshot.
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``; the defaults if empty.
        gpu: the name of one of `GPUS`, or what a GPU reports: an amount (``"8 GiB"``) or bytes;
            None: no limit.
        batch: samples in the batch; None: as recorded.
        empty_before: name of a phase before which ``torch.cuda.empty_cache()`` is called.

    Raises:
        SettingsError: the allocator does not accept the settings, or they have no effect here.
        ValueError: no GPU has that name, or so little memory; the recording does not know its
            batch, or has no such phase.
    """
    return answer(Rerun(record, batch_of(batch), empty_before), parsed(settings), gpu_of(gpu))


def smallest_gpu(
    record: MemoryRecord, settings: AllocatorSettings | str = "", *, batch: int | None = None
) -> WhatIf | None:
    """Return the answer for the smallest of `GPUS` that the program fits on, or None.

    If the recording ends with a refused request (``is_cut_off``), it is the smallest on which that
    request is served: no smaller one is enough.

    Raises:
        SettingsError: the allocator does not accept the settings.
        ValueError: the recording does not know its batch.
    """
    return smallest(Rerun(record, batch_of(batch)), parsed(settings))


def answer(rerun: Rerun, settings: AllocatorSettings, gpu: Gpu | None) -> WhatIf:
    """Return the result of a program under ``settings`` on ``gpu``.

    Raises:
        SettingsError: the settings have no effect here.
    """
    if settings.garbage_collection_threshold and gpu is None:
        raise SettingsError(
            "garbage_collection_threshold acts only on a GPU with a limit: name one"
        )
    outcomes, is_restored = rerun.outcomes(settings, gpu)
    peaks = [outcome.peak_reserved for outcome in outcomes]
    worst = max(outcomes, key=lambda outcome: (not outcome.fits, outcome.peak_reserved))
    return WhatIf(
        settings=settings,
        card=gpu,
        batch=rerun.batch,
        outcome=worst,
        peak_interval=(min(peaks), max(peaks)),
        is_certified=is_restored and rerun.covers(worst),
        num_refused=len(rerun.record.oom_event),
        is_cut_off=rerun.is_cut_off,
    )


def smallest(rerun: Rerun, settings: AllocatorSettings) -> WhatIf | None:
    """Return the answer for the smallest of `GPUS` that it fits on, as far as it is known."""
    for gpu in GPUS:
        if gpu.usable_bytes >= rerun.at_least:
            found = answer(rerun, settings, gpu)
            if found.outcome.fits:
                return found
    return None


def without_limit(rerun: Rerun, settings: AllocatorSettings) -> WhatIf:
    """Return what a program takes on a GPU that is large enough, without garbage collection."""
    return answer(rerun, replace(settings, garbage_collection_threshold=0.0), None)


def sentence(found: WhatIf, peak: tuple[int, int], basis: Basis) -> str:
    """Return an answer in words: what it takes, whether it fits, and what that is based on.

    Args:
        found: the answer.
        peak: bytes reserved at least and at most, if the GPU were large enough.
        basis: what the numbers are based on.
    """
    low, high = peak
    takes = format_span(low, high)
    gpu, outcome = found.card, found.outcome
    text = f"Recorded peak {takes}" if basis == "recorded" else f"Predicted peak {takes}"
    if found.is_cut_off and outcome.fits:
        text += f" at least{'' if gpu is None else f' on {gpu.name}'}, {GOT_PAST}"
    elif gpu is not None and outcome.fits:
        left = format_bytes(max(0, gpu.usable_bytes - high))
        text += f", fits on {gpu.name}, {left} left"
        if outcome.num_retries:
            text += f" after everything unused was released {_times(outcome.num_retries)}"
    elif gpu is not None:
        text += f", out of memory on {gpu.name} {_moment(outcome)}{found.missing()}"
    if basis == "recorded" and outcome.fits:
        return f"{text}."
    return (
        f"{text} ({'certified rules' if found.is_certified else 'rules no trace has confirmed'})."
    )


def _moment(outcome: Outcome) -> str:
    """Return when a request was refused; what was there before recording is requested first."""
    event = outcome.failed_event
    return f"at event {event:,}" if event >= 0 else "before the first event"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def parsed(settings: AllocatorSettings | str) -> AllocatorSettings:
    """Parse settings.

    Raises:
        SettingsError: the allocator does not accept them.
    """
    return AllocatorSettings.parse(settings) if isinstance(settings, str) else settings


def gpu_of(gpu: Gpu | str | SupportsIndex | None) -> Gpu | None:
    """Return the GPU given by a name, an amount (``"8 GiB"``) or bytes.

    Raises:
        TypeError: it is none of these.
        ValueError: no GPU has that name, or so much or so little memory.
    """
    return gpu if gpu is None or isinstance(gpu, Gpu) else gpu_given(gpu)


def batch_of(batch: SupportsIndex | None) -> int | None:
    """Return the number of samples that is requested.

    Raises:
        TypeError: it is not a whole number.
        ValueError: a batch of that size has no samples.
    """
    if batch is None:
        return None
    if isinstance(batch, bool) or not hasattr(batch, "__index__"):
        raise TypeError(f"batch is a whole number of samples, got {type(batch).__name__}")
    samples = operator.index(batch)
    if samples < 1:
        raise ValueError(f"a batch of {samples:,} has no samples; it has at least 1")
    return samples
