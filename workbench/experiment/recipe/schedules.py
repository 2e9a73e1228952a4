"""Learning-rate schedule: when it steps, what it is fed, and what happens at its end.

An ``lr_scheduler`` counts calls of ``step`` and does not say whether these are steps or epochs.
`Schedule` is given this (``schedule_every``), or determines it:

1. by its class: `OneCycleLR` and `CyclicLR` are made for steps, `ReduceLROnPlateau` for epochs;
2. by the functions of a `LambdaLR`, which are inspected and never called (one may count its calls):
   those of Transformers count steps, and so does one whose parameter is called ``step`` or
   ``iteration``, or that returned 0 when torch created the scheduler: a first epoch would learn
   nothing;
3. by its length, if it is that of the run in steps and not in epochs;
4. otherwise it steps once an epoch, as in torch's documentation.

What was found by 2 and 3 is reported, and so is a length that fits neither.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch.optim import lr_scheduler

from workbench.experiment.recipe.learning_rate import (
    back_to_schedule,
    forget_schedule,
    learning_rate,
    parts_of,
    set_settings,
    settings_of,
    worded,
)
from workbench.experiment.recipe.schedule_undo import undone_if_it_raises

Every = Literal["step", "epoch"]

_BY_STEPS = (lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR)
_OF_STEPS = ("step", "iter", "batch", "update")
_OF_EPOCHS = ("epoch",)
_PAST_ONE_CYCLE = "The specified number of total steps is"
"""Message with which torch refuses another step (`OneCycleLR.get_lr`)."""
_TOLERANCE = 0.1
"""Relative tolerance of a length in steps: some leave out the last, short batch of an epoch, or the
last step."""


class Schedule:
    """A learning-rate scheduler and when it steps.

    Args:
        scheduler: None, an instance, a callable that takes the optimizer, or a pair of ``"step"``
            or ``"epoch"`` and one of these.
        optimizer: optimizer whose rates it sets.
        every: what it counts, ``"step"`` or ``"epoch"``; None: determined as the module describes.

    Raises:
        ValueError: it is none of these, sets the rates of another optimizer, or has a ``step`` that
            needs an argument.
    """

    def __init__(
        self, scheduler: Any, optimizer: torch.optim.Optimizer, every: str | None = None
    ) -> None:
        if isinstance(scheduler, tuple) and len(cast(Any, scheduler)) == 2:
            every, scheduler = scheduler
        if isinstance(scheduler, type) or (callable(scheduler) and not hasattr(scheduler, "step")):
            scheduler = scheduler(optimizer)
        if scheduler is not None and not hasattr(scheduler, "step"):
            raise ValueError(
                f"scheduler is a {type(scheduler).__name__}; valid: an lr_scheduler, a callable "
                f"that takes the optimizer, or a pair of 'step' or 'epoch' and one of these"
            )
        if scheduler is not None and (refused := _refusal(scheduler, optimizer)):
            raise ValueError(refused)
        if every not in (None, "step", "epoch"):
            raise ValueError(f"a scheduler steps every {every!r}; valid: 'step', 'epoch'")
        self.scheduler: Any = scheduler
        self.optimizer = optimizer
        self._is_settled = every is not None
        self._every: Every = "epoch"
        self._kind: tuple[Every | None, str] = (None, "")
        """What it counts according to its class and its functions, and what is to be reported about
        it."""
        self.is_over = False
        """Whether it has no rate for another step."""
        self.last_of_curve: list[dict[str, Any]] | None = None
        """Rates and momenta of the groups at the end of a `OneCycleLR`, once it is there."""
        self.num_changes = 0
        """Number of times that its rates were scaled, or that it was removed."""
        self.is_owed = False
        """Whether the step after the last update has raised, and has to be done before the next."""
        self.is_removed = False
        """Whether there was one, which was removed (`end`)."""
        if every is not None:
            self._every = every
        elif scheduler is not None:
            self._kind = _by_its_kind(scheduler)
            found, why = self._kind
            self._every, self._is_settled = found or "epoch", bool(found and not why)

    @property
    def every(self) -> Every | None:
        """What it counts, steps or epochs; None without a scheduler."""
        return None if self.scheduler is None else self._every

    @property
    def per_step(self) -> bool:
        """Whether it steps after every applied update."""
        return self.every == "step"

    @property
    def per_epoch(self) -> bool:
        """Whether it steps once an epoch."""
        return self.every == "epoch"

    @property
    def name(self) -> str:
        """Class name of the scheduler; ``""`` without one."""
        return "" if self.scheduler is None else type(self.scheduler).__name__

    @property
    def goes_by_metric(self) -> bool:
        """Whether its rates depend on what is measured, so that future ones are not known."""
        return any(_is_plateau(part) for part in parts_of(self.scheduler))

    @property
    def is_plateau(self) -> bool:
        """Whether it is a `ReduceLROnPlateau` itself, which is fed a metric."""
        return _is_plateau(self.scheduler)

    @property
    def wants_accuracy(self) -> bool:
        """Whether it is fed a metric for which larger is better."""
        return _is_plateau(self.scheduler) and self.scheduler.mode == "max"

    def describe(self) -> str:
        """Describe it: ``OneCycleLR, every step``; ``""`` without a scheduler."""
        if self.scheduler is None:
            return ""
        what = ", by accuracy" if self.wants_accuracy else ""
        over = ", over" if self.is_over else ""
        return f"{self.name}, every {self._every}{what}{over}"

    def settle(self, num_steps: int, num_epochs: int, num_batches: int = 0) -> str:
        """Decide what it counts, once, before the first step of a run of this length.

        Args:
            num_steps: number of steps of the run; 0: not known.
            num_epochs: number of epochs of the run; one that was begun counts as one.
            num_batches: number of batches of the run, if some are left out: a length may have
                counted them.

        Returns:
            A sentence on what was found, if it is not certain.
        """
        if self.scheduler is None or self._is_settled:
            return ""
        self._every, sentence = self.counted(num_steps, num_epochs, num_batches)
        self._is_settled = True
        return sentence

    def counted(self, num_steps: int, num_epochs: int, num_batches: int = 0) -> tuple[Every, str]:
        """Return what it would count in a run of this length, and the sentence of `settle`."""
        if self.scheduler is None or self._is_settled:
            return self._every, ""
        found, why = self._kind
        if found:
            return found, _said(self.name, found, why)
        length = _length(self.scheduler)
        if length is None or length <= num_epochs or not num_steps:
            return self._every, ""
        off = max(num_steps - length, length - max(num_steps, num_batches))
        if off <= max(1, _TOLERANCE * num_steps):
            why = f"its length, {length:,}, is that of the run in steps"
            return "step", _said(self.name, "step", why)
        return "epoch", _said(
            self.name,
            "epoch",
            f"its length, {length:,}, is neither that of the run in epochs, {num_epochs:,}, nor in "
            f"steps, {num_steps:,}",
        )

    def after_step(self) -> str:
        """Step after an applied update, if it counts steps; return a sentence once it is over.

        If a user-defined scheduler raises, it is left as it was: the step is owed.
        """
        if not self.per_step:
            return ""
        self.is_owed = True
        sentence = self.advance()
        self.is_owed = False
        return sentence

    def catch_up(self) -> str:
        """Do the step that is owed of the last update, before a new step."""
        return self.after_step() if self.is_owed else ""

    def after_epoch(self, measure: Callable[[], float | None]) -> str:
        """Step after an epoch, if it counts epochs; ``measure`` is called only if it is needed."""
        if not self.per_epoch:
            return ""
        if not _is_plateau(self.scheduler):
            return self.advance()
        value = measure()
        if value is not None:
            self._step(parts_of(self.scheduler), value)
            return ""
        if not self.wants_accuracy:
            return ""
        name = type(self.scheduler).__name__
        return (
            f"{name} has no metric to follow: no accuracy is known for this loss and these labels"
        )

    def state(self) -> dict[str, Any]:
        """Return what was decided about it so far, for `load_state` of another one."""
        return {
            "every": self._every,
            "is_settled": self._is_settled,
            "is_over": self.is_over,
            "is_owed": self.is_owed,
            "last_of_curve": self.last_of_curve,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue as the one whose `state` it is."""
        self._every, self._is_settled = state["every"], state["is_settled"]
        self.is_over, self.is_owed = state["is_over"], state["is_owed"]
        self.last_of_curve = state["last_of_curve"]

    def rebind(self, optimizer: torch.optim.Optimizer) -> None:
        """Continue with another optimizer, whose groups are those of the previous one."""
        self.optimizer = optimizer
        for part in parts_of(self.scheduler):
            part.optimizer = optimizer

    def scaled(self, factor: float | None, scalable: bool | None) -> str:
        """Record that its rates were scaled (`scale_learning_rate`).

        Args:
            factor: factor of the scaling; None: it was at rate 0.
            scalable: whether it has no rates of its own apart from those (`schedule_copy`).

        Returns:
            The end of a sentence about it, from a comma on.
        """
        self.num_changes += 1
        self.last_of_curve = None
        if self.scheduler is None:
            return ""
        if scalable is None:
            return f"; {self.name} decides what follows"
        if not scalable:
            return f" until {self.name} steps, which uses rates of its own"
        if factor is None:
            return (
                f" for the next {self._every}; {self.name} is at 0 and continues as one created "
                "with it"
            )
        return f", and {self.name} goes on at {factor:.3g} times its rates"

    def end(self) -> None:
        """Remove it from now on: the rates and momenta stay as they are."""
        self.scheduler, self.is_removed = None, True
        self.is_over = self.is_owed = False
        self.num_changes += 1
        forget_schedule(self.optimizer)

    def advance(self) -> str:
        """Step it, whatever it counts; return a sentence if it has no rate for another step.

        `OneCycleLR` has a rate for one step more than its length, far off its curve, as in any
        loop; if torch raises for the next one, the last rate of the curve is used.
        """
        if self.is_over:
            return ""
        parts = parts_of(self.scheduler)
        if any(_is_at_its_end(part) for part in parts):
            self.last_of_curve = settings_of(self.optimizer)
        try:
            self._step(parts)
        except ValueError as error:
            if _PAST_ONE_CYCLE not in str(error):
                raise
        else:
            return ""
        self.is_over = True
        if self.last_of_curve is not None:
            set_settings(self.optimizer, self.last_of_curve)
        name, rate = type(self.scheduler).__name__, learning_rate(self.optimizer) or 0.0
        return (
            f"{name} is over after {_length(self.scheduler):,} {self._every}s, and torch has no "
            f"rate for another: the rate stays at {worded(rate)}. Set exp.learning_rate, or make "
            "the schedule as long as the run"
        )

    def _step(self, parts: list[Any], *measured: float) -> None:
        with undone_if_it_raises(parts, self.optimizer):
            back_to_schedule(self.optimizer)
            self.scheduler.step(*measured)


