"""Which user runs a model under modes: only one at a time may change a model.

Modes change a model in place, and restore what they found. Two that did so to one model at the same
time would each restore the other's work. So a model that `workbench.Modes` has prepared belongs to
it until it is removed, and one that an experiment has attached belongs to the experiment until it
is closed. Nothing here keeps a model, a set of modes or their user alive.
"""

from __future__ import annotations

import weakref
from typing import Protocol

import torch
from torch import nn
from torch.nn.parameter import is_lazy


class Tenant(Protocol):
    """An object that has prepared models; its ``str`` is its modes."""

    def runs(self, modeset: object) -> bool:
        """Whether ``modeset`` is its own."""
        ...


_tenants: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Tenant]] = weakref.WeakKeyDictionary()
_attached: weakref.WeakKeyDictionary[nn.Module, weakref.ref[object]] = weakref.WeakKeyDictionary()


def take(model: nn.Module, tenant: Tenant) -> None:
    """Assign ``model``, and every module in it, to ``tenant``.

    Raises:
        RuntimeError: it, or a part of it, is already prepared, or an experiment uses it.
    """
    refuse_prepared(model, error=RuntimeError)
    user = _attached.get(model)
    if user is not None and (modeset := user()) is not None:
        raise RuntimeError(
            f"{type(model).__name__} is trained by an experiment, with modes {str(modeset)!r}; "
            "close that first: exp.close()"
        )
    for module in model.modules():
        _tenants[module] = weakref.ref(tenant)


def leave(model: nn.Module) -> None:
    """Release ``model`` from its tenant."""
    for module in model.modules():
        _tenants.pop(module, None)


def refuse_prepared(model: nn.Module, *, error: type[Exception] = ValueError) -> None:
    """Refuse a model that a `workbench.Modes` has prepared, or of which it has prepared a part.

    Raises:
        ValueError: or ``error``; the message says how to release the model.
    """
    found = _prepared_in(model)
    if found is not None:
        module, tenant = found
        name, part = type(model).__name__, type(module).__name__
        what = name if module is model else f"{part}, a part of {name},"
        raise error(
            f"{what} is prepared already, by wb.Modes({str(tenant)!r}): its set(...) changes the "
            "modes, its remove() gives the model back"
        )


def attaching(model: nn.Module, modeset: object) -> None:
    """Record that ``modeset`` changes ``model`` from now on.

    Raises:
        RuntimeError: a `workbench.Modes` has prepared it with modes of its own.
    """
    found = _prepared_in(model)
    if found is None:
        _attached[model] = weakref.ref(modeset)
    elif not found[1].runs(modeset):
        refuse_prepared(model, error=RuntimeError)


def _prepared_in(model: nn.Module) -> tuple[nn.Module, Tenant] | None:
    """The outermost module of ``model`` that has a tenant, with that tenant."""
    for module in model.modules():
        reference = _tenants.get(module)
        tenant = reference() if reference is not None else None
        if tenant is not None:
            return module, tenant
    return None


def detached(model: nn.Module, modeset: object) -> None:
    """Record that ``modeset`` has restored what it changed."""
    user = _attached.get(model)
    if user is not None and user() is modeset:
        del _attached[model]


def device_of(model: nn.Module) -> torch.device:
    """Return the one device that ``model`` is on.

    Raises:
        TypeError: it is not a `torch.nn.Module`.
        ValueError: it is on several devices or on the meta device, has lazy parameters, or has no
            parameters and no buffers.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise TypeError(f"prepare was given the class {model.__name__}; give {model.__name__}()")
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not type-check
        raise TypeError(f"prepare takes a torch.nn.Module, got {type(model).__name__}")
    name, tensors = type(model).__name__, [*model.parameters(), *model.buffers()]
    if any(is_lazy(tensor) for tensor in tensors):
        raise ValueError(f"{name} has lazy parameters; call it once on a batch to give them shapes")
    devices = sorted({str(tensor.device) for tensor in tensors})
    if not devices:
        raise ValueError(f"{name} has no parameters and no buffers: no mode can change it")
    if "meta" in devices:
        raise ValueError(
            f"{name} has tensors on the meta device, which have no values; give them some first: "
            "model.to_empty(device=...) and initial weights"
        )
    if len(devices) > 1:
        raise ValueError(
            f"{name} is on {' and '.join(devices)}; modes work on one device: prepare each part "
            "that is on one with a wb.Modes of its own"
        )
    return torch.device(devices[0])
