"""Future rates of a schedule, for a plot: the scheduler itself computes them, on a copy.

A copy (`workbench.experiment.recipe.schedule_copy`) is stepped to the end of the planned run; a
separate formula could be wrong, and a closed form, where torch has one, is not what training uses.
For the steps that a point stands for, the lowest and the highest rate are kept, so that a cycle
shorter than a point is seen as a band.

It is done in slices between two steps of the training, on its thread: the user's functions are
called where the scheduler calls them, and the random states are restored afterwards. A slice is a
small share of the time since the last one. There are none if the result is not queried, nor once
all is computed, until rate, schedule or plan change.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from workbench.experiment.recipe.learning_rate import leading, learning_rate
from workbench.experiment.recipe.schedule_copy import (
    NotCopiedError,
    copied,
    is_scalable,
    rate_of,
    runs_own_code,
    without_drawing,
)
from workbench.records import ScheduleState

if TYPE_CHECKING:
    from workbench.experiment.recipe.schedules import Every, Schedule
    from workbench.experiment.training import Training

MAX_POINTS = 120
_EVERY_S = 0.1
_SLICE_S, _SHARE = 0.005, 0.05
"""While it trains: a slice, and the share of the time that slices take, however long each is."""
_IDLE_SLICE_S, _IDLE_SHARE = 0.05, 0.5

_BY_METRIC = "by metric"
_UNKNOWN_LENGTH = "no curve yet: the length of an epoch is not known"
_DRAWS = "no curve: its functions draw random numbers"
_REMOTE = "no curve while ranks compute the steps"

log = logging.getLogger("workbench")


class ScheduleForecast:
    """Forecast of a training's schedule, updated when it is queried.

    Args:
        training: training whose schedule it is; nothing of it is changed.
        planned: `Plan.length` of the current run, or else of the next one.
    """

    def __init__(self, training: Training, planned: Callable[[], tuple[int, int, int]]) -> None:
        self._training, self._planned = training, planned
        self._known: ScheduleState | None = None
        self._key: tuple[object, ...] = ()
        self._changes = 0
        """`Schedule.num_changes` of what is known."""
        self._rest: _Rates | None = None
        """The rates that are being computed."""
        self._next_at, self._is_requested = -math.inf, False

    def get(self, submit: Callable[[Callable[[], object]], object]) -> ScheduleState | None:
        """Return what is known; callable from any thread.

        Args:
            submit: has a function called between two steps (`Runner.submit`).

        Returns:
            None without a schedule.
        """
        schedule = self._training.schedule
        if schedule.scheduler is None:
            return None
        if not self._is_requested and time.monotonic() >= self._next_at:
            self._is_requested = True
            submit(self._work)
        known = self._known
        if known is None or known.name != schedule.name:
            every = schedule.every or "epoch"
            return ScheduleState(name=schedule.name, every=every, effect="", is_whole=False)
        if self._training.learning_rate == 0 and not schedule.is_over:
            return dataclasses.replace(known, effect=_at_zero(known))
        return known

    # -- between two steps ------------------------------------------------------------------

    def _work(self) -> None:
        """Compute for a while; what the user's code raises is reported in the place of a curve."""
        self._is_requested, begun = False, time.monotonic()
        idle = self._training.board.status != "training"
        schedule = self._training.schedule
        if schedule.scheduler is None:
            return
        try:
            if self._training.is_remote:
                self._wait(schedule)
                return
            every, end = self._course(schedule)
            key = self._key_now(schedule, every, end)
            if key != self._key:
                self._key, self._changes, self._rest = key, schedule.num_changes, None
                self._begin(schedule, every, end)
            if self._rest is not None:
                self._go_on(self._rest, begun + (_IDLE_SLICE_S if idle else _SLICE_S))
        except Exception as error:
            log.debug("the upcoming rates of %s are not known", schedule.name, exc_info=True)
            self._end_with(f"no curve: {_first_line(error)}")
        finally:
            took, share = time.monotonic() - begun, _IDLE_SHARE if idle else _SHARE
            self._next_at = begun + max(_EVERY_S, took / share)

    def _wait(self, schedule: Schedule) -> None:
        """Keep what is known while the schedule is remote, where the steps are computed."""
        if self._known is None or self._rest or schedule.num_changes != self._changes:
            self._changes, self._rest, self._key = schedule.num_changes, None, ()
            every = self._course(schedule)[0]
            with without_drawing(self._training.device):
                scalable = is_scalable(schedule, self._training.optimizer)
            self._known = _about(schedule, every, _effect(schedule, every, scalable), why=_REMOTE)

    def _course(self, schedule: Schedule) -> tuple[Every, int]:
        """Return what it counts, and how many of these the planned run ends with; 0: not known."""
        steps, epochs, batches = self._planned()
        every, _ = schedule.counted(steps, epochs, batches)
        return every, steps if every == "step" else epochs

    def _position(self, every: Every) -> int:
        training = self._training
        return training.step_count if every == "step" else training.cursor.epoch

    def _key_now(self, schedule: Schedule, every: Every, end: int) -> tuple[object, ...]:
        """Return what the future rates depend on, apart from time."""
        scheduler, position = schedule.scheduler, self._position(every)
        lag = position - getattr(scheduler, "last_epoch", position)  # an update may be left out
        who = id(scheduler), id(self._training.optimizer), schedule.num_changes, schedule.is_over
        return (*who, every, end, lag, self._set_by_hand(scheduler))

    def _set_by_hand(self, scheduler: Any) -> float | None:
        """Return the rate, if it differs from the one that the scheduler computed."""
        optimizer, last = self._training.optimizer, getattr(scheduler, "_last_lr", None)
        rate, at = learning_rate(optimizer), leading(optimizer.param_groups)
        if not isinstance(last, list) or at >= len(cast("list[Any]", last)) or rate is None:
            return None
        return None if float(cast("list[Any]", last)[at]) == rate else rate

    def _begin(self, schedule: Schedule, every: Every, end: int) -> None:
        optimizer, start = self._training.optimizer, self._position(every)
        with without_drawing(self._training.device):
            scalable = is_scalable(schedule, optimizer)
            self._known = _about(schedule, every, _effect(schedule, every, scalable))
            if schedule.goes_by_metric:
                self._end_with(_BY_METRIC)
            elif not end:
                self._end_with(_UNKNOWN_LENGTH)
            elif start < end:
                try:
                    copy = copied(schedule, optimizer)
                except NotCopiedError as error:
                    self._end_with(f"no curve: the schedule cannot be copied ({error})")
                    return
                self._known = dataclasses.replace(self._known, is_whole=False)
                self._rest = _Rates(copy, start, end, own_code=runs_own_code(schedule))

    def _go_on(self, rest: _Rates, until: float) -> None:
        if rest.own_code:
            with without_drawing(self._training.device) as drawn:
                rest.advance(until)
            rest.draws = rest.draws + 1 if drawn[0] else 0
        else:
            rest.advance(until)
        if rest.draws > 1:  # a single time it may have been a cell
            self._end_with(_DRAWS)
        elif self._known is not None:
            self._known = rest.shown(self._known)
            if rest.is_over:
                self._rest = None

    def _end_with(self, why: str) -> None:
        """End the computation without a curve."""
        self._rest = None
        if self._known is not None:
            none = {"start": 0, "end": 0, "size": 1, "low": (), "high": (), "is_whole": True}
            self._known = dataclasses.replace(self._known, why=why, **none)


