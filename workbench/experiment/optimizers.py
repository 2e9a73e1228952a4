"""The optimizer and the scheduler: an instance, a callable, or a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from workbench.experiment.setup import positive

_OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-3}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "sgd": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
}
DEFAULT = "adamw"

_GROUP_RATES = {"initial_lr", "max_lr", "min_lr"}
"""What schedulers start from and `OneCycleLR` moves between, in a parameter group."""
_SCHEDULER_RATES = {"base_lrs", "max_lrs"}
"""The same, of every scheduler and of `CyclicLR`, in the scheduler."""


def make_optimizer(
    optimizer: Any, model: nn.Module, *, lr: float | None = None
) -> torch.optim.Optimizer:
    """An optimizer over the trainable parameters of ``model``.

    Args:
        optimizer: None (AdamW), a name, an instance made for this model, or a callable that takes
            the parameters.
        model: the model to train.
        lr: learning rate of an optimizer given by name; its default otherwise.

    Raises:
        TypeError: something that is no optimizer.
        ValueError: an unknown name (the valid ones are listed), an instance that holds none of the
            model's parameters, or a learning rate beside an optimizer that has one.
    """
    named = optimizer is None or isinstance(optimizer, str)
    if lr is not None and not named:
        raise ValueError(
            f"lr={lr} is for an optimizer given by name; {type(optimizer).__name__} has a rate of "
            f"its own: set it there"
        )
    if isinstance(optimizer, torch.optim.Optimizer):
        _check_instance(optimizer, model)
        return optimizer
    parameters = [p for p in model.parameters() if p.requires_grad]
    if named:
        cls, settings = _by_name(optimizer or DEFAULT)
        rate: dict[str, Any] = {} if lr is None else {"lr": positive(lr, "lr")}
        return cls(parameters, **settings | rate)
    if not callable(optimizer):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; {_valid()}")
    made = optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"the optimizer callable returned a {type(made).__name__}; {_valid()}")
    return made


class Schedule:
    """A learning-rate scheduler and when it steps.

    An `lr_scheduler` made for a number of steps steps with every applied update: `OneCycleLR`,
    `CyclicLR`, and anything given as ``("step", scheduler)``. All others step once per epoch, which
    is how torch documents them; `ReduceLROnPlateau` then takes the validation loss, or the training
    loss where there is no validation data.
    """

    def __init__(self, scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
        """Accept None, an instance, a callable that takes the optimizer, or ``(when, either)``.

        Raises:
            ValueError: it is none of these.
        """
        when = None
        if isinstance(scheduler, tuple) and len(scheduler) == 2:
            when, scheduler = scheduler
        if callable(scheduler) and not hasattr(scheduler, "step"):
            scheduler = scheduler(optimizer)
        if scheduler is not None and not hasattr(scheduler, "step"):
            raise ValueError(
                f"scheduler is a {type(scheduler).__name__}; valid: an lr_scheduler, a callable "
                f"that takes the optimizer, or a pair of 'step' or 'epoch' and one of these"
            )
        if when not in (None, "step", "epoch"):
            raise ValueError(f"a scheduler steps per {when!r}; valid: 'step', 'epoch'")
        by_step = isinstance(scheduler, (lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR))
        self.scheduler: Any = scheduler
        self.per_step = scheduler is not None and (when == "step" or (when is None and by_step))
        self.per_epoch = scheduler is not None and not self.per_step

    def after_epoch(self, epoch_loss: Callable[[], float | None]) -> None:
        """Step a per-epoch scheduler; the epoch's loss is asked for only where it is needed."""
        if not self.per_epoch:
            return
        if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
            loss = epoch_loss()
            if loss is not None:
                self.scheduler.step(loss)
        else:
            self.scheduler.step()

    def rebind(self, optimizer: torch.optim.Optimizer) -> None:
        """Go on with another optimizer, whose groups are those of the one before."""
        for part in _parts(self.scheduler):
            part.optimizer = optimizer


def _parts(scheduler: Any) -> list[Any]:
    """A scheduler and those it is made of: `SequentialLR` and `ChainedScheduler` keep a list."""
    if scheduler is None:
        return []
    inner = getattr(scheduler, "_schedulers", ())
    return [scheduler, *(part for one in inner for part in _parts(one))]


def learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    """The learning rate of the first parameter group."""
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return None if rate is None else float(rate)


def scale_learning_rate(optimizer: torch.optim.Optimizer, scheduler: Any, value: float) -> None:
    """Set the first group's rate to ``value`` and keep the others' ratios to it.

    What a scheduler starts from is scaled by the same factor: the ratios are part of the recipe.
    """
    first = learning_rate(optimizer)
    factor = value / first if first else None
    for index, group in enumerate(optimizer.param_groups):
        new = value if index == 0 or factor is None else float(group["lr"]) * factor
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(new)
        else:
            group["lr"] = new
    if factor is not None:
        _scale_schedule(optimizer, scheduler, factor)


def _scale_schedule(optimizer: torch.optim.Optimizer, scheduler: Any, factor: float) -> None:
    for group in optimizer.param_groups:
        for key in _GROUP_RATES & group.keys():
            group[key] = float(group[key]) * factor
    for part in _parts(scheduler):
        for name in _SCHEDULER_RATES & vars(part).keys():
            setattr(part, name, [rate * factor for rate in getattr(part, name)])


def describe_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """``Adam, learning rate 1.0e-3``."""
    rate = learning_rate(optimizer)
    if rate is None:
        return type(optimizer).__name__
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{type(optimizer).__name__}, learning rate {mantissa}e{int(exponent)}"


def _by_name(name: str) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    found = _OPTIMIZERS.get(name.lower())
    if found is None:
        raise ValueError(f"unknown optimizer {name!r}; {_valid()}")
    return found


def _check_instance(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in held for p in model.parameters()):
        raise ValueError(
            "the optimizer holds none of the model's parameters; make it from "
            "model.parameters(), or give a callable: optimizer=lambda p: torch.optim.AdamW(p)"
        )


def _valid() -> str:
    names = ", ".join(_OPTIMIZERS)
    return f"valid: {names}, a torch.optim.Optimizer, or a callable that takes the parameters"
