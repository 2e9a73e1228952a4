"""Copy of a schedule that can be stepped without affecting the one that trains.

The copy has the scheduler's own classes, functions and numbers, and an optimizer that has only
parameter groups, without parameters. Whatever the user's code could write is copied by value
(cloudpickle): functions with the globals that they name, classes with their attributes, arrays,
small tensors, torch's generators, and, of models, datasets, loaders and samplers, the plain values
and what is of the user's own classes. So a function that counts its calls, or takes rates from an
iterator, does so on a copy.

Shared are libraries, large tensors, large arrays (read-only), and what a model, dataset or loader
holds in objects of libraries and in long lists: the one assumption is that a function of the
learning rate writes none of these. A schedule that holds something that cannot be copied (a
generator, a lock, a user's module that a function uses as a whole) cannot be copied either.
"""

from __future__ import annotations

import dis
import enum
import functools
import io
import pickle
import random
import types
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import cloudpickle
import numpy as np
import torch
from cloudpickle.cloudpickle import (
    _dynamic_class_reduce,  # pyright: ignore[reportPrivateUsage] - it has no other way to copy one
)
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from workbench.experiment.recipe.learning_rate import learning_rate, parts_of, scale_learning_rate
from workbench.experiment.recipe.schedules import Schedule
from workbench.experiment.state.rng import RandomState
from workbench.experiment.state.user_code import may_be_user_module

_MOST_OBJECTS = 20_000
"""Maximum number of objects: a scheduler holds some dozen, and one that refers to so many holds
more than a schedule."""
_SMALL = 1024
"""Maximum number of elements of a tensor that is copied: a rate may be one."""
_TRIAL = 24
"""Number of steps for which two copies are compared."""
_PRECISE = 1e-5
"""Relative precision that a rate in float32 may lose on the way."""


class NotCopiedError(ValueError):
    """A schedule cannot be copied; the message is the part of a sentence that says why."""


def copied(schedule: Schedule, optimizer: torch.optim.Optimizer) -> Schedule:
    """Copy ``schedule``, and the groups of ``optimizer``, to the CPU.

    It is called between two steps, on the thread that computes them.

    Raises:
        NotCopiedError: it holds something that cannot be copied, or far too much.
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
    """Return whether a step of ``schedule`` calls functions or classes that are not torch's."""
    return any(
        not type(part).__module__.startswith("torch.optim.")
        or hasattr(part, "lr_lambdas")
        or getattr(part, "_scale_fn_custom", None) is not None
        for part in parts_of(schedule.scheduler)
    )


def is_scalable(schedule: Schedule, optimizer: torch.optim.Optimizer) -> bool | None:
    """Return whether `scale_learning_rate` reaches all rates of ``schedule``; None if not known.

    It does for torch's classes; a user-defined class may use rates of its own, and is tried on two
    copies.
    """
    if all(type(p).__module__.startswith("torch.optim.") for p in parts_of(schedule.scheduler)):
        return True
    try:
        return _tried(copied(schedule, optimizer), copied(schedule, optimizer))
    except Exception:  # noqa: BLE001 - the user's code; what it raises it raises in training too
        return None


def _tried(one: Schedule, other: Schedule) -> bool:
    """Return whether rates of ``other`` stay twice those of ``one`` once they were set so."""
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
    """Return the first group's rate, as it would be for the next step."""
    return learning_rate(schedule.optimizer) or 0.0


@contextmanager
def without_drawing(device: torch.device) -> Generator[list[bool]]:
    """Restore random states on exit; the yielded list then holds whether any number was drawn."""
    state, drawn = RandomState(device), list[bool]()
    state.save()
    try:
        yield drawn
    finally:
        drawn.append(state.moved())
        if drawn[0]:
            state.restore()


