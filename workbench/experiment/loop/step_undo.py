"""A step that is undone, its update included, and steps that are computed for inspection.

The guard of a step (`step_guard`) records what a forward changes, in every step and at almost no
cost. What the update changes is weights and moments, and a copy of them (`StateCopy`) costs memory
and time: it is made for a step that is undone in any case, and before one that may run out of
memory in the middle of its update.

A run that is over is not begun again because the user wants to see its graph or its memory: the
step that would come next is computed with everything in it, the optimizer's update included
(`rehearse`), and weights, buffers, gradients, optimizer, gradient scaler, random states and the
position in the data are restored, and so is what modules keep (`module_state`) and what hooks do
(`hook_copy`). Nothing of it is logged.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.parameter import is_lazy

from workbench.experiment.loop.first_step import first_step
from workbench.experiment.loop.step import clear_gradients
from workbench.experiment.recipe.optimizers import optimizers_in
from workbench.experiment.state.hook_copy import hooks_undone
from workbench.experiment.state.object_copy import ObjectCopy
from workbench.experiment.state.rng import RandomState
from workbench.processes import computing

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.records import Record

log = logging.getLogger("workbench")


class StateCopy:
    """A copy, on the CPU, of what a step changes; the memory of the device stays free for the step.

    Args:
        training: the training that is to be restored.
        gradients: whether the gradients of the previous step are copied too; if not, they are None
            afterwards.
    """

    def __init__(self, training: Training, *, gradients: bool = True) -> None:
        self._training = training
        optimizer = training.optimizer
        # one without a shape yet, of a lazy module that was inserted, has no values to copy
        self._parameters = [p for p in training.list_parameters() if not is_lazy(p)]
        self._gradients = [
            None if p.grad is None or not gradients else _copy(p.grad) for p in self._parameters
        ]
        # a layer that the step creates joins a group, and stays there
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
        """Restore everything, in the same tensors."""
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
                f"{', '.join(self._objects.unknown)} of the optimizer, which cannot be copied"
            )
        if self._loss is not None:
            self._loss.restore()


def copy_at_risk(training: Training, *, switching: bool) -> StateCopy | None:
    """Return a copy of the state if the next update may run out of memory half-way.

    On a simulated GPU any step may. On a GPU it is the first update, which creates the optimizer's
    state, and those after a change; later ones request what was there before.
    """
    if training.gpu is None and not (switching and training.device.type == "cuda"):
        return None
    return StateCopy(training, gradients=False)


def undo(training: Training, kept: StateCopy | None) -> None:
    """Restore the state before the step; what was raised in it remains the reported error."""
    try:
        lost = training.guard.restore()
        if lost and kept is None:
            training.note(
                f"step {training.step_count + 1:,} was undone, except for what it wrote into "
                f"{', '.join(lost)}: the former values were not kept"
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


NOT_APPLIED = (
    "This is the step that would come next: it was computed for the capture, in this process, and "
    "not applied."
)


def rehearse(training: Training) -> None:
    """Compute the next step for the probes that wait, and leave the training as it was."""
    outside = RandomState(training.device)
    outside.save()
    try:
        with training.foreign_steps.apart():
            training.begin()
            batch = training.cursor.preview()
            with hooks_undone(training):
                _step(training, batch)
    finally:
        outside.restore()


@contextmanager
def undone(training: Training) -> Generator[None]:
    """Context in which steps, modes and a simulated GPU are tried without a trace in the training.

    Probes that wait continue to wait.
    """
    with training.foreign_steps.apart(), hooks_undone(training), _undone(training):
        yield


@contextmanager
def _undone(training: Training) -> Generator[None]:
    outside = RandomState(training.device)
    outside.save()
    kept = StateCopy(training)
    modeset, attached, gpu = training.modeset, training.attached, training.gpu
    probes, training.probes = training.probes, []
    training.begin()
    training.guard.remember(exactly=True)
    training.rehearsing, training.staying_modes = True, training.modes
    try:
        yield
    finally:
        training.rehearsing = False
        training.gpu, training.probes = gpu, [*probes, *training.probes]
        if training.attached is not attached:
            training.detach_modes()
            if attached is not None:
                attached.attach(training.model)
                training.attached = attached
        training.modeset, training.staying_modes = modeset, None
        training.guard.restore()
        training.guard.release()
        training.train_mode.restore()
        kept.restore()
        outside.restore()


@contextmanager
def forward_undone(training: Training) -> Generator[None]:
    """Restore on exit what forward, loss and backward change in a model, its loss and hooks.

    Weights are not written inside, and gradients are left to the caller.
    """
    loss = None if training.loss.function is None else training.loss.state()
    with hooks_undone(training):
        training.guard.remember(exactly=True)
        try:
            yield
        finally:
            training.guard.restore()
            if loss is not None:
                loss.restore()


def noted(record: Record) -> Record:
    """Return ``record`` with a note that its step was not applied, if it has notes."""
    notes: tuple[str, ...] | None = getattr(record, "notes", None)
    if notes is None:
        return record
    changed: Any = dataclasses.replace(cast("Any", record), notes=(*notes, NOT_APPLIED))
    return changed


@computing
def _step(training: Training, batch: Any) -> None:
    if training.cursor.holds_batch:
        training.random.save()  # it is the next step's too, and what drew its order has been drawn
    kept = StateCopy(training)
    training.guard.remember(exactly=True)
    training.rehearsing = True
    try:
        if training.attached is not training.modeset:
            first_step(training, batch)
        else:
            training.run_step(batch)
    finally:
        training.rehearsing = False
        training.guard.restore()
        training.guard.release()
        training.train_mode.restore()
        kept.restore()
