"""A comparison while it is measured: arms are started, measured in turns, and asked what they know.

All arms of a model live together and only one of them computes at a time. First steps come one
after the other (each may take all cores to compile); then rounds, each with one block of steps of
every arm in random order, so that a machine that gets slower or faster does so for all of them.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from workbench.compare.arms import LOGITS, ArmError, ArmProcess

if TYPE_CHECKING:
    from workbench.modes import ModeSet
    from workbench.parallel.folder import Folder

_WARM_UP = 5
"""Steps after the first that are not timed: caches fill, allocators settle."""
_BLOCK_S = 0.25
"""A block of the baseline takes about so long."""
_MOST_STEPS = 50


@dataclass
class Measured:
    """All that is known of one arm."""

    model: str
    modes: str
    ranks: int = 1
    problem: str = ""
    first_s: float = float("nan")
    blocks: list[tuple[int, int, float]] = field(default_factory=list[tuple[int, int, float]])
    """(round, steps, seconds per step)"""
    losses: list[float] = field(default_factory=list[float])
    peak_bytes: float = float("nan")
    operations: int = -1
    graphs: int = -1
    breaks: int = -1
    batch_size: float = float("nan")
    """Samples of a step, on average over its blocks."""
    logits: torch.Tensor | None = None
    parity_samples: int = 0
    parity_on: str = ""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    parity_samples: int
    fresh_cache: bool
    seed: int = 0


Say = Callable[[str, float], None]
"""Told what is being done, and which share of all is done, 0 to 1."""


class Session:
    """One model's arms, from their start to their end.

    Args:
        model: its name.
        shared: folder with payload and checkpoint.
        arms: modes of every arm, the baseline first, with why it cannot run here, or ``""``.
        plan: how much is measured.
        say: told of progress.
    """

    def __init__(
        self,
        model: str,
        shared: Folder,
        arms: Sequence[tuple[ModeSet, str]],
        plan: Plan,
        say: Say,
    ) -> None:
        self.arms = [Measured(model, str(modes), problem=refusal) for modes, refusal in arms]
        self.shared, self._plan, self._say = shared, plan, say
        self._modes = [modes for modes, _ in arms]
        self._running: dict[int, ArmProcess] = {}
        self._done = 0
        self._total = len(arms) * (3 + plan.rounds)
        self.rounds = 0

    def measure(self) -> None:
        """Measure everything, and remove what it took; an interrupt leaves in `arms` what is known.

        Raises:
            KeyboardInterrupt: the kernel was interrupted.
        """
        try:
            self._start()
            self._first_steps()
            self._rounds()
            self._facts()
        finally:
            self._end()

    def _start(self) -> None:
        for at, arm in enumerate(self.arms):
            if arm.problem:
                continue
            folder = self.shared.path / f"arm-{at}"
            process = ArmProcess(
                self.shared,
                folder,
                self._modes[at],
                self._plan.parity_samples,
                fresh_cache=self._plan.fresh_cache and self._modes[at].compiled,
            )
            self._running[at] = process
            arm.ranks = process.ranks
        for at in list(self._running):
            self._tell(f"starting {self._name(at)}")
            self._try(at, ArmProcess.begun)

    def _first_steps(self) -> None:
        for at in list(self._running):
            self._tell(f"first step of {self._name(at)}")
            told = self._try(at, lambda arm: arm.ask("first", warm_up=_WARM_UP))
            if told is not None:
                arm = self.arms[at]
                arm.first_s, arm.graphs, arm.breaks = (
                    told["seconds"], told["graphs"], told["breaks"],
                )  # fmt: skip

    def _rounds(self) -> None:
        order = random.Random(self._plan.seed)  # noqa: S311 - an order, not a secret
        steps: dict[int, int] = {}
        for number in range(self._plan.rounds):
            turn = list(self._running)
            order.shuffle(turn)
            for at in turn:
                self._tell(f"round {number + 1:,} of {self._plan.rounds:,}: {self._name(at)}")
                count = steps.get(at, 1 if number else 3)
                told = self._try(at, lambda arm, count=count: arm.ask("steps", count=count))
                if told is None:
                    continue
                seconds = statistics.median(told["seconds"])
                if at not in steps:  # the first block says how many steps fill the next
                    steps[at] = max(1, min(_MOST_STEPS, round(_BLOCK_S / max(seconds, 1e-6))))
                self.arms[at].blocks.append((number, count, seconds))
            self.rounds = number + 1

    def _facts(self) -> None:
        for at in list(self._running):
            self._tell(f"memory, launches and logits of {self._name(at)}")
            arm = self.arms[at]
            told = self._try(at, lambda process: process.ask("facts"))
            if told is not None:
                arm.losses, arm.peak_bytes = told["losses"], told["peak_bytes"]
                arm.operations, arm.batch_size = told["operations"], told["batch_size"]
            told = self._try(at, lambda process: process.ask("parity"))
            if told is not None:
                arm.parity_samples, arm.parity_on = told["samples"], told["on"]
                path = self.shared.path / f"arm-{at}" / LOGITS
                arm.logits = torch.load(path, weights_only=True)

    def _try(self, at: int, do: Callable[[ArmProcess], Any]) -> Any:
        """What ``do`` gives; an arm that fails at it is out, and the others go on."""
        process = self._running.get(at)
        if process is None:
            return None
        try:
            return do(process)
        except ArmError as error:
            self.arms[at].problem = str(error)
            self._running.pop(at).end()
            return None

    def _end(self) -> None:
        for process in self._running.values():
            process.leave()
        deadline = time.monotonic() + 1.0
        for process in self._running.values():
            while not process.is_over and time.monotonic() < deadline:
                time.sleep(0.01)
            process.end()
        self._running.clear()
        shutil.rmtree(self.shared.path, ignore_errors=True)

    def _name(self, at: int) -> str:
        return f"{self.arms[at].model} {self.arms[at].modes}".strip()

    def _tell(self, what: str) -> None:
        self._say(what, min(self._done / self._total, 1.0))
        self._done += 1
