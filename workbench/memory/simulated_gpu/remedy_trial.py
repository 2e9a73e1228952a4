"""A trial of a change: steps with it on the simulated GPU that refused a request, then undone.

Nothing is estimated. The training does what it would do next, with the change made: three steps,
because the optimizer makes its state in the first one, the second holds both that and the
activations, and the third begins with what the second left in the cache; and a batch of validation.
Then everything is restored (`workbench.experiment.loop.step_undo.undone`), and the simulated GPU
releases what that took.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data.data import copied
from workbench.experiment.failure.release import release_frames
from workbench.experiment.loop.step_guard import NonFiniteError
from workbench.experiment.loop.step_undo import undone
from workbench.experiment.loop.validation import Tally, evaluate
from workbench.memory.simulated_gpu.gpu_recorder import Interrupted
from workbench.memory.simulated_gpu.simulated_gpu import SimulatedGpu

if TYPE_CHECKING:
    from workbench.experiment.failure.changes import Change
    from workbench.experiment.training import Training

NUM_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a change that was tried."""

    fits: bool
    peak_bytes: int = -1
    """Maximum of the reserved bytes; -1 if it does not fit."""
    seconds: float = 0.0
    """Seconds of its last step."""
    why: str = ""
    """The reason other than memory that it did not finish."""


def tried(training: Training, change: Change, interrupted: Callable[[], bool]) -> Trial | None:
    """Try ``change`` on the simulated GPU of ``training``; return None if that was interrupted.

    The training is unchanged afterwards, whatever is raised in it.

    Args:
        training: a training between two steps.
        change: the change to try.
        interrupted: returns whether to stop; called at every request for memory.
    """
    gpu = training.gpu
    if not isinstance(gpu, SimulatedGpu):
        raise TypeError("remedies are tried on a simulated GPU; there is none")
    try:
        with gpu.trial(interrupted):
            found = _outcome(training, change, interrupted)
        if found is not None and found.fits:
            gc.collect()  # a model's cycles would stay; otherwise this is done already
        return found
    finally:
        gpu.empty_cache()


def _outcome(training: Training, change: Change, interrupted: Callable[[], bool]) -> Trial | None:
    try:
        with undone(training):
            change.try_on(training)
            gpu = training.gpu
            if not isinstance(gpu, SimulatedGpu):
                return None
            with gpu.trial(interrupted):
                return _ran(training, gpu, change)
    except torch.OutOfMemoryError as error:
        release_frames(error)
        return Trial(fits=False)
    except Interrupted as error:
        release_frames(error)
        return None
    except Exception as error:  # noqa: BLE001 - with other modes or batches user code may raise
        first = str(error).partition("\n")[0][:200]
        kind = "the loss or a gradient" if isinstance(error, NonFiniteError) else ""
        release_frames(error)
        return Trial(fits=False, why=first if kind else f"{type(error).__name__}: {first}")


def _ran(training: Training, gpu: SimulatedGpu, change: Change) -> Trial:
    in_validation = training.validating
    if in_validation:
        _validate(training, change)
    batch, seconds = _batch(training, change), 0.0
    for step in range(NUM_STEPS):
        if step:  # a copy in other memory, as the next batch would be
            batch = copied(batch)
        started = time.perf_counter()
        training.run_step(batch)
        seconds = time.perf_counter() - started
    del batch
    if not in_validation:
        _validate(training, change)
    return Trial(fits=True, peak_bytes=gpu.ledger.peak_reserved, seconds=seconds)


def _batch(training: Training, change: Change) -> Any:
    """Return the batch of the failed step, or as many of its samples as the change requires."""
    cursor = training.cursor
    if change.batch_size is None:
        return training.preview()
    if training.validating:  # the epoch is over: the next one begins with these
        return cursor.source.first(cursor.epoch + 1, 0, change.batch_size)
    return cursor.first(change.batch_size)


def _validate(training: Training, change: Change) -> None:
    source = training.val
    if source is None:
        return
    size = change.val_batch_size or source.batch_size
    if change.batch_size is not None and source.batch_size == training.cursor.source.batch_size:
        size = change.batch_size  # validation uses the same size if its batches were as large
    if source.repeats and size:
        batch = source.first(0, 0, size)
    else:
        batch = next(iter(source.batches(0)), None)
    if batch is None or training.gpu is None:
        return
    tally = Tally(training)
    with (
        training.train_mode.evaluating(training.optimizer),
        torch.no_grad(),
        training.gpu.at_work("validation", batch),
    ):
        evaluate(training, batch, tally)
