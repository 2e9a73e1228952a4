"""How long steps take under each set of modes, as they are trained anyway.

The training thread adds one number per step and nothing else; what the numbers mean is worked out
by whoever asks (`workbench.modes.effects.badges`), on another thread. Step times of the sets are
not interleaved, because a person switches when they like; every statement made from them carries
its spread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import count

from workbench.modes.effects.compared import Compared
from workbench.modes.effects.statistics import Spread, spread

WINDOW = 512
"""Steps remembered per set of modes: the latest."""
MIN_STEPS = 20
"""Fewer steps than this support no statement: with 20, drifting step times of equal speed are told
apart by mistake in 3 % of cases, with 12 in 9 % (lag-1 correlation 0.9)."""


class StepTimings:
    """Step times, first-step times and numerical parity, by mode string (``str(ModeSet)``)."""

    def __init__(self) -> None:
        self._sets: dict[str, _Measured] = {}
        self._compared: dict[tuple[str, str], Compared] = {}
        self._order = count()
        self._modes: str | None = None
        self._append: Callable[[float], None] = deque[float](maxlen=0).append
        self._fresh = 0
        """How many steps still belong to the first window of the modes in use."""
        self._beside = set[object]()
        """Work of ours that slows the steps at the moment."""

    @contextmanager
    def disturbed(self) -> Generator[None]:
        """Leave the steps out that are done meanwhile: we compute something else beside them."""
        work = object()
        self._beside.add(work)
        try:
            yield
        finally:
            self._beside.discard(work)

    def add(self, modes: str, seconds: float) -> None:
        """Add one steady step. Called on the training thread, once a step."""
        if self._beside:
            return
        if modes != self._modes:
            self._enter(modes)
        self._append(seconds)
        if self._fresh:
            self._fresh -= 1
            if not self._fresh:
                self._append = self._sets[modes].late.append

    def first_step(self, modes: str, seconds: float) -> None:
        """Note how long the first step after a switch to ``modes`` took; it is no steady step."""
        self._enter(modes).first_s = seconds

    def parity(self, modes: str, max_abs_delta_logit: float) -> None:
        """Note by how much logits changed when switching to ``modes``: same batch and weights.

        Called after `first_step`.
        """
        self._set(modes).delta_logit = max_abs_delta_logit

    def count(self, modes: str) -> int:
        """Steady steps that `spread` goes by."""
        return len(self._steps(modes))

    def spread(self, modes: str) -> Spread | None:
        """The steps under ``modes``, or None while they are too few to say anything.

        Of the modes in use the first window since they were switched to, of others the last one
        before they were left: what is compared lies as close in time as it can, and a comparison
        does not change because the machine got busy meanwhile. Where modes were gone back to for
        fewer steps than support a statement, what was known of them before stands.
        """
        steps = self._steps(modes)
        return spread(steps) if len(steps) >= MIN_STEPS else None

    def first_step_seconds(self, modes: str) -> float | None:
        """Duration of the latest first step under ``modes``."""
        measured = self._sets.get(modes)
        return measured.first_s if measured else None

    def max_abs_delta_logit(self, modes: str, against: str | None = None) -> float | None:
        """The latest `parity` of ``modes``; with ``against``, only if that was switched from.

        After a switch of two modes at once, or from some third set, the difference says nothing
        about these two.
        """
        measured = self._sets.get(modes)
        if measured is None or against not in (None, measured.came_from):
            return None
        return measured.delta_logit

    def take_over(self, found: Mapping[tuple[str, str], Compared]) -> None:
        """Keep what a comparison has found, by (modes before, modes now); the latest one stands."""
        self._compared = {**self._compared, **found}

    def compared(self, before: str, now: str) -> Compared | None:
        """What the latest comparison has found of two sets of modes, or None."""
        return self._compared.get((before, now))

    def latest(self, candidates: Iterable[str]) -> str | None:
        """Which of ``candidates`` was trained under last, of those with enough steps."""
        known = [modes for modes in candidates if self.count(modes) >= MIN_STEPS]
        return max(known, key=lambda modes: self._sets[modes].entered, default=None)

    def _enter(self, modes: str) -> _Measured:
        measured = self._set(modes)
        measured.entered = next(self._order)
        if modes != self._modes:
            measured.came_from, measured.delta_logit = self._modes, None
            measured.before = self._steps(modes)
            measured.early.clear()
            measured.late.clear()
            self._append, self._fresh = measured.early.append, WINDOW
        self._modes = modes
        return measured

    def _steps(self, modes: str) -> list[float]:
        measured = self._sets.get(modes)
        if measured is None:
            return []
        steps = list(measured.early)
        if modes != self._modes:
            steps = [*steps, *measured.late][-WINDOW:]
        return steps if len(steps) >= MIN_STEPS or not measured.before else measured.before

    def _set(self, modes: str) -> _Measured:
        measured = self._sets.get(modes)
        if measured is None:
            measured = self._sets[modes] = _Measured()
        return measured


class _Measured:
    """What is known of one set of modes."""

    __slots__ = ("before", "came_from", "delta_logit", "early", "entered", "first_s", "late")

    def __init__(self) -> None:
        self.early: deque[float] = deque(maxlen=WINDOW)
        """The first window since the last switch to them."""
        self.late: deque[float] = deque(maxlen=WINDOW)
        """What came after it, the newest."""
        self.before: list[float] = []
        """What the switch before the last one left."""
        self.first_s: float | None = None
        self.delta_logit: float | None = None
        self.came_from: str | None = None
        self.entered = -1