def _refusal(scheduler: Any, optimizer: torch.optim.Optimizer) -> str:
    """Return why it cannot be used, in one sentence; ``""`` if it can.

    Optimizers around another one (SAM, Lookahead) share its groups, or hold it.
    """
    ours = {id(group) for group in optimizer.param_groups}
    for part in parts_of(scheduler):
        kept = getattr(part, "__dict__", {}).values()
        held = [one for one in kept if isinstance(one, torch.optim.Optimizer)]
        if held and not any(id(group) in ours for one in held for group in one.param_groups):
            name = type(part).__name__
            return (
                f"{name} is a scheduler of another optimizer, whose rates are not used here; "
                f"give a callable that makes it, scheduler=lambda optimizer: {name}(optimizer, "
                "...), or the optimizer that it was made with"
            )
    if not _is_plateau(scheduler) and (needed := _needed(scheduler.step)):
        name = type(scheduler).__name__
        return (
            f"scheduler is a {name} whose step needs {needed!r}, and a scheduler is stepped here "
            "without arguments; give one whose step needs none, such as a subclass that counts: "
            "def step(self): self.count += 1; super().step(self.count)"
        )
    return ""


def _needed(step: Any) -> str:
    """Return the first argument without which ``step`` cannot be called; ``""`` if none."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return ""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return next(
        (one.name for one in parameters if one.default is one.empty and one.kind not in optional),
        "",
    )


def _is_plateau(scheduler: Any) -> bool:
    return isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)


def _is_at_its_end(part: Any) -> bool:
    return isinstance(part, lr_scheduler.OneCycleLR) and part.last_epoch == part.total_steps - 1


def _by_its_kind(scheduler: Any) -> tuple[Every | None, str]:
    """Return what it counts, by class or by the functions that it calls; None if neither shows it.

    The reason is returned too, if it is to be reported: a class or a name leaves no doubt.
    """
    if _is_plateau(scheduler):
        return "epoch", ""
    parts = parts_of(scheduler)
    if any(isinstance(part, _BY_STEPS) for part in parts):
        return "step", ""
    found = [_of_function(*one) for part in parts for one in _functions(part)]
    if "step" in found:
        return "step", "its function counts steps"
    return ("epoch" if "epoch" in found else None), ""


def _functions(scheduler: Any) -> list[tuple[Any, bool]]:
    """Return the functions of a `LambdaLR` or a `MultiplicativeLR`, and whether each made a rate 0.

    Torch calls the functions of the first as it creates the scheduler, and keeps the rates.
    """
    kept = [getattr(scheduler, name, []) for name in ("lr_lambdas", "base_lrs", "_last_lr")]
    is_new = getattr(scheduler, "last_epoch", 1) <= 0
    return [
        (function, is_new and bool(made_for) and not begins_with)
        for function, made_for, begins_with in itertools.zip_longest(*kept, fillvalue=1.0)
        if callable(function)
    ]


def _of_function(function: Any, begins_at_0: bool) -> Every | None:
    inner = function
    while isinstance(inner, functools.partial):
        inner = cast("functools.partial[Any]", inner).func
    if str(getattr(inner, "__module__", "")).startswith("transformers."):
        return "step"
    name = _first_parameter(function)
    if any(word in name for word in _OF_EPOCHS):
        return "epoch"
    if begins_at_0 or any(word in name for word in _OF_STEPS):
        return "step"
    return None


def _first_parameter(function: Any) -> str:
    try:
        return next(iter(inspect.signature(function).parameters), "").lower()
    except (TypeError, ValueError):
        return ""


def _length(scheduler: Any) -> int | None:
    """Return the number of calls of ``step`` after which nothing changes; None if there is none."""
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        milestones: list[int] = cast(Any, scheduler)._milestones
        last = _length(cast(Any, scheduler)._schedulers[-1])
        return milestones[-1] + (last or 0) if milestones else last
    if isinstance(scheduler, lr_scheduler.ChainedScheduler):
        found = [_length(part) for part in parts_of(scheduler)[1:]]
        return max([one for one in found if one is not None], default=None)
    if isinstance(scheduler, lr_scheduler.MultiStepLR):
        return max(scheduler.milestones, default=None)
    for name in ("total_steps", "T_max", "total_iters"):
        value = getattr(scheduler, name, None)
        if isinstance(value, int):
            return value
    return None


def _said(name: str, every: Every, why: str) -> str:
    other = "epoch" if every == "step" else "step"
    return (
        f"{name} steps once every {every} ({why}): schedule_every={other!r} makes it every {other}"
    )
