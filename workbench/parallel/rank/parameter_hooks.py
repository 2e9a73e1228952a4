"""Hooks on the gradients of parameters, called on ranks with what one process calls them with.

Autograd would call a hook on a rank with the gradient of that rank's rows, before ranks sum theirs.
For a mask or a factor the result would be the same, but not for a clamp, a norm or a step that the
hook takes, and under `fsdp` the hook would never be called: gradients reach a shard without
autograd. So the hooks are removed from the parameters, and called once the gradients of all ranks
are summed, whole, before anything else reads them: those of a tensor first, which may return
another gradient, then those that torch calls after it was accumulated. In one process the
parameters near the loss come first; so they do here.

Whatever a hook depends on must be the same on all ranks, or their weights diverge. Ranks compare
what hooks have made of the gradients in every step that has some: one small collective.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn

from workbench.experiment.state.attachments import TENSOR_HOOKS
from workbench.parallel.sentences import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _Hooked(NamedTuple):
    """A parameter, and the dictionaries of its hooks, to which handles point."""

    name: str
    parameter: nn.Parameter
    of_tensor: Mapping[int, Callable[..., Any]]
    accumulated: Mapping[int, Callable[..., Any]]


class ParameterHooks:
    """The hooks on the parameters of a model, which are removed from them.

    Args:
        model: the model before it is laid out over the ranks; every rank must create this object.
    """

    def __init__(self, model: nn.Module) -> None:
        self._hooked: list[_Hooked] = []
        for name, parameter in reversed(list(model.named_parameters())):
            of_tensor, accumulated = (getattr(parameter, one) or {} for one in TENSOR_HOOKS)
            if of_tensor or accumulated:
                self._hooked.append(_Hooked(name, parameter, of_tensor, accumulated))
                for one in TENSOR_HOOKS:  # None would leave the second kind where C++ calls them
                    setattr(parameter, one, OrderedDict())

    def why_whole(self) -> str:
        """Return why an update under `fsdp` must see whole gradients; ``""`` without hooks."""
        if not self._hooked:
            return ""
        return f"hooks see the gradient of {listed(one.name for one in self._hooked)} whole"

    def call(self) -> None:
        """Call the hooks, once gradients are summed and whole; every rank must call it.

        Raises:
            RuntimeError: hooks have given ranks different gradients.
            Exception: whatever a hook raises.
        """
        if not self._hooked:
            return
        with torch.no_grad():  # as in a backward that keeps no graph
            self._call_each()
        self._compare()

    def _call_each(self) -> None:
        for one in self._hooked:
            parameter = one.parameter
            if parameter.grad is None:
                continue
            gradient, parameter.grad = parameter.grad, None  # it is not accumulated yet
            for hook in tuple(one.of_tensor.values()):
                made = hook(gradient)
                gradient = gradient if made is None else made
            parameter.grad = gradient
            for hook in tuple(one.accumulated.values()):
                hook(parameter)

    @torch.no_grad()
    def _compare(self) -> None:
        """Check that all ranks continue with the same gradients and weights."""
        sums = [_digest(one.parameter) for one in self._hooked]
        device = self._hooked[0].parameter.device
        seen = torch.tensor([*sums, *(-one for one in sums)], dtype=torch.float64, device=device)
        dist.all_reduce(seen, dist.ReduceOp.MAX)
        most = cast("list[float]", seen.tolist())
        least = [-one for one in most[len(sums) :]]
        apart = [
            one.name
            for one, high, low in zip(self._hooked, most, least, strict=False)
            if high != low
        ]
        if apart:
            raise RuntimeError(
                f"a hook on {listed(apart)} has made something else of the same gradient on "
                "another rank, so their weights would come apart: it goes by something that each "
                "rank has of its own, as the rows of its part of a batch, or its number. Let it go "
                "by the gradient and the weights alone, or train in one process"
            )


def _digest(parameter: nn.Parameter) -> float:
    """Return a number for values and gradient; another check finds what is not finite."""
    found = 0.0
    for weight, tensor in enumerate((parameter.detach(), parameter.grad), start=1):
        if tensor is not None:
            dense = tensor.to_dense() if tensor.is_sparse else tensor
            number = float(dense.abs().double().sum() + 3 * dense.real.double().sum())
            found += weight * number if math.isfinite(number) else 0.0
    return found