class _Rates:
    """Rates of a stepped copy, gathered into at most `MAX_POINTS` points.

    Args:
        copy: schedule that has the rate of the step (or epoch) after ``start``.
        start: number of steps or epochs done.
        end: number of steps or epochs that the run ends with.
        own_code: whether the user's code is run.
    """

    def __init__(self, copy: Schedule, start: int, end: int, *, own_code: bool) -> None:
        self.own_code, self.draws = own_code, 0
        """``draws``: number of consecutive slices that have drawn random numbers."""
        self._copy, self._at, self._start, self._end = copy, start, start, end
        self._size = max(1, -(-(end - start) // MAX_POINTS))
        self._low: list[float] = []
        self._high: list[float] = []
        self._why = ""

    @property
    def is_over(self) -> bool:
        """Whether there is no more to compute."""
        return self._at >= self._end or bool(self._why)

    def advance(self, until: float) -> None:
        """Compute at least one rate, until ``until`` of the monotonic clock."""
        while not self.is_over:
            rate = rate_of(self._copy)
            if (self._at - self._start) % self._size == 0:
                self._low.append(rate)
                self._high.append(rate)
            self._low[-1], self._high[-1] = min(self._low[-1], rate), max(self._high[-1], rate)
            self._at += 1
            if self._at < self._end:
                try:
                    self._copy.advance()
                except Exception as error:  # noqa: BLE001 - the user's code, or a schedule too short
                    self._why = f"raises {_first_line(error)} at {self._at:,}"
            if time.monotonic() > until:
                return

    def shown(self, state: ScheduleState) -> ScheduleState:
        """Return ``state`` with what is computed so far."""
        return dataclasses.replace(
            state,
            start=self._start,
            end=self._end,
            size=self._size,
            low=tuple(map(_rounded, self._low)),
            high=tuple(map(_rounded, self._high)),
            is_whole=self.is_over,
            why=self._why,
        )


def _about(schedule: Schedule, every: Every, effect: str, why: str = "") -> ScheduleState:
    return ScheduleState(name=schedule.name, every=every, effect=effect, why=why, is_whole=True)


def _effect(schedule: Schedule, every: Every, scalable: bool | None) -> str:
    if schedule.is_over:
        return f"{schedule.name} is over: a rate set here stays."
    if scalable is None:
        return f"A rate set here holds for the next step; {schedule.name} decides what follows."
    if not scalable:
        return (
            f"A rate set here holds until the {every} is over: {schedule.name} uses rates of its "
            "own, which are not scaled."
        )
    return (
        "A rate set here holds from the next step on and scales the rest of the schedule with it."
    )


def _at_zero(known: ScheduleState) -> str:
    return (
        f"{known.name} is at rate 0: a rate set here holds for the next step, and the schedule "
        "continues as one created with it."
    )


def _rounded(rate: float) -> float:
    """Round a rate to what is seen in a line; one that is not finite is drawn as 0."""
    return float(f"{rate:.4g}") if math.isfinite(rate) else 0.0


def _first_line(error: Exception) -> str:
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
