"""A step that is computed to be looked at, and then undone.

A run that is over is not begun again because somebody wants to see its graph or its memory: the
step that would come next is computed with everything in it, the optimizer's update included, and
weights, buffers, gradients, optimizer, gradient scaler, random states and the position in the data
are put back. Nothing of it is logged. (What a forward changes in Python objects of its own is the
one thing that cannot be put back.)
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

import torch

from workbench.experiment.rng import RandomState
from workbench.experiment.switch import first_step

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.records import Record

NOT_APPLIED = (
    "The run was over: this is the step that would come next, computed for the capture and not "
    "applied."
)


def rehearse(training: Training) -> None:
    """Compute the next step for the probes that wait, and leave the training as it was.

    Raises:
        Exception: whatever the step raises.
    """
    outside = RandomState(training.device)
    outside.save()
    try:
        training.begin()
        _step(training)
    finally:
        outside.restore()


def noted(record: Record) -> Record:
    """``record`` with a note that its step was not applied, where it has notes."""
    notes: tuple[str, ...] | None = getattr(record, "notes", None)
    if notes is None:
        return record
    changed: Any = dataclasses.replace(cast("Any", record), notes=(*notes, NOT_APPLIED))
    return changed


def _step(training: Training) -> None:
    batch = training.cursor.preview()
    kept = _State(training)
    training.guard.remember(exactly=True)
    training.rehearsing = True
    try:
        if training.attached is not training.modeset:
            first_step(training, batch)
        else:
            training.run_step(batch)
    finally:
        training.rehearsing = False
        kept.restore()


class _State:
    """A copy, on the CPU, of what a step changes; what lies on a device stays free for the step."""

    def __init__(self, training: Training) -> None:
        self._training = training
        optimizer = training.optimizer
        groups: list[dict[str, Any]] = optimizer.param_groups
        trained = [parameter for group in groups for parameter in group["params"]]
        self._parameters = list({id(p): p for p in [*training.parameters, *trained]}.values())
        self._gradients = [None if p.grad is None else _copy(p.grad) for p in self._parameters]
        settings = [{key: group[key] for key in group if key != "params"} for group in groups]
        found: dict[int, torch.Tensor] = {
            id(tensor): tensor for tensor in (*self._parameters, *training.model.buffers())
        }
        self._optimizer = _containers(dict(optimizer.state), found)
        self._settings = _containers(settings, found)
        self._modes = training.modeset.state_dict()
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
