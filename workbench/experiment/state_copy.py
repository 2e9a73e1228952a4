"""A copy of what a step changes, so that one that fails in its update can be undone too.

A guard (`workbench.experiment.guard`) remembers what a forward changes, in every step and at next
to no cost. What the update changes is weights and moments, and a copy of them costs memory and
time: it is made for a step that is undone in any case (`rehearsal`), and before one that may run
out of memory in the middle of its update.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.parameter import is_lazy

from workbench.experiment.step import clear_gradients

if TYPE_CHECKING:
    from workbench.experiment.training import Training

log = logging.getLogger("workbench")


class StateCopy:
    """A copy, on the CPU, of what a step changes; what lies on a device stays free for the step.

    Args:
        training: to be restored.
        gradients: whether those of the step before are copied too; without, they end as None.
    """

    def __init__(self, training: Training, *, gradients: bool = True) -> None:
        self._training = training
        optimizer = training.optimizer
        groups: list[dict[str, Any]] = optimizer.param_groups
        training.find_parameters()
        # one without a shape yet, of a lazy module that was put in, has no values to copy
        self._parameters = [p for p in training.parameters if not is_lazy(p)]
        self._gradients = [
            None if p.grad is None or not gradients else _copy(p.grad) for p in self._parameters
        ]
        settings = [{key: group[key] for key in group if key != "params"} for group in groups]
        found: dict[int, torch.Tensor] = {
            id(tensor): tensor
            for tensor in (*self._parameters, *training.model.buffers(), *training.loss.buffers())
        }
        self._optimizer = _containers(dict(optimizer.state), found)
        self._settings = _containers(settings, found)
        self._modes = training.modeset.state_dict()
        self._loss = training.loss.state()
        self._values = [(tensor, _copy(tensor)) for tensor in found.values()]

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back, into the same tensors."""
        training = self._training
        for tensor, value in self._values:
            tensor.copy_(value)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        training.optimizer.state.clear()
        training.optimizer.state.update(self._optimizer)
        for group, settings in zip(training.optimizer.param_groups, self._settings, strict=True):
            group.update(settings)
        training.modeset.load_state_dict(self._modes)
        if self._loss is not None:
            self._loss.restore()


def copy_at_risk(training: Training, *, switching: bool) -> StateCopy | None:
    """A copy of the state where the next update may run out of memory half-way.

    On a played card any step may. On a GPU it is the first update, which makes the optimizer's
    state, and those after a change; later ones ask for what was there before.
    """
    if training.card is None and not (switching and training.device.type == "cuda"):
        return None
    return StateCopy(training, gradients=False)


def undo(training: Training, kept: StateCopy | None) -> None:
    """Back to before the step; what was raised in it stays the error that is reported."""
    try:
        if lost := training.guard.restore():
            training.note(
                f"step {training.step_count + 1:,} was undone, but for what it wrote into "
                f"{', '.join(lost)}: nobody had the former values"
            )
        if kept is not None:
            kept.restore()
        clear_gradients(training.optimizer, training.parameters)
    except Exception:
        # after a CUDA assert every call into the device raises
        log.exception("the state before step %d could not be restored", training.step_count + 1)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _containers(value: Any, tensors: dict[int, torch.Tensor]) -> Any:
    """``value`` with containers of its own around the very same tensors, which are noted."""
    if isinstance(value, torch.Tensor):
        tensors[id(value)] = value
    elif isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {key: _containers(item, tensors) for key, item in items}
    elif type(value) in (list, tuple):
        return type(value)(_containers(item, tensors) for item in cast("list[Any]", value))
    return value
