"""Predictions and evaluations from a cell, at any time: nothing of the training notices.

They are computed at a step boundary while an experiment trains, at once otherwise: in eval mode,
without gradients, under the modes of the next step. Random states, train mode and what modules keep
are put back, so the numbers that follow are those of a run that nobody looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.experiment.between_steps import at_step_boundary
from workbench.experiment.data import DataError, data_source, to_device
from workbench.experiment.kept_weights import kept_weights
from workbench.experiment.losses import logits_of
from workbench.experiment.rng import RandomState
from workbench.experiment.step import call
from workbench.experiment.validation import Validation, found_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.experiment.experiment import Experiment
    from workbench.experiment.training import Training

_ROWS = 256
"""Of a tensor at a time, where the training's batches have no size."""


def predict(experiment: Experiment, inputs: Any) -> torch.Tensor:
    """The model's logits for ``inputs``, on the CPU.

    Args:
        experiment: whose model.
        inputs: a tensor or an array ``[samples, ...]``, taken in batches as large as in training;
            or whatever else the model takes, as one batch.

    Raises:
        DataError: it is no input, or the model returns no logits.
        RuntimeError: the experiment is closed, or asked on the training thread.
        Exception: what the model raises.
    """
    if isinstance(inputs, np.ndarray):
        inputs = torch.from_numpy(np.ascontiguousarray(inputs))
        if inputs.dtype == torch.float64:
            inputs = inputs.to(torch.get_default_dtype())  # as arrays are taken for training
    if inputs is None:
        raise DataError("there is nothing to predict for: give a tensor or an array of inputs")

    def predicted(training: Training) -> torch.Tensor:
        size = training.cursor.source.batch_size or _ROWS
        is_rows = isinstance(inputs, torch.Tensor) and inputs.ndim > 0 and len(inputs) > size
        batches = inputs.split(size) if is_rows else (inputs,)
        with torch.no_grad():
            found = [_logits(training, batch) for batch in batches]
        return torch.cat(found) if is_rows else found[0]

    return at_step_boundary(experiment, lambda training: _untouched(training, predicted))


def evaluate(experiment: Experiment, data: Any) -> Validation:
    """Loss, accuracy and confusion matrix over ``data``; nothing is logged.

    Args:
        experiment: whose model and loss.
        data: anything that ``val`` may be.

    Raises:
        DataError: it is no data, or empty.
        RuntimeError: the experiment is closed, or asked on the training thread.
        Exception: what the data, the model or the loss raises.
    """
    size = experiment.batch_size or _ROWS
    source = data_source(data, batch_size=size, seed=experiment.seed, shuffle=False, what="data")
    return at_step_boundary(
        experiment, lambda training: _untouched(training, lambda one: found_over(one, source))
    )


def _logits(training: Training, batch: Any) -> torch.Tensor:
    with training.forward_context():
        return logits_of(call(training.model, to_device(batch, training.device))).detach().cpu()


def _untouched(training: Training, work: Callable[[Training], Any]) -> Any:
    """The result of ``work`` in eval mode; what it draws and what modules keep is as before."""
    outside = RandomState(training.device)
    outside.save()
    training.guard.remember(exactly=True)
    try:
        with kept_weights(training), training.train_mode.looking(training.optimizer):
            return work(training)
    finally:
        training.guard.restore()
        training.guard.release()
        outside.restore()
