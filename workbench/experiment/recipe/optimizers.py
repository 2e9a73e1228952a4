"""The optimizer: an instance, a callable, or a name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn

from workbench.experiment.recipe.arguments import positive
from workbench.experiment.recipe.learning_rate import learning_rate, worded

_OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-3}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "sgd": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
}
DEFAULT = "adamw"


def make_optimizer(
    optimizer: Any,
    model: nn.Module,
    *,
    lr: float | None = None,
    of_loss: Sequence[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """Return an optimizer over the trainable parameters of ``model`` and of its loss.

    Args:
        optimizer: None (AdamW), a name, an instance made for this model, or a callable that takes
            the parameters.
        model: the model to train.
        lr: learning rate of an optimizer given by name; its default otherwise.
        of_loss: parameters of the loss.

    Raises:
        TypeError: ``optimizer`` is not an optimizer.
        ValueError: an unknown name (the valid ones are listed), an instance that holds none of the
            model's parameters or not those of the loss, one that needs a closure, or a learning
            rate in addition to an optimizer that has one.
    """
    named = optimizer is None or isinstance(optimizer, str)
    if lr is not None and not named:
        raise ValueError(
            f"lr={lr} is for an optimizer given by name; {type(optimizer).__name__} has a rate of "
            f"its own: set it there"
        )
    if isinstance(optimizer, torch.optim.Optimizer):
        _check_instance(optimizer, model, of_loss)
        _bring_state(optimizer)
        return optimizer
    once = {id(p): p for p in (*model.parameters(), *of_loss)}  # a loss may hold the model too
    parameters = [p for p in once.values() if p.requires_grad]
    if named:
        cls, settings = _by_name(optimizer or DEFAULT)
        rate: dict[str, Any] = {} if lr is None else {"lr": positive(lr, "lr")}
        return cls(parameters, **settings | rate)
    if not callable(optimizer):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; {_valid()}")
    made = optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"the optimizer callable returned a {type(made).__name__}; {_valid()}")
    _check_instance(made, model, of_loss)
    return made


def _bring_state(optimizer: torch.optim.Optimizer) -> None:
    """Move the state of ``optimizer`` to the devices of its parameters.

    Adagrad creates it at construction, and so does loading a state, both possibly before the model
    was moved to its device. Counts of updates stay, unless the optimizer reads them on the device.
    """
    for group in optimizer.param_groups:
        reads_there = group.get("capturable") or group.get("fused")
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items() if isinstance(state, dict) else ():
                is_of_device = isinstance(value, torch.Tensor) and (name != "step" or reads_there)
                if is_of_device and value.device != parameter.device:
                    state[name] = value.to(parameter.device)


def describe_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """Describe ``optimizer``: ``Adam, learning rate 1.0e-3``."""
    rate = learning_rate(optimizer)
    if rate is None:
        return type(optimizer).__name__
    return f"{type(optimizer).__name__}, learning rate {worded(rate)}"


def _by_name(name: str) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    found = _OPTIMIZERS.get(name.lower())
    if found is None:
        raise ValueError(f"unknown optimizer {name!r}; {_valid()}")
    return found


def _check_instance(
    optimizer: torch.optim.Optimizer, model: nn.Module, of_loss: Sequence[nn.Parameter]
) -> None:
    name = type(optimizer).__name__
    if _needs_closure(optimizer):
        raise ValueError(
            f"{name} computes the loss several times in one step, from a closure; a step of an "
            "experiment computes it once. Valid is any optimizer whose step() takes no closure: "
            f"{', '.join(_OPTIMIZERS)} by name, or one of torch.optim; or train in a loop of your "
            "own, with wb.Modes and wb.graph"
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in held for p in model.parameters()):
        raise ValueError(
            "the optimizer holds none of the model's parameters; make it from "
            "model.parameters(), or give a callable: optimizer=lambda p: torch.optim.AdamW(p)"
        )
    left_out = [p for p in of_loss if p.requires_grad and id(p) not in held]
    if left_out:
        raise ValueError(
            f"the loss has {len(left_out)} trainable parameter{'s' if len(left_out) > 1 else ''} "
            f"(of shape {list(left_out[0].shape)}) that {name} does not hold, so it would never "
            "learn: make it from [*model.parameters(), *loss.parameters()], give a callable "
            "(optimizer=lambda p: ...) that is handed both, or freeze the loss with "
            "requires_grad_(False)"
        )


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether ``step()`` cannot be called without a closure.

    In torch.optim it is optional in all optimizers but LBFGS; elsewhere the signature shows it.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        return True
    try:
        parameters = inspect.signature(type(optimizer).step).parameters
    except (TypeError, ValueError):
        return False
    closure = parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _valid() -> str:
    names = ", ".join(_OPTIMIZERS)
    return f"valid: {names}, a torch.optim.Optimizer, or a callable that takes the parameters"


def optimizers_in(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return ``optimizer``, and those that it wraps to step with (SAM, Lookahead)."""
    found = [optimizer]
    for one in found:
        for value in vars(one).values():
            parts = cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]
            found += [
                part
                for part in parts
                if isinstance(part, torch.optim.Optimizer) and all(part is not f for f in found)
            ]
    return found
