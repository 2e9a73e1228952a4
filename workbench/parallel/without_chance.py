"""Torch's random operations without chance: nothing is dropped, and noise has its mean.

Who compares what a model gives for a batch with what it gives for a part of it wants to see what
samples do to each other, and not that dropout drew other numbers for them. Inside, every sample is
given the same by an operation that draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_HALF = 0.5
_FUSED = ("dropout_p", "dropout")
"""Arguments of operations that drop by themselves: attention, recurrent layers of cuDNN."""


class WithoutChance(TorchDispatchMode):
    """While it is on, random operations give every element alike."""

    def __init__(self) -> None:
        super().__init__()
        self.is_known = True
        """Whether all that drew could be made to give each sample the same."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and put what it drew by what all elements have in common."""
        given = cast("Callable[..., Any]", func)(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return given
        named = {one.name: value for one, value in zip(func._schema.arguments, args, strict=False)}
        named |= kwargs or {}
        kind = func._schema.name.split("::")[1]
        kind = kind.rstrip("_").removesuffix("_like")
        if kind in _ONE_NUMBER:
            return given.fill_(_ONE_NUMBER[kind])
        if kind in _SETTLED:
            return _SETTLED[kind](given, named)
        fused = [one.name for one in func._schema.arguments if one.name in _FUSED]
        if not fused or any(named.get(one) for one in fused):
            self.is_known = False
        return given


def _uniform(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    low, high = named.get("from", 0.0), named.get("to", 1.0)
    return given.fill_(low + _HALF * (high - low))


def _normal(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    mean = named.get("mean", 0.0)
    return given.copy_(mean) if isinstance(mean, torch.Tensor) else given.fill_(mean)


def _integers(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    return given.fill_(int(named.get("low") or named.get("from") or 0))


def _exponential(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    return given.fill_(1.0 / named.get("lambd", 1.0))


def _in_order(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    return given.copy_(torch.arange(int(named["n"]), device=given.device))


def _likeliest(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    weights = named["self"]
    if given.shape[-1] <= weights.shape[-1]:
        return given.copy_(weights.topk(given.shape[-1], -1).indices)
    return given.copy_(weights.argmax(-1, keepdim=True).expand_as(given))


def _nothing_dropped(
    given: tuple[torch.Tensor, torch.Tensor], named: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    output, mask = given
    return output.copy_(named["input"]), torch.ones_like(mask)


_ONE_NUMBER = {"bernoulli": 1, "randn": 0, "cauchy": 0, "geometric": 1, "log_normal": 1}
_SETTLED: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "rand": _uniform,
    "uniform": _uniform,
    "normal": _normal,
    "randint": _integers,
    "random": _integers,
    "exponential": _exponential,
    "randperm": _in_order,
    "multinomial": _likeliest,
    "native_dropout": _nothing_dropped,
}
