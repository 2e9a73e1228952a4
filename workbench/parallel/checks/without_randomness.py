"""Torch's random operations without randomness: nothing is dropped, and noise has its mean.

Code that compares what a model gives for a batch with what it gives for a part of it needs to see
how samples affect each other, and not that dropout drew other numbers for them. Inside the mode, an
operation that draws random numbers gives every sample the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

import torch

from workbench.torch_private.contexts import TorchDispatchMode
from workbench.torch_private.operators import name_of, schema_arguments

_HALF = 0.5
_FUSED = ("dropout_p", "dropout")
"""Arguments of operations that apply dropout themselves: attention, cuDNN's recurrent layers."""
_SORTS = ("sort", "topk")


class WithoutChance(TorchDispatchMode):
    """While it is on, random operations give every element the same value."""

    def __init__(self) -> None:
        super().__init__()
        self.is_known = True
        """Whether all operations that drew numbers could be made to give each sample the same."""
        self._drawn: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and replace what it drew by a value that all elements share."""
        kind, arguments, fused, draws = _known(func)
        if fused:  # its backward is also given how much was dropped
            args = tuple(0.0 if at in fused else one for at, one in enumerate(args))
            kwargs = {name: 0.0 if name in _FUSED else one for name, one in (kwargs or {}).items()}
        given = cast("Callable[..., Any]", func)(*args, **(kwargs or {}))
        if not draws:
            return self._other_order(given, args) if kind in _SORTS else given
        named = {**dict(zip(arguments, args, strict=False)), **(kwargs or {})}
        kind = kind.rstrip("_").removesuffix("_like")
        if kind in _ONE_NUMBER:
            given = given.fill_(_ONE_NUMBER[kind])
        elif kind in _SETTLED:
            given = _SETTLED[kind](given, named)
        elif not fused:
            self.is_known = False
        self._drawn += [one for one in (given,) if isinstance(one, torch.Tensor)]
        return given

    def _other_order(self, given: Any, args: Any) -> Any:
        """Return the reverse order for drawn numbers, which are all equal, as for a `randperm`."""
        numbers = args[0]
        if not numbers.ndim or not any(numbers.is_set_to(one) for one in self._drawn):
            return given
        values, places = given
        last = numbers.shape[-1] - 1 - torch.arange(places.shape[-1], device=places.device)
        return type(given)((values, last.expand_as(places).clone()))


class _Known(NamedTuple):
    kind: str
    arguments: list[str]
    fused: list[int]
    """Positions of the arguments that say how much is dropped."""
    draws: bool


@cache
def _known(func: Any) -> _Known:
    """Cache what is needed for every operation; torch creates its schema again each time."""
    arguments = [one.name for one in schema_arguments(func)]
    return _Known(
        name_of(func),
        arguments,
        [at for at, name in enumerate(arguments) if name in _FUSED],
        torch.Tag.nondeterministic_seeded in func.tags,
    )


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


def _reversed(given: torch.Tensor, named: dict[str, Any]) -> torch.Tensor:
    """Fill with the reverse order of the samples: what is mixed by it is mixed among them."""
    return given.copy_(torch.arange(int(named["n"]), device=given.device).flip(0))


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
    "randperm": _reversed,
    "multinomial": _likeliest,
    "native_dropout": _nothing_dropped,
}
