"""What people attach to a model or an optimizer: hooks with an effect, a count or an average.

Each is a function that attaches it and gives a function that says what it holds: a number of calls,
tensors, whatever of it must go on while ranks train.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import swa_utils

Held = Callable[[], dict[str, Any]]
Attach = Callable[[nn.Module, torch.optim.Optimizer], Held]


def _nothing() -> dict[str, Any]:
    return {}


def _largest(model: nn.Module) -> nn.Parameter:
    return max((p for p in model.parameters() if p.requires_grad), key=lambda p: p.numel())


def _gradient_mask(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    weight = _largest(model)
    mask = (torch.arange(weight.numel()).view_as(weight) % 2).to(weight.dtype)
    weight.register_hook(lambda gradient: gradient * mask)
    return _nothing


def _gradient_clamp(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    """Not linear: of a rank's gradient it is not that of the whole."""
    _largest(model).register_hook(lambda gradient: gradient.clamp(-0.02, 0.02))
    return _nothing


def _accumulated(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    def halve(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            parameter.grad.mul_(0.5)

    _largest(model).register_post_accumulate_grad_hook(halve)
    return _nothing


class Calls:
    """A hook that counts its calls in train mode, and changes what goes through."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        if module.training:
            self.count += 1
        return output * (1 + 0.01 * self.count)


def _layer(model: nn.Module) -> nn.Module:
    return next(m for m in model.modules() if isinstance(m, (nn.Linear, nn.Embedding, nn.Conv1d)))


def _forward_hook(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    hook = Calls()
    _layer(model).register_forward_hook(hook)
    return lambda: {"calls of a forward hook": hook.count}


def _scales(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    """The same whenever it is called."""
    _layer(model).register_forward_hook(lambda _module, _inputs, output: 1.5 * output)
    return _nothing


def _own_forward_hook(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    """Keeps its count on the module."""
    layer: Any = _layer(model)
    layer.calls = 0

    def count(module: Any, _inputs: Any) -> None:
        module.calls += module.training

    layer.register_forward_pre_hook(count)
    return _nothing


class Backwards:
    """A hook that counts its calls; a copy of the model, as of another rank, has another."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_arguments: Any) -> None:
        self.count += 1


def _backward_hook(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Held:
    hook = Backwards()
    _layer(model).register_full_backward_hook(hook)
    return lambda: {"calls of a backward hook": hook.count}


def _average(model: nn.Module, optimizer: torch.optim.Optimizer) -> Held:
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
    optimizer.register_step_post_hook(lambda *_arguments: average.update_parameters(model))

    def held() -> dict[str, Any]:
        tensors = {f"average.{name}": p for name, p in average.module.named_parameters()}
        return {"updates of an average": int(average.n_averaged), **tensors}

    return held


def _before_update(model: nn.Module, optimizer: torch.optim.Optimizer) -> Held:
    def halve(given: torch.optim.Optimizer, *_arguments: Any) -> None:
        for group in given.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(0.5)

    optimizer.register_step_pre_hook(halve)
    return _nothing


ATTACHED: dict[str, Attach] = {
    "": lambda model, optimizer: _nothing,
    "gradient mask": _gradient_mask,
    "gradient clamp": _gradient_clamp,
    "accumulated gradient halved": _accumulated,
    "output scaled by a hook": _scales,
    "forward hook": _forward_hook,
    "forward hook that counts on the module": _own_forward_hook,
    "backward hook": _backward_hook,
    "average in an optimizer's hook": _average,
    "gradients halved in an optimizer's hook": _before_update,
}


def hooks_of(model: nn.Module) -> tuple[int, ...]:
    """How many hooks parameters and modules have; an experiment leaves none of its own there."""
    parameters: list[Any] = list(model.parameters())
    modules: list[Any] = list(model.modules())
    return (
        sum(len(p._backward_hooks or ()) for p in parameters),
        sum(len(p._post_accumulate_grad_hooks or ()) for p in parameters),
        *(
            sum(len(getattr(module, name)) for module in modules)
            for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        ),
    )
