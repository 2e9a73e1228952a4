"""A copy of what a step changes, so that one that fails in its update can be undone too.

A guard (`workbench.experiment.guard`) remembers what a forward changes, in every step and at next
to no cost. What the update changes is weights and moments, and a copy of them costs memory and
time: it is made for a step that is undone in any case (`rehearsal`), and before one that may run
out of memory in the middle of its update.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from workbench.experiment.object_copy import ObjectCopy
from workbench.experiment.step import clear_gradients
from workbench.experiment.swap import optimizers_in

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
        # one without a shape yet, of a lazy module that was put in, has no values to copy
        self._parameters = [p for p in training.list_parameters() if not is_lazy(p)]
        self._gradients = [
            None if p.grad is None or not gradients else _copy(p.grad) for p in self._parameters
        ]
        # a layer that the step makes joins a group, and stays where it is
        every = [group["params"] for one in optimizers_in(optimizer) for group in one.param_groups]
        self._objects = ObjectCopy({type(optimizer).__name__: optimizer}, opaque=every)
        found: dict[int, torch.Tensor] = {
            id(tensor): tensor
            for tensor in chain(
                self._parameters, training.model.buffers(), training.loss.buffers(), *every
            )
        }
        found |= self._objects.tensors
        self._modes = training.modeset.state_dict()
        self._loss = training.loss.state()
        self._values = [(tensor, _copy(tensor)) for tensor in found.values() if not is_lazy(tensor)]

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back, into the same tensors."""
        training = self._training
        for tensor, value in self._values:
            tensor.copy_(value)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        self._objects.restore()
        training.modeset.load_state_dict(self._modes)
        if self._objects.unknown:
            training.note(
                f"a step that was computed and undone may have changed "
                f"{', '.join(self._objects.unknown)} of the optimizer, of which no copy can be made"
            )
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
        lost = training.guard.restore()
        if lost and kept is None:
            training.note(
                f"step {training.step_count + 1:,} was undone, but for what it wrote into "
                f"{', '.join(lost)}: nobody had the former values"
            )
        if kept is not None:
            kept.restore()
        clear_gradients(training.optimizer, training.parameters)
        if not training.train_mode.watch.set_by_another:  # that is for `TrainMode` to report
            training.train_mode.restore()
    except Exception:
        # after a CUDA assert every call into the device raises
        log.exception("the state before step %d could not be restored", training.step_count + 1)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
