"""An exponential moving average of the weights (EMA), evaluated beside the weights themselves.

It is torch's own, `torch.optim.swa_utils.get_ema_multi_avg_fn`: after every step
``average = decay * average + (1 - decay) * weight``, and after the first step it is the weights.
Buffers are not averaged: an evaluation uses those that the model has, as
`torch.optim.swa_utils.AveragedModel` does by default.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import get_ema_multi_avg_fn

from workbench.experiment.loop.step_undo import forward_undone
from workbench.experiment.state.rng import RandomState

if TYPE_CHECKING:
    from torch import nn

    from workbench.experiment.data.sources import DataSource
    from workbench.experiment.loop.validation import Validation
    from workbench.experiment.training import Training


class WeightAverage:
    """Averages the parameters of one model.

    Args:
        decay: between 0 and 1.

    Raises:
        TypeError, ValueError: it is not.
    """

    def __init__(self, decay: Any) -> None:
        if isinstance(decay, bool) or not isinstance(decay, (int, float)):
            raise TypeError(f"ema is a {type(decay).__name__}; valid: a decay such as 0.999")
        if not 0 < decay < 1:
            raise ValueError(f"ema is {decay}; valid: a decay between 0 and 1, such as 0.999")
        self.decay = float(decay)
        self.num_updates = 0
        self.averages: dict[str, torch.Tensor] = {}
        """Name of a parameter -> its average; none before the first step."""
        self._update: Callable[..., Any] = get_ema_multi_avg_fn(self.decay)
        self._kinds: dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]] | None = None
        """(type, device) -> averages and parameters, which one kernel updates."""

    def forget_model(self) -> None:
        """Look for parameters again: the model has been replaced, sharded, or has grown."""
        self._kinds = None

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Include the weights after a step."""
        kinds = self._kinds
        if kinds is None:
            kinds = self._kinds = self._bound(model)
        for averages, weights in kinds.values():
            if self.num_updates:
                self._update(averages, weights, None)
            else:
                for average, weight in zip(averages, weights, strict=True):
                    average.copy_(weight)
        self.num_updates += 1

    def _bound(self, model: nn.Module) -> dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]]:
        """Pair parameters with their averages; one that has none, or another shape, begins anew."""
        before, self.averages = self.averages, {}
        kinds: dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for name, parameter in model.named_parameters():
            if is_lazy(parameter) or not (parameter.is_floating_point() or parameter.is_complex()):
                continue
            weight = parameter.detach()
            average = _placed_like(before.get(name), weight)
            self.averages[name] = average
            averages, weights = kinds.setdefault((weight.dtype, weight.device), ([], []))
            averages.append(average)
            weights.append(weight)
        return kinds

    @contextmanager
    def in_place(self, model: nn.Module) -> Generator[None]:
        """Context in which the model has the averages as its weights; restored to the last bit."""
        named = dict(model.named_parameters())
        pairs = [(named[name], average) for name, average in self.averages.items() if name in named]
        kept = [parameter.detach().clone() for parameter, _ in pairs]
        try:
            with torch.no_grad():
                for parameter, average in pairs:
                    parameter.copy_(average)
            yield
        finally:
            with torch.no_grad():
                for (parameter, _), values in zip(pairs, kept, strict=True):
                    parameter.copy_(values)

    def validated(self, training: Training, source: DataSource) -> Validation:
        """Validate with the averages; the training, and what it draws next, stay as they are.

        Raises:
            Exception: whatever the user's code raised.
        """
        outside = RandomState(training.device)
        outside.save()
        drawn = [generator.get_state() for generator in source.generators]
        try:
            with forward_undone(training), self.in_place(training.model):
                return training.validate(training, source)
        finally:
            outside.restore()
            for generator, state in zip(source.generators, drawn, strict=True):
                generator.set_state(state)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the averages by their full names in a checkpoint."""
        return {f"ema.{name}": average for name, average in self.averages.items()}

    def take(self, averages: dict[str, torch.Tensor], num_updates: int) -> None:
        """Continue from these averages, by the names of their parameters."""
        self.averages, self.num_updates = averages, num_updates
        self.forget_model()


def averaged_state_dict(training: Training) -> dict[str, Any]:
    """Return a copy of the model's ``state_dict`` with the averages as its weights.

    Raises:
        RuntimeError: there are none.
    """
    average = training.ema
    if average is None or not average.num_updates:
        why = "has done no step yet" if average else "averages no weights: give ema=0.999"
        raise RuntimeError(f"{training.name} {why}")
    with average.in_place(training.model):
        return copy.deepcopy(dict(training.model.state_dict()))


def _placed_like(average: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
    """Return an average with the shape, type and place of its weight; a copy of that if new."""
    if average is None or average.shape != weight.shape:
        return weight.clone()
    if _is_sharded(weight) and not _is_sharded(average):
        from torch.distributed.tensor import distribute_tensor

        like: Any = weight
        whole = average.to(weight.device, weight.dtype)
        return distribute_tensor(whole, like.device_mesh, like.placements)
    if _is_sharded(average) and not _is_sharded(weight):
        sharded: Any = average
        return sharded.full_tensor().to(weight.device, weight.dtype)
    return average.to(weight.device, weight.dtype)


def _is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a `DTensor`, whose module takes half as long to import as torch."""
    return hasattr(tensor, "device_mesh")
