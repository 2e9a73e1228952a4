"""How long steps take under each set of modes, measured while they are trained anyway.

The training thread adds one number per step and nothing else; what the numbers mean is worked out
on request (`workbench.modes.effects.badges`), on another thread. Step times of the sets are not
interleaved, because the user switches at any time; every statement made from them includes its
spread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import count

from workbench.modes.effects.compared import Compared
from workbench.modes.effects.statistics import Spread, spread

WINDOW = 512
"""Number of steps remembered per set of modes: the latest."""
MIN_STEPS = 20
"""Fewer steps than this support no statement: with 20, drifting step times of equal speed are
found to differ by mistake in 3 % of cases, with 12 in 9 % (lag-1 correlation 0.9)."""


class StepTimings:
    """Step times, first-step times and numerical parity, by mode string (``str(ModeSet)``)."""

    def __init__(self) -> None:
        self._sets: dict[str, _Measured] = {}
        self._compared: dict[tuple[str, str], Compared] = {}
        self._order = count()
        self._modes: str | None = None
        self._append: Callable[[float], None] = deque[float](maxlen=0).append
        self._fresh = 0
        """Number of steps that still belong to the first window of the modes in use."""
        self._disturbing = set[object]()
        """Work of ours that slows the steps at the moment."""

    @contextmanager
    def disturbed(self) -> Generator[None]:
        """Leave out the steps that are done inside: we compute something else alongside them."""
        work = object()
        self._disturbing.add(work)
        try:
            yield
        finally:
            self._disturbing.discard(work)

    def add(self, modes: str, seconds: float) -> None:
        """Add one steady step. Called on the training thread, once a step."""
        if self._disturbing:
            return
        if modes != self._modes:
            self._enter(modes)
        self._append(seconds)
        if self._fresh:
            self._fresh -= 1
            if not self._fresh:
                self._append = self._sets[modes].late.append

    def first_step(self, modes: str, seconds: float) -> None:
        """Record how long the first step after a switch to ``modes`` took; it is no steady step."""
        self._enter(modes).first_s = seconds

    def parity(self, modes: str, max_abs_delta_logit: float) -> None:
        """Record how much logits changed on switching to ``modes``: same batch and weights.

        Called after `first_step`.
        """
        self._set(modes).delta_logit = max_abs_delta_logit

    def count(self, modes: str) -> int:
        """Number of steady steps that `spread` uses."""
        return len(self._steps(modes))

    def spread(self, modes: str) -> Spread | None:
        """Return the spread of steps under ``modes``, or None while there are too few of them.

        For the modes in use it is that of the first window since they were switched on, for others
        that of the last window before they were switched off: what is compared is as close in time
        as possible, and a comparison does not change because the machine got busy in between. If
        modes were used again for fewer steps than support a statement, the earlier result for them
        is kept.
        """
        steps = self._steps(modes)
        return spread(steps) if len(steps) >= MIN_STEPS else None

    def first_step_seconds(self, modes: str) -> float | None:
        """Duration of the latest first step under ``modes``."""
        measured = self._sets.get(modes)
        return measured.first_s if measured else None

    def max_abs_delta_logit(self, modes: str, against: str | None = None) -> float | None:
        """Return the latest `parity` of ``modes``; with ``against``, only if switched from that.

        After a switch of two modes at once, or from some third set, the difference says nothing
        about these two.
        """
        measured = self._sets.get(modes)
        if measured is None or against not in (None, measured.came_from):
            return None
        return measured.delta_logit

    def take_over(self, found: Mapping[tuple[str, str], Compared]) -> None:
        """Store results of a comparison, by (modes before, modes now); the latest one counts."""
        self._compared = {**self._compared, **found}

    def compared(self, before: str, now: str) -> Compared | None:
        """Return the result of the latest comparison of two sets of modes, or None."""
        return self._compared.get((before, now))

    def latest(self, candidates: Iterable[str]) -> str | None:
        """Return which of ``candidates`` was trained last, of those with enough steps."""
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
    """What is known about one set of modes."""

    __slots__ = ("before", "came_from", "delta_logit", "early", "entered", "first_s", "late")

    def __init__(self) -> None:
        self.early: deque[float] = deque(maxlen=WINDOW)
        """The first window since the last switch to them."""
        self.late: deque[float] = deque(maxlen=WINDOW)
        """The steps after it, the newest of them."""
        self.before: list[float] = []
        """Steps that were known before the last switch to them."""
        self.first_s: float | None = None
        self.delta_logit: float | None = None
        self.came_from: str | None = None
        self.entered = -1
