"""Which linear layers of a model are computed in 8 bits, which are not, and why.

A layer is given a ``forward`` of its own that multiplies as the training layers of torchao or
TransformerEngine do (`workbench.modes.precision.float8`). The module is still the user's, with its
Parameter objects, hooks and place in the model: names in ``state_dict``, the optimizer's state and
tied weights do not change, removing the ``forward`` undoes it exactly, and a pickle of the model
has plain layers.

Only modules whose class is exactly `nn.Linear` are converted: a subclass or a parametrized layer
computes in its own way. The weight must be a parameter in float32 or bfloat16 with sides that are
multiples of 16 (mxfp8: 32), which a last layer for 10 classes is not. If the format is native,
layers whose product is too small to gain are left alone too, by the rule that torchao measured on
an H100 (``_auto_filter_for_recipe`` in ``torchao/float8/float8_linear_utils.py``); mxfp8 follows
the rule for rowwise scaling. If it is emulated there is nothing to gain, and size does not matter.
What is left alone runs in bf16, as under ``bf16``. So do layers whose weight is used without
calling the layer, as `nn.MultiheadAttention` does with its projections.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from workbench.modes.core.machine_probes import first_line
from workbench.modes.precision.float8 import MULTIPLES, VALUES, Product, is_native, product

_CONVERTIBLE = (torch.float32, torch.bfloat16)


@dataclass(frozen=True)
class LayerRow:
    """One linear layer of a model."""

    path: str
    """Path of the layer, ``encoder.layers.0.linear1``; ``""`` is the model itself."""
    shape: tuple[int, int]
    """(outputs, inputs)"""
    converted: bool
    reason: str
    """Why it is left alone; ``""`` if it is converted."""


def low_precision_layers(
    model: nn.Module, value: str, *, native: bool | None = None
) -> tuple[LayerRow, ...]:
    """Every `nn.Linear` of ``model`` (subclasses too), and whether ``value`` computes it in 8 bits.

    Args:
        model: the model, which is inspected and not changed; whether the mode is switched on makes
            no difference.
        value: ``fp8``, ``fp8-rowwise`` or ``mxfp8``.
        native: whether the hardware has the format or (False) emulates it; by default this is
            determined by the device of the model's first parameter.

    Raises:
        ValueError: there is no such value; the message lists the valid ones.
    """
    if value not in VALUES:
        raise ValueError(f"unknown precision {value!r}; valid values are: {', '.join(VALUES)}")
    if native is None:
        first = next(model.parameters(), None)
        native = first is not None and is_native(value, first.device)
    return tuple(
        LayerRow(path, (module.out_features, module.in_features), not reason, reason)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear)
        for reason in (_reason(module, value, native=native),)
    )


class LayersInEightBits:
    """The layers of one model that have been given a ``forward``, until they are released."""

    def __init__(self, value: str, *, native: bool) -> None:
        self._value = value
        self._native = native
        self._changed: list[weakref.ref[nn.Module]] = []

    def attach(self, model: nn.Module) -> None:
        """Make every layer that qualifies multiply in 8 bits."""
        forward = _forward_for(self._value, native=self._native)
        for row in low_precision_layers(model, self._value, native=self._native):
            if row.converted:
                module = model.get_submodule(row.path)
                module.__dict__["forward"] = types.MethodType(forward, module)
                self._changed.append(weakref.ref(module))

    def detach(self) -> None:
        """Restore the ``forward`` of its class in every layer, unless it was replaced since."""
        for reference in self._changed:
            module = reference()
            if module is not None and _is_ours(module.__dict__.get("forward")):
                del module.__dict__["forward"]
        self._changed.clear()


def refusal(model: nn.Module, value: str, *, native: bool) -> str:
    """Why ``model`` cannot be trained under ``value``, and what to do, or ``""``.

    Either every layer would be left alone, or the library that multiplies cannot be loaded; the
    latter is tried here, before a model has been changed.
    """
    rows = low_precision_layers(model, value, native=native)
    if any(row.converted for row in rows):
        return _unloadable(value, native=native)
    name = type(model).__name__
    if not rows:
        return f"{name} has no linear layer, and {value} converts no other; use bf16"
    row = rows[-1]
    more = f" (and {len(rows) - 1:,} more are left alone)" if len(rows) > 1 else ""
    layer = f"its layer {row.path!r}" if row.path else "it"
    return f"{value} converts no layer of {name}: {layer} {row.reason}{more}; use bf16"


def _unloadable(value: str, *, native: bool) -> str:
    try:
        product(value, native=native)
    except Exception as error:  # noqa: BLE001 - an import runs whatever was installed
        kind = type(error).__name__
        return f"{value} needs torchao, which failed to load: {kind}: {first_line(error)}; use bf16"
    return ""


def _reason(module: nn.Linear, value: str, *, native: bool) -> str:
    """Why ``module`` is left alone, as the rest of a sentence about it, or ``""``."""
    if type(module) is not nn.Linear:
        return f"is a {type(module).__name__}, which may compute in its own way"
    own = module.__dict__.get("forward")
    if own is not None and not _is_ours(own) and not _is_plain(own):
        return "has a forward of its own"
    if not any(name == "weight" for name, _ in module.named_parameters(recurse=False)):
        return "recomputes its weight in every step"
    weight = module.weight
    if weight.dtype not in _CONVERTIBLE:
        return f"has a weight in {str(weight.dtype).removeprefix('torch.')}"
    outputs, inputs = weight.shape
    multiple = MULTIPLES[value]
    if outputs % multiple or inputs % multiple:
        return f"is {outputs:,} × {inputs:,}, and both have to be multiples of {multiple}"
    if native and _is_small(value, outputs, inputs):
        return f"is {outputs:,} × {inputs:,}, too small to be faster in 8 bits"
    return ""


def _is_small(value: str, outputs: int, inputs: int) -> bool:
    if value == "fp8":
        return inputs <= 4096 and outputs <= 1024
    return outputs <= 2048 or inputs <= 1024 or (outputs <= 4096 and inputs <= 2048)


@cache  # one per value: compiled code that has seen it is found again
def _forward_for(value: str, *, native: bool) -> Callable[..., torch.Tensor]:
    multiply: Product = product(value, native=native)

    def forward(self: nn.Linear, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - nn.Linear's own name
        if not input.numel():  # there is no largest value to scale by
            return nn.functional.linear(input, self.weight, self.bias)
        kind = input.device.type
        if torch.is_autocast_enabled(kind):
            input = input.to(torch.get_autocast_dtype(kind))  # noqa: A001 - as above
        out = multiply(input, self.weight)
        if self.bias is None:  # pyright: ignore[reportUnnecessaryComparison] - nn.Linear(bias=False)
            return out
        return out + self.bias.to(out.dtype)

    _ours.add(forward)
    return forward


_ours: set[Any] = set()


def _is_ours(forward: Any) -> bool:
    return getattr(forward, "__func__", None) in _ours


def _is_plain(forward: Any) -> bool:
    """Whether it is what a pickle of a converted model has: the class's method on an instance."""
    return getattr(forward, "__func__", None) is nn.Linear.forward
