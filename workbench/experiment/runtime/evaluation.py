"""Predictions and evaluations from a cell, at any time, without any effect on the training.

They are computed at a step boundary while an experiment trains, otherwise at once: in eval mode,
without gradients, under the modes of the next step. Random states, train mode, and what modules and
a loss keep are restored; what an evaluation finds out about a loss that has not been chosen yet is
not used by the training. So the numbers that follow are those of a run without it. A loss for which
it cannot be determined what it keeps (`workbench.experiment.recipe.loss_state`) is named in a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.experiment.data.data import DataError, DataSource, data_source, to_device
from workbench.experiment.failure.values import describe
from workbench.experiment.loop.step import call
from workbench.experiment.loop.validation import Validation, found_over
from workbench.experiment.recipe.losses import logits_of
from workbench.experiment.runtime.step_boundary import at_step_boundary
from workbench.experiment.state.kept_weights import kept_weights
from workbench.experiment.state.rng import RandomState
from workbench.experiment.state.thread_state import ThreadState
from workbench.processes import computing

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.experiment.experiment import Experiment
    from workbench.experiment.training import Training

_ROWS = 256
"""Rows of a tensor at a time, if the batches of the training have no size."""


def predict(experiment: Experiment, inputs: Any) -> torch.Tensor:
    """Return the model's logits for ``inputs``, on the CPU.

    Args:
        experiment: the experiment whose model is used.
        inputs: a tensor or an array ``[samples, ...]``, computed in batches as large as in
            training; or anything else that the model takes, as one batch.

    Raises:
        DataError: the inputs are not valid, or the model returns no logits.
        RuntimeError: the experiment is closed, or this is called on the training thread.
        Exception: whatever the model raises.
    """
    if isinstance(inputs, np.ndarray):
        inputs = torch.from_numpy(np.ascontiguousarray(inputs))
        if inputs.dtype == torch.float64:
            inputs = inputs.to(torch.get_default_dtype())  # as arrays are converted for training
    if inputs is None:
        raise DataError("there is nothing to predict for: give a tensor or an array of inputs")

    def predicted(training: Training) -> torch.Tensor:
        size = training.cursor.source.batch_size or _ROWS
        is_rows = isinstance(inputs, torch.Tensor) and inputs.ndim > 0 and len(inputs) > size
        batches = inputs.split(size) if is_rows else (inputs,)
        try:
            with torch.no_grad():
                found = [_logits(training, batch) for batch in batches]
        except Exception as error:
            error.add_note(_taken_for(inputs))
            raise
        return torch.cat(found) if is_rows else found[0]

    return _from_here(experiment, predicted)


def _taken_for(inputs: Any) -> str:
    """What `predict` was given, and how it passes that to the model."""
    what = f"predict was given {describe(inputs) or type(inputs).__name__}"
    if not isinstance(inputs, torch.Tensor) or inputs.ndim == 0:
        return what
    samples = f"{len(inputs)} sample{'' if len(inputs) == 1 else 's'}"
    return f"{what}: {samples} of shape {list(inputs.shape[1:])}. Of a single one give x[None]"


def evaluate(experiment: Experiment, data: Any) -> Validation:
    """Compute loss, accuracy and confusion matrix over ``data``; nothing is logged.

    Args:
        experiment: the experiment whose model and loss are used.
        data: anything that ``val`` may be.

    Raises:
        DataError: the data is not valid, or empty.
        RuntimeError: the experiment is closed, or this is called on the training thread.
        Exception: whatever the data, the model or the loss raises.
    """
    size = experiment.batch_size or _ROWS
    source = data_source(data, batch_size=size, seed=experiment.seed, shuffle=False, what="data")
    return _from_here(experiment, lambda training: _evaluated(training, source))


def _from_here(experiment: Experiment, work: Callable[[Training], Any]) -> Any:
    """Return the result of ``work`` under the caller's autocast, whoever started the run."""
    caller_settings = ThreadState.current(experiment.device)

    def worked(training: Training) -> Any:
        of_the_run, training.caller_settings = training.caller_settings, caller_settings
        try:
            return _untouched(training, work)
        finally:
            training.caller_settings = of_the_run

    return at_step_boundary(experiment, worked)


def _evaluated(training: Training, source: DataSource) -> Validation:
    loss, before = training.loss, training.loss.state()
    training.loss = loss.for_inspection(is_first=not training.checked)
    try:
        return found_over(training, source)
    finally:
        training.loss = loss
        if before is not None and not before.restore():
            _note_kept(training, before.changed())
        elif before is not None and before.unknown:
            _note_kept(training, before.unknown)


def _note_kept(training: Training, what: str) -> None:
    training.note(
        f"an evaluation has called {training.loss.name}, which may keep something from call to "
        f"call ({what}): that cannot be put back, so later steps go on from there"
    )


@computing
def _logits(training: Training, batch: Any) -> torch.Tensor:
    with training.forward_context():
        return logits_of(call(training.model, to_device(batch, training.device))).detach().cpu()


def _untouched(training: Training, work: Callable[[Training], Any]) -> Any:
    """Return the result of ``work`` in eval mode; random states and modules are restored."""
    outside = RandomState(training.device)
    outside.save()
    training.guard.remember(exactly=True)
    try:
        inspecting = training.train_mode.inspecting(training.optimizer)
        with training.logged.ignored(), kept_weights(training), inspecting:
            return work(training)
    finally:
        training.guard.restore()
        training.guard.release()
        outside.restore()
