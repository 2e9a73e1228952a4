"""A copy of a schedule that can be stepped without a trace in the one that trains.

The copy has the scheduler's own classes, functions and numbers, and an optimizer that has nothing
but parameter groups, without parameters. Functions of cells are copied by value (cloudpickle), so
that one which counts its calls, or takes rates from an iterator, does so on a copy of its own. What
a function only looks at and what is large (models, data, arrays) is not copied but shared; what
cannot be copied, such as a generator, makes the schedule one that cannot.
"""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from workbench.experiment.learning_rate import learning_rate, parts_of, scale_learning_rate
from workbench.experiment.rng import RandomState
from workbench.experiment.schedules import Schedule

_MOST_OBJECTS = 20_000
"""A scheduler holds some dozen; what refers to so many holds more than a schedule."""
_SMALL = 1024
"""Elements of a tensor that is copied: a rate may be one."""
_TRIAL = 24
"""Steps for which two copies are compared."""
_PRECISE = 1e-5
"""What a rate in float32 may lose on the way."""


class NotCopiedError(ValueError):
    """A schedule cannot be copied; the message is a part of a sentence that says why."""


def copied(schedule: Schedule, optimizer: torch.optim.Optimizer) -> Schedule:
    """A copy of ``schedule``, and of the groups of ``optimizer``, on the CPU.

    Between two steps, on the thread that does them.

    Raises:
        NotCopiedError: it holds something of which there can be no copy, or far too much.
    """
    stand_in = _stand_in(optimizer)
    stream = io.BytesIO()
    pickler = _Pickler(stream, optimizer)
    try:
        pickler.dump(schedule.scheduler)
        stream.seek(0)
        scheduler = _Unpickler(stream, [stand_in, *pickler.shared]).load()
    except NotCopiedError:
        raise
    except Exception as error:
        raise NotCopiedError(str(error).partition("\n")[0] or type(error).__name__) from error
    copy = Schedule((schedule.every or "epoch", scheduler), stand_in)
    copy.is_over, copy.last_of_curve = schedule.is_over, schedule.last_of_curve
    return copy


def runs_own_code(schedule: Schedule) -> bool:
    """Whether a step of it calls functions or classes that are not torch's."""
    return any(
        not type(part).__module__.startswith("torch.optim.")
        or hasattr(part, "lr_lambdas")
        or getattr(part, "_scale_fn_custom", None) is not None
        for part in parts_of(schedule.scheduler)
    )


def is_scalable(schedule: Schedule, optimizer: torch.optim.Optimizer) -> bool | None:
    """Whether `scale_learning_rate` reaches all rates of it.

    It does of torch's classes; one of the user's may go by rates of its own, and is tried on two
    copies. None: that cannot be known.
    """
    if all(type(p).__module__.startswith("torch.optim.") for p in parts_of(schedule.scheduler)):
        return True
    try:
        return _tried(copied(schedule, optimizer), copied(schedule, optimizer))
    except Exception:  # noqa: BLE001 - the user's code; what it raises it raises in training too
        return None


def _tried(one: Schedule, other: Schedule) -> bool:
    """Whether rates of ``other`` stay twice those of ``one`` once they were set so."""
    is_scaled = False
    for _ in range(_TRIAL):
        if not is_scaled and (rate := rate_of(one)):  # a warm-up begins at 0
            scale_learning_rate(other.optimizer, other.scheduler, 2 * rate)  # exact, in binary
            is_scaled = True
        for copy in (one, other):
            if copy.goes_by_metric:
                copy.after_epoch(lambda: 1.0)
            else:
                copy.advance()
        twice = 2 * rate_of(one)
        if is_scaled and abs(rate_of(other) - twice) > _PRECISE * abs(twice):
            return False
    return True


def rate_of(schedule: Schedule) -> float:
    """The first group's, as it would be for the next step."""
    return learning_rate(schedule.optimizer) or 0.0


@contextmanager
def without_drawing(device: torch.device) -> Generator[list[bool]]:
    """Random numbers that are drawn inside are put back; whether any were is in the list then."""
    state, drawn = RandomState(device), list[bool]()
    state.save()
    try:
        yield drawn
    finally:
        drawn.append(state.moved())
        if drawn[0]:
            state.restore()


def _stand_in(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer of the same class that has groups alone, and is stepped by nobody."""
    made = object.__new__(type(optimizer))
    groups = [
        {key: _alone(value) for key, value in group.items() if key != "params"} | {"params": []}
        for group in optimizer.param_groups
    ]
    made.__dict__.update(
        defaults=dict(optimizer.defaults), param_groups=groups, state={}, step=_no_step
    )
    made._opt_called = True  # pyright: ignore[reportAttributeAccessIssue] - a scheduler asks for it
    return made


def _no_step() -> None:
    """Where a scheduler looks whether the optimizer was stepped before it."""


_no_step._wrapped_by_lr_sched = True  # pyright: ignore[reportFunctionMemberAccess] - as torch marks it


def _alone(value: Any) -> Any:
    """Of a group: a tensor on the CPU that nobody else has; plain values as they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    return value


class _Pickler(cloudpickle.Pickler):
    """Names what is shared or stood in for by its number: 0 is the optimizer."""

    def __init__(self, stream: io.BytesIO, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(stream)
        self.shared: list[Any] = []
        self._optimizer = optimizer
        self._num_objects = 0

    def persistent_id(self, obj: Any) -> int | None:
        """The number of what is not copied; None of what is."""
        if obj is self._optimizer:
            return 0
        self._num_objects += 1
        if self._num_objects > _MOST_OBJECTS:
            raise NotCopiedError(f"it holds more than {_MOST_OBJECTS:,} objects")
        if isinstance(obj, torch.Tensor) and obj.numel() <= _SMALL:
            return self._number(_alone(obj))
        if isinstance(obj, (type, torch.Tensor, np.ndarray, *_LOOKED_AT)):
            return self._number(obj)
        if any(obj is one for one in _GENERATORS):
            return self._number(obj)
        return None

    def _number(self, obj: Any) -> int:
        self.shared.append(obj)
        return len(self.shared)


_LOOKED_AT = (nn.Module, torch.optim.Optimizer, DataLoader, Dataset)
"""A function may ask for the length of a loader; it changes none of these."""


_GENERATORS: tuple[Any, ...] = (
    random.random.__self__,
    np.random.random_sample.__self__,
    torch.default_generator,
)
"""Those that everybody draws from: a copy would draw what somebody else will have drawn."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(stream)
        self._shared = shared

    def persistent_load(self, pid: int) -> Any:
        """What has this number."""
        return self._shared[pid]
