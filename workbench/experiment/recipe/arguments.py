"""Check and prepare the arguments of an experiment; each error is one clear sentence."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from workbench.torch_private.compiler import OPTIMIZED_MODULE


def check_model(model: Any) -> nn.Module:
    """Return ``model``, if it can be trained.

    Raises:
        TypeError: it is not a `torch.nn.Module`.
        ValueError: it has no parameters, none that is trainable, or lazy ones without a shape.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise TypeError(
            f"model is the class {model.__name__}; give an instance: {model.__name__}()"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    name = type(model).__name__
    parameters = list(model.parameters())
    if not parameters:
        raise ValueError(f"{name} has no parameters; there is nothing to train")
    if any(is_lazy(p) for p in parameters):
        raise ValueError(f"{name} has lazy parameters; call it once on a batch to give them shapes")
    if not any(p.requires_grad for p in parameters):
        raise ValueError(
            f"{name} has no trainable parameters; call requires_grad_(True) on those to train"
        )
    return model


def uncompiled(model: Any) -> Any:
    """Return the module inside what ``torch.compile(module)`` returns; anything else unchanged."""
    kind = type(model)  # by name: importing Dynamo takes a second
    if (kind.__module__, kind.__name__) != OPTIMIZED_MODULE:
        return model
    return uncompiled(model._orig_mod)


def find_device(device: str | torch.device) -> torch.device:
    """Return the device called ``device``; ``"auto"`` is this machine's accelerator, else the CPU.

    Raises:
        ValueError: it is unknown on this machine, whose devices are listed.
    """
    if device == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return _indexed(found or torch.device("cpu"))
    try:
        wanted = torch.device(device)
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(
            f"unknown device {str(device)!r}; this machine has: {', '.join(_devices())}"
        ) from error
    return _indexed(wanted)


def whole(value: Any, what: str) -> int:
    """Return ``value``, if it is a positive whole number.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} is {value!r}; it must be a whole number from 1")
    return value


def positive(value: Any, what: str) -> float:
    """Return ``value`` as a float, if it is a positive finite number.

    Raises:
        ValueError: it is something else.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise ValueError(f"{what} is {value!r}; it must be a positive finite number")
    return float(value)


def refuse_unknown(unknown: Iterable[str], function: Callable[..., Any], what: str) -> None:
    """Report an argument that ``function``, known to users as ``what``, does not have.

    Raises:
        TypeError: there is one; the message names the closest of those that it has.
    """
    name = next(iter(unknown), None)
    if name is None:
        return
    parameters = inspect.signature(function).parameters.values()
    named = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    valid = [one for one in named if one != "self"]
    near = get_close_matches(name, valid, 1)
    meant = f", did you mean {near[0]}?" if near else "."
    raise TypeError(f"{what} has no argument {name!r}{meant} It has {', '.join(valid)}")


def move(model: nn.Module, device: torch.device) -> nn.Module:
    """Move ``model`` to ``device``, in place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.to(device)


def _indexed(device: torch.device) -> torch.device:
    """Return ``cuda`` as ``cuda:0``: tensors report their device with its index."""
    return device if device.type == "cpu" else torch.empty(0, device=device).device


def _devices() -> list[str]:
    found = ["cpu", "auto"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        count = torch.accelerator.device_count()
        found += [f"{kind.type if kind else 'cuda'}:{index}" for index in range(count)]
    return found
