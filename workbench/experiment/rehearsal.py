"""A step that is computed to be looked at, and then undone.

A run that is over is not begun again because somebody wants to see its graph or its memory: the
step that would come next is computed with everything in it, the optimizer's update included, and
weights, buffers, gradients, optimizer, gradient scaler, random states and the position in the data
are put back, and so is what modules keep (`workbench.experiment.module_state`) and what hooks do
(`workbench.experiment.hook_copy`). Nothing of it is logged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from workbench.experiment.hook_copy import hooks_undone
from workbench.experiment.rng import RandomState
from workbench.experiment.state_copy import StateCopy
from workbench.experiment.switch import first_step
from workbench.processes import computing

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.records import Record

NOT_APPLIED = (
    "This is the step that would come next: it was computed for the capture, in this process, and "
    "not applied."
)


def rehearse(training: Training) -> None:
    """Compute the next step for the probes that wait, and leave the training as it was.

    Raises:
        Exception: whatever the step raises.
    """
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
    """Steps, modes and a card that are tried inside leave no trace in the training.

    Probes that wait go on waiting.
    """
    with training.foreign_steps.apart(), hooks_undone(training), _undone(training):
        yield


@contextmanager
def _undone(training: Training) -> Generator[None]:
    outside = RandomState(training.device)
    outside.save()
    kept = StateCopy(training)
    modeset, attached, card = training.modeset, training.attached, training.card
    probes, training.probes = training.probes, []
    training.begin()
    training.guard.remember(exactly=True)
    training.rehearsing, training.staying_modes = True, training.modes
    try:
        yield
    finally:
        training.rehearsing = False
        training.card, training.probes = card, [*probes, *training.probes]
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
    """What forward, loss and backward change of a model, its loss and hooks is put back.

    Weights are not written inside, and gradients are who calls it its own.
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
    """``record`` with a note that its step was not applied, where it has notes."""
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
