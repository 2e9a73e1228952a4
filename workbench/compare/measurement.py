"""The measuring part of a comparison: variants are started, measured in turns, and queried.

All variants of a model are alive together and only one of them computes at a time. First steps run
one after another (each may use all cores to compile). Then come the rounds, each with one block of
steps of every variant in random order, so that a machine that gets slower or faster does so for all
of them. Where the rounds leave a variant undecided, it and the baseline do more of them in fresh
processes, one pair after another until it is decided: the difference from one process to the next
cannot be determined from one process of each.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from workbench.compare.logits import compare_answers
from workbench.compare.variants import LOGITS, VariantError, VariantProcess
from workbench.compare.verdict import EQUAL_WITHIN, PROCESSES, Paired, paired, round_noise

if TYPE_CHECKING:
    from workbench.modes import ModeSet
    from workbench.parallel.exchange.files import Folder
    from workbench.records.compare import Verdict

_WARM_UP = 5
"""Steps after the first that are not timed: caches are filled and allocators settle."""
_BLOCK_S = 0.25
"""Approximate duration of a block in seconds."""
_MOST_STEPS = 50
_MOST_PROCESSES = 24
"""Maximum number of processes of a variant, one after another, while it is undecided."""
_AGAIN, _LEAST_AGAIN_S = 2.0, 180.0
"""Limit for measuring undecided variants again: a multiple of the time that everything took until
then, and at least this many seconds."""
_FEWEST_AGAIN = 5
"""Minimum number of rounds of a fresh process: with fewer, a single disturbed round would shift the
estimate of their centre."""


class Block(NamedTuple):
    """Some steps that were timed together."""

    round: int
    steps: int
    seconds: float
    """Seconds per step."""
    process: int
    """0 for the variant's first process, 1 for the one that was started after it, ..."""


@dataclass
class Measured:
    """Everything that is known about one variant."""

    model: str
    modes: str
    ranks: int = 1
    problem: str = ""
    first_s: float = float("nan")
    blocks: list[Block] = field(default_factory=list["Block"])
    losses: list[float] = field(default_factory=list[float])
    peak_bytes: float = float("nan")
    operations: int = -1
    graphs: int = -1
    breaks: int = -1
    samples: float = 0.0
    """Number of samples of all timed steps together."""
    is_random: bool = False
    """Whether a step draws random numbers."""
    delta_logit: float = float("nan")
    agreement: float = float("nan")
    parity_samples: int = 0
    parity_on: str = ""
    notes: list[str] = field(default_factory=list[str])


def against(variant: Measured, baseline: Measured, equal_within: float) -> Paired:
    """Compare the rounds in which both were measured, given what counts as equal."""
    rounds = _of_both(variant, baseline)
    return paired(
        [theirs.seconds for _, theirs in rounds],
        [ours.seconds for ours, _ in rounds],
        [ours.process for ours, _ in rounds],
        equal_within,
    )


def _of_both(variant: Measured, baseline: Measured) -> list[tuple[Block, Block]]:
    ours, theirs = ({block.round: block for block in one.blocks} for one in (variant, baseline))
    return [(ours[number], theirs[number]) for number in sorted(ours.keys() & theirs.keys())]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    parity_samples: int
    fresh_cache: bool
    seed: int = 0
    equal_within: float = EQUAL_WITHIN
    """Relative difference of the speeds of two variants up to which they are a tie."""


OnProgress = Callable[[str, float], None]
"""Called with what is being done, and with the completed share of all work, 0 to 1."""