def _stand_in(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Create an optimizer of the same class that has only groups, and is never stepped."""
    made = object.__new__(type(optimizer))
    groups = [
        {key: _alone(value) for key, value in group.items() if key != "params"} | {"params": []}
        for group in optimizer.param_groups
    ]
    made.__dict__.update(
        defaults=dict(optimizer.defaults), param_groups=groups, state={}, step=_no_step
    )
    made._opt_called = True  # pyright: ignore[reportAttributeAccessIssue] - a scheduler reads it
    return made


def _no_step() -> None:
    """Stand in for the ``step`` by which a scheduler checks if the optimizer was stepped first."""


_no_step._wrapped_by_lr_sched = True  # pyright: ignore[reportFunctionMemberAccess] - as torch marks it


def _alone(value: Any) -> Any:
    """Copy a tensor of a group to the CPU; return plain values as they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    return value


class _Shared:
    """Wrapper of what a model, dataset, loader or sampler holds and is not copied."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Pickler(cloudpickle.Pickler):
    """Pickles what is shared or replaced as its number: 0 is the optimizer."""

    def __init__(self, stream: io.BytesIO, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(stream)
        self.shared: list[Any] = []
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._optimizer = optimizer
        self._num_objects = 0

    def persistent_id(self, obj: Any) -> int | None:
        """Return the number of what is not copied, or copied in another way; None for all else."""
        if obj is self._optimizer:
            return 0
        self._num_objects += 1
        if self._num_objects > _MOST_OBJECTS:
            raise NotCopiedError(f"it holds more than {_MOST_OBJECTS:,} objects")
        if isinstance(obj, _Shared):
            return self._number(obj.value, _itself)
        if isinstance(obj, torch.Tensor):
            return self._number(obj, _alone if obj.numel() <= _SMALL else _itself)
        if isinstance(obj, np.ndarray) and obj.size > _SMALL and not obj.dtype.hasobject:
            return self._number(obj, _to_be_read)
        if isinstance(obj, torch.optim.Optimizer):
            return self._number(obj, _stand_in)
        if any(obj is one for one in _GENERATORS):
            return self._number(obj, _itself)
        if isinstance(obj, torch.Generator):
            return self._number(obj, _generator_like)
        return None

    def reducer_override(self, obj: Any) -> Any:
        """Return how what could keep state is copied, wherever it was imported from."""
        if isinstance(obj, types.FunctionType) and may_be_user_module(obj.__module__):
            _refuse_modules(obj.__code__)
            return self._dynamic_function_reduce(obj)
        if isinstance(obj, functools._lru_cache_wrapper):  # pyright: ignore[reportPrivateUsage] - its only name
            cached = cast("Any", obj)
            return _cached_again, (cached.__wrapped__, cached.cache_parameters())
        if (
            isinstance(obj, type)
            and may_be_user_module(obj.__module__)
            and not issubclass(obj, enum.Enum)
        ):
            return _class_apart(cast("type[Any]", obj))
        if isinstance(obj, types.ModuleType) and may_be_user_module(obj.__name__):
            raise NotCopiedError(f"a function of it uses the module {obj.__name__}")
        if isinstance(obj, _INSPECTED):
            held = {
                key: value if _may_be_written(key, value) else _Shared(value)
                for key, value in vars(cast("Any", obj)).items()
            }
            return _bare, (type(cast("Any", obj)),), held, None, None, _fill
        return super().reducer_override(obj)

    def _number(self, obj: Any, make: Callable[[Any], Any]) -> int:
        """Return one number for each object, which is kept alive so that its id is unique."""
        if id(obj) not in self._numbers:
            self.shared.append(make(obj))
            self._numbers[id(obj)] = len(self.shared), obj
        return self._numbers[id(obj)][0]


def _refuse_modules(code: types.CodeType) -> None:
    """Refuse a function that imports a user's module as it runs: that module is not a copy."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and may_be_user_module(instruction.argval):
            raise NotCopiedError(f"a function of it imports {instruction.argval}")
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _refuse_modules(inner)


def _class_apart(cls: type[Any]) -> tuple[Any, ...]:
    """Return how a class is copied: without the name by which cloudpickle would find it again."""
    make, given, *rest = _dynamic_class_reduce(cls)
    return make, (*given[:4], None, *given[5:]), *rest


def _cached_again(function: Any, options: dict[str, Any]) -> Any:
    return functools.lru_cache(**options)(function)


def _may_be_written(key: str, value: Any) -> bool:
    """Return whether an attribute of one of `_INSPECTED` may be written.

    Hooks are not, as only a forward calls them.
    """
    if "_hooks" in key or (isinstance(value, _CONTAINERS) and len(cast("Any", value)) > _SMALL):
        return False
    if isinstance(value, (torch.Tensor, torch.Generator, np.ndarray, *_INSPECTED)):
        return True
    module = type(value).__module__
    return module in ("builtins", "collections") or may_be_user_module(module)


def _bare(cls: type[Any]) -> Any:
    return object.__new__(cls)


def _fill(obj: Any, held: dict[str, Any]) -> Any:
    obj.__dict__.update(held)
    return obj


def _itself(obj: Any) -> Any:
    return obj


def _generator_like(generator: torch.Generator) -> torch.Generator:
    """Return a generator that draws the same numbers."""
    made = torch.Generator(generator.device)
    made.set_state(generator.get_state())
    return made


def _to_be_read(array: Any) -> Any:
    """Return a view of the same numbers that cannot be written."""
    view = array.view()
    view.flags.writeable = False
    return view


_INSPECTED = (nn.Module, DataLoader, Dataset, Sampler)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


_GENERATORS: tuple[Any, ...] = (
    random.random.__self__,
    np.random.random_sample.__self__,
    torch.default_generator,
)
"""The global generators: a copy would draw numbers that other code is going to draw."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(stream)
        self._shared = shared

    def persistent_load(self, pid: int) -> Any:
        """Return the object that has this number."""
        return self._shared[pid]
