"""Remedies of a step that did not fit: each tried; those that fit first, the cheapest on top.

Trials take the time of steps, and the user waits: after `BUDGET_S` the remaining remedies are not
tried, and the record says so. A batch that fits is searched for first, by halving, because there
nearly always is one; if there is time left, the search then approaches the largest such batch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workbench.experiment.failure.changes import Change
from workbench.experiment.failure.out_of_memory import Remedied, Trials, conditions
from workbench.experiment.failure.release import collecting_only_new
from workbench.memory.simulated_gpu.remedy_candidates import KINDS, Candidate, candidates
from workbench.memory.simulated_gpu.remedy_trial import NUM_STEPS, Trial, tried
from workbench.records import MemoryRecord, Remedy

if TYPE_CHECKING:
    from workbench.experiment.training import Training

BUDGET_S = 20.0
"""Seconds for all trials together."""
COMPILED_BUDGET_S = 60.0
"""Used if blocks are compiled, and would be compiled again for a batch of another size."""
_PARTS = 4
"""The largest batch is found to within this part of the largest power of two in it."""


@dataclass(frozen=True)
class _Tried:
    candidate: Candidate
    trial: Trial
    basis: str


@dataclass
class Search:
    """Trials for one failure, and their results."""

    training: Training
    record: MemoryRecord
    trials: Trials
    found: list[_Tried] = field(default_factory=list[_Tried])
    left_out: list[str] = field(default_factory=list[str])
    """What was not tried, and why."""

    def __post_init__(self) -> None:
        compiled = self.training.modeset.compiled
        self._until = time.monotonic() + (COMPILED_BUDGET_S if compiled else BUDGET_S)
        self._now = conditions(self.training)

    def run(self) -> None:
        """Try everything that there is time for."""
        with collecting_only_new():
            self._run()

    def _run(self) -> None:
        size = self._whole_batch()
        fits = None if size is None else self._halved(size)
        for candidate in candidates(self.training, self.record):
            self._examine(candidate)
        if not any(one.trial.fits and one.candidate.kind != "batch" for one in self.found):
            self._try_both()
        if size is not None and fits is not None:
            self._approach_largest(fits, min(size, 2 * fits))

    def remedied(self) -> Remedied:
        """Return the record with what was found."""
        ranked = sorted(_without_worse_batches(self.found), key=_cost)
        notes = list(self.record.notes)
        if self.left_out:
            notes.append(f"Not tried: {'; '.join(self.left_out)}.")
        record = replace(
            self.record,
            notes=tuple(notes),
            remedies=tuple(self._remedy(one) for one in ranked),
        )
        return Remedied(record, tuple(one.candidate.change for one in ranked))

    # -- trials -----------------------------------------------------------------------------

    def _examine(self, candidate: Candidate) -> None:
        if candidate.is_hopeless:
            basis = "The failed step replayed by a simulated allocator with it: refused as well."
            self.found.append(_Tried(candidate, Trial(fits=False), basis))
        elif self.training.modeset.compiled and candidate.change.modes is not None:
            self.left_out.append(f"{candidate.name} (blocks would be compiled again)")
        else:
            self._try(candidate)

    def _try_both(self) -> None:
        """Try bf16 and checkpointing together, if neither is enough alone."""
        kinds = {one.candidate.kind: one.candidate for one in self.found}
        rounded, again = kinds.get("precision"), kinds.get("checkpoint")
        if rounded is None or again is None or again.change.modes is None:
            return
        path = again.change.modes
        both = self.training.modeset.parse(path, self.training.device)
        self._examine(
            Candidate(
                kind="checkpoint",
                name=f"{again.name} and bf16",
                change=Change(modes=str(both.with_value("precision", "bf16"))),
                cost=f"{again.cost.removesuffix(', the same numbers.')}, and rounding to 8 bits.",
            )
        )

    def _try(self, candidate: Candidate) -> Trial | None:
        """Return the outcome; None if time is up, or something else was chosen meanwhile."""
        self.trials.between()
        if self._is_over():
            self.left_out.append(candidate.name)
            return None
        step = self.training.step_count + 1
        self.trials.say(f"step {step:,}: out of memory; trying what would help: {candidate.name}")
        trial = tried(self.training, candidate.change, self._is_over)
        if trial is None:
            self.left_out.append(candidate.name)
        else:
            self.found.append(_Tried(candidate, trial, _basis(trial)))
        return trial

    def _is_over(self) -> bool:
        return (
            time.monotonic() > self._until or self.trials.cancelled() or self._now != self._state()
        )

    def _state(self) -> tuple[object, ...]:
        """Return what trials start from: if it changes, they no longer apply to the run."""
        return self._now if self.training.rehearsing else conditions(self.training)

    # -- batches ----------------------------------------------------------------------------

    def _whole_batch(self) -> int | None:
        """Return the size of the batches for which a smaller size is searched."""
        training = self.training
        source = training.val if training.validating else training.cursor.source
        if source is None or not source.repeats or not source.batch_size:
            self.left_out.append("a smaller batch (batches come ready-made)")
            return None
        return source.batch_size

    def _halved(self, size: int) -> int | None:
        """Halve repeatedly; return the first size that fits, None if none does or time is up."""
        size //= 2
        while size:
            trial = self._try(self._of_size(size))
            if trial is None or trial.fits:
                return None if trial is None else size
            size //= 2
        return None

    def _approach_largest(self, fits: int, fails: int) -> None:
        """Search for the largest size that fits between the two."""
        grain = max(1, (1 << (fits.bit_length() - 1)) // _PARTS)
        while fails - fits > grain:
            middle = fits + max(1, (fails - fits) // grain // 2) * grain
            trial = self._try(self._of_size(middle))
            if trial is None:
                return
            if trial.fits:
                fits = middle
            else:
                fails = middle

    def _of_size(self, size: int) -> Candidate:
        training = self.training
        if training.validating:
            cost = "Time: more and smaller batches of validation, the same figures."
            change = Change(val_batch_size=size)
            return Candidate(
                kind="batch", name=f"validation batch {size:,}", change=change, cost=cost
            )
        before = training.cursor.source.batch_size or size
        times = f"{before / size:,.1f}".removesuffix(".0")
        samples = "1 sample" if size == 1 else f"{size:,} samples"
        cost = (
            f"Another training: gradients of {samples} instead of {before:,}, {times} times "
            "as many steps an epoch; the learning rate stays."
        )
        return Candidate(
            kind="batch", name=f"batch {size:,}", change=Change(batch_size=size), cost=cost
        )

    # -- words ------------------------------------------------------------------------------

    def _remedy(self, one: _Tried) -> Remedy:
        candidate, trial = one.candidate, one.trial
        return Remedy(
            name=candidate.name,
            code=candidate.change.code,
            peak_bytes=trial.peak_bytes,
            fits=trial.fits,
            cost=candidate.cost + self._slower(one),
            basis=one.basis,
        )

    def _slower(self, one: _Tried) -> str:
        """Describe the time of a sample relative to the largest batch that fits without a change.

        The whole batch never ran without a change, and earlier steps ran before memory was short,
        not now.
        """
        batches = [other for other in self.found if other.candidate.kind == "batch"]
        plain = max((other for other in batches if other.trial.fits), key=_size, default=None)
        whole = self.training.cursor.source.batch_size
        timed = one.trial.fits and one.candidate.kind in ("foreach", "precision", "checkpoint")
        if not timed or plain is None or not whole or self.training.validating:
            return ""
        ratio = one.trial.seconds / whole / (plain.trial.seconds / _size(plain))
        return f" A sample took {ratio:.2f} times as long as in {plain.candidate.name}."


def _basis(trial: Trial) -> str:
    if trial.why:
        return f"The failed step run again with it, which ended with {trial.why}."
    if not trial.fits:
        return "The failed step run again with it on the same GPU: refused as well."
    return f"{NUM_STEPS} steps from the failed one on, run with it on the same GPU, and undone."


def _without_worse_batches(found: list[_Tried]) -> list[_Tried]:
    """Keep the largest batch that fits; if none does, the smallest that was tried."""
    others = [one for one in found if one.candidate.kind != "batch"]
    batches = [one for one in found if one.candidate.kind == "batch"]
    if not batches:
        return others
    fitting = [one for one in batches if one.trial.fits]
    best = max(fitting, key=_size) if fitting else min(batches, key=_size)
    return [*others, best]


def _size(one: _Tried) -> int:
    change = one.candidate.change
    return change.batch_size or change.val_batch_size or 0


def _cost(one: _Tried) -> tuple[bool, int]:
    """Sort what fits first, then by cost; within a kind the order of the trials is kept."""
    return not one.trial.fits, KINDS.index(one.candidate.kind)