class Session:
    """The variants of one model, from their start to their end.

    Args:
        model: name of the model.
        shared: folder with payload and checkpoint.
        variants: modes of every variant, the baseline first, each with why it cannot run here, or
            ``""``.
        plan: how much is measured.
        on_progress: called with progress.
    """

    def __init__(
        self,
        model: str,
        shared: Folder,
        variants: Sequence[tuple[ModeSet, str]],
        plan: Plan,
        on_progress: OnProgress,
    ) -> None:
        self.variants = [
            Measured(model, str(modes), problem=refusal) for modes, refusal in variants
        ]
        self.shared, self._plan, self._on_progress = shared, plan, on_progress
        self._modes = [modes for modes, _ in variants]
        self._running: dict[int, VariantProcess] = {}
        self._done = 0
        self._total = sum(not refusal for _, refusal in variants) * (3 + plan.rounds) or 1
        self._order = random.Random(plan.seed)  # noqa: S311 - an order, not a secret
        self._no_more_after = math.inf
        """Clock time in seconds after which no fresh process is started."""
        self._processes: dict[int, int] = {}
        """Number of the newest process of each variant."""
        self._steps: dict[int, int] = {}
        """Number of steps per block of each variant."""
        self.rounds = 0

    def measure(self) -> None:
        """Measure everything and clean up; after an interrupt, `variants` has what is known so far.

        Raises:
            KeyboardInterrupt: the kernel was interrupted.
        """
        try:
            begun = time.monotonic()
            self._start()
            self._first_steps()
            self._rounds(0, self._plan.rounds)
            now = time.monotonic()
            self._no_more_after = now + max(_AGAIN * (now - begun), _LEAST_AGAIN_S)
            self._again()
            self._profile_and_logits()
        finally:
            self._end()

    def _start(self) -> None:
        for at, variant in enumerate(self.variants):
            if variant.problem:
                continue
            self._launch(at)
            variant.ranks = self._running[at].ranks
        for at in list(self._running):
            self._report(f"starting {self._name(at)}")
            self._try(at, lambda process: process.begun())

    def _launch(self, at: int) -> None:
        """Start a process of a variant, without waiting for it."""
        path, number = self.shared.shown, self._processes.get(at, -1) + 1
        self._processes[at] = number
        fresh_cache = self._plan.fresh_cache and self._modes[at].compiled
        self._running[at] = VariantProcess(
            self.shared,
            path / (f"variant-{at}-{number}" if number else f"variant-{at}"),
            self._modes[at],
            self._plan.parity_samples,
            cache=path / f"cache-{at}" if fresh_cache else None,
        )

    def _again(self) -> None:
        """Measure undecided variants in fresh processes, until all are decided or time is up."""
        done = self._plan.rounds
        for _ in range(1, _MOST_PROCESSES):
            only = self._undecided()
            if not only or time.monotonic() > self._no_more_after:
                return
            until = done + self._rounds_again(only)
            self._renew(only)
            self._rounds(done, until, only=only)
            done = until

    def _rounds_again(self, only: Sequence[int]) -> int:
        """Return how many rounds bring the noise to half of what processes differ by."""
        base = self.variants[0]
        noise = 0.0
        for at in only[1:]:
            logs: dict[int, list[float]] = {}
            for ours, theirs in _of_both(self.variants[at], base):
                logs.setdefault(ours.process, []).append(math.log(theirs.seconds / ours.seconds))
            noise = max(noise, round_noise([np.array(rounds) for rounds in logs.values()]))
        wanted = math.ceil((noise / (PROCESSES / 2)) ** 2)
        return min(max(wanted, _FEWEST_AGAIN), max(self._plan.rounds, _FEWEST_AGAIN))

    def _renew(self, only: Sequence[int]) -> None:
        """Replace the processes that were measured by fresh ones."""
        for at in only:
            self._running[at].end()
            del self._running[at]
            self._launch(at)
        for at in only:
            self._report(f"starting {self._name(at)} again")
            process = self._running[at]
            try:
                process.begun()
                process.request("first", warm_up=_WARM_UP)
            except VariantError as error:  # what was measured before is kept
                self.variants[at].notes.append(f"could not be started again: {error}")
                self._running.pop(at).end()

    def _first_steps(self) -> None:
        for at in list(self._running):
            self._report(f"first step of {self._name(at)}")
            answer = self._try(at, lambda process: process.request("first", warm_up=_WARM_UP))
            if answer is not None:
                variant = self.variants[at]
                variant.first_s, variant.is_random = answer["seconds"], answer["is_random"]
                variant.graphs, variant.breaks = answer["graphs"], answer["breaks"]

    def _rounds(self, begin: int, end: int, only: Sequence[int] | None = None) -> None:
        """Run rounds ``begin`` to ``end``, of all variants or of those in ``only``."""
        for number in range(begin, end):
            turn = [at for at in self._running if only is None or at in only]
            if len(turn) < 2 and only is not None:
                return
            self._order.shuffle(turn)
            for at in turn:
                self._report(f"round {number + 1:,} of {end:,}: {self._name(at)}")
                self._block(at, number)
            self.rounds = number + 1 if only is None else self.rounds

    def _block(self, at: int, number: int) -> None:
        variant, count = self.variants[at], self._steps.get(at, 1 if number else 3)
        answer = self._try(at, lambda process: process.request("steps", count=count))
        if answer is None:
            return
        seconds = statistics.median(answer["seconds"])
        if at not in self._steps:  # the first block determines how many steps fill the next
            self._steps[at] = max(1, min(_MOST_STEPS, round(_BLOCK_S / max(seconds, 1e-6))))
        variant.blocks.append(Block(number, count, seconds, self._processes[at]))
        variant.samples += answer["samples"]
        variant.peak_bytes = answer["peak_bytes"]
        losses = answer["losses"]
        if len(losses) >= len(variant.losses):  # the losses of a fresh process start again
            variant.losses = losses

    def _undecided(self) -> list[int]:
        """Return the variants that are undecided so far, and the baseline; empty if none are."""
        if 0 not in self._running:
            return []
        found = [at for at in self._running if at and self._verdict(at) == "unclear"]
        return [0, *found] if found else []

    def _verdict(self, at: int) -> Verdict:
        return against(self.variants[at], self.variants[0], self._plan.equal_within).verdict

    def _profile_and_logits(self) -> None:
        baseline: torch.Tensor | None = None
        for at in sorted(self._running):  # the baseline first, whichever was started last
            self._report(f"memory, launches and logits of {self._name(at)}")
            variant = self.variants[at]
            answer = self._try(at, lambda process: process.request("profile"))
            if answer is not None:
                variant.operations, variant.peak_bytes = answer["operations"], answer["peak_bytes"]
                variant.notes += answer["notes"]
            answer = self._try(at, lambda process: process.request("parity"))
            if answer is None or answer["problem"]:
                variant.notes += [f"no logits: {answer['problem']}"] if answer is not None else []
                continue
            variant.parity_samples, variant.parity_on = answer["samples"], answer["on"]
            path = self._running[at].folder.path / LOGITS
            logits = torch.load(path, weights_only=True)
            path.unlink()
            if at == 0:
                baseline = logits
            if baseline is not None:
                try:
                    variant.delta_logit, variant.agreement = compare_answers(logits, baseline)
                    if math.isnan(variant.delta_logit):
                        variant.notes.append("some logits are not finite, here or in the baseline")
                except ValueError as error:
                    variant.notes.append(f"no logits to compare: {error}")

    def _try(self, at: int, do: Callable[[VariantProcess], Any]) -> Any:
        """Return what ``do`` returns; a variant that fails is dropped, and the others continue."""
        process = self._running.get(at)
        if process is None:
            return None
        try:
            return do(process)
        except VariantError as error:
            self.variants[at].problem = str(error)
            self._running.pop(at).end()
            return None

    def _end(self) -> None:
        """End every variant, even if one of them or another interrupt raises."""
        try:
            for process in self._running.values():
                with suppress(OSError, ValueError):  # cannot be written, or has ended already
                    process.leave()
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline and self._still_running():
                time.sleep(0.01)
        finally:
            self._end_by_force()

    def discard(self) -> None:
        """Remove the files of a session that was never begun."""
        self.shared.remove()

    def _still_running(self) -> bool:
        return any(not process.is_over for process in self._running.values())

    def _end_by_force(self) -> None:
        try:
            while self._running:
                at = next(iter(self._running))
                try:
                    self._running[at].end()
                finally:
                    del self._running[at]
        finally:
            if self._running:
                self._end_by_force()
            self.shared.remove()

    def _name(self, at: int) -> str:
        return f"{self.variants[at].model} {self.variants[at].modes}".strip()

    def _report(self, what: str) -> None:
        self._on_progress(what, min(self._done / self._total, 1.0))
        self._done += 1
