"""Two steps of a copy, run the way CUDA would run them: the basis of predictions.

Fake tensors are tried first, because they cost neither memory nor time; a model that cannot run on
them (its control flow depends on values) is copied and run for real, unless that was excluded, or
the copy would not fit into the free memory.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import psutil
from torch import nn

from workbench.experiment.data.data import batch_size_of, split, tensors_in
from workbench.experiment.runtime.step_boundary import NextStep
from workbench.memory.prediction.batch_growth import with_growth
from workbench.memory.prediction.cuda_operations import CudaOperations, as_cuda, use_foreach
from workbench.memory.prediction.fake_run import NUM_STEPS, run_copy
from workbench.memory.prediction.step_copy import StepCopy, StepCopyError, copy_of_step
from workbench.memory.reading.text import format_bytes
from workbench.records import MemoryRecord

EAGER = "Predicted without torch.compile: compiled code fuses operations and reuses buffers."
SCALER = "What the gradient scaler of fp16 keeps for a moment is left out."
AUTOCAST = (
    "Autocast has other lists on CUDA: normalisations and softmax are taken in float32 as there, "
    "losses and functions like exp and pow as on the CPU."
)
UNROLLED = (
    "A GRU or RNN layer runs step by step on the CPU and as one kernel of cuDNN's on a GPU: what "
    "the CPU keeps of every step is counted."
)
_MOST_OF_FREE = 0.5
"""The largest part of the free memory that a real copy may take."""
_COPIES = 4
"""Tensors of a parameter's size that a training holds: itself, its gradient and two moments."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CopiedSteps:
    """What two steps allocated."""

    record: MemoryRecord
    what: str
    """What was run, in a few words."""
    changes: tuple[str, ...]
    """What was run differently than on the CPU, a sentence each."""
    reasons: tuple[str, ...]
    """Why a prediction from it may be off."""


def copied_steps(
    step: NextStep, *, fake: bool | None = None, batch: int | None = None
) -> CopiedSteps:
    """Run two steps of a copy of ``step``.

    Args:
        step: the step to copy.
        fake: whether its tensors have no memory; None: if that works.
        batch: samples in its batch; None: as many as in the step.

    Raises:
        StepCopyError: no copy can be run; the message says why.
    """
    if fake is not None:
        return _steps(step, fake=fake, batch=batch)
    try:
        return _steps(step, fake=True, batch=batch)
    except StepCopyError as error:
        _check_room(step, batch, error)
        found = _steps(step, fake=False, batch=batch)
        reason = f"Run for real on a copy, because on fake tensors {error}."
        return dataclasses.replace(found, reasons=(*found.reasons, reason))


def plain_steps(step: NextStep, batch: int) -> tuple[MemoryRecord, MemoryRecord]:
    """Run a step as the CPU does, on fake tensors, with ``batch`` and with twice as many samples.

    If the optimizer has no state yet, two steps are run, of which the first makes it.

    Raises:
        StepCopyError: the step cannot be run in this operations.
        ValueError: its batch cannot be truncated or repeated.
    """
    num_steps = 1 if step.optimizer.state else NUM_STEPS
    once, twice = (
        run_copy(copy_of_step(step, fake=True, batch=size), title=step.name, num_steps=num_steps)
        for size in (batch, 2 * batch)
    )
    return once, twice


def _steps(step: NextStep, *, fake: bool, batch: int | None) -> CopiedSteps:
    record, operations, has_lists = _run(step, fake=fake, batch=batch)
    if fake and record.batch_size > 0:
        twice = _run_or_none(step, 2 * record.batch_size)
        record = with_growth(record, record if twice is not None else None, twice)
    else:
        record = with_growth(record)
    return CopiedSteps(
        record=record,
        what="a copy on fake tensors" if fake else "a copy",
        changes=_changes(operations, has_lists=has_lists),
        reasons=_reasons(step),
    )


def _run(
    step: NextStep, *, fake: bool, batch: int | None
) -> tuple[MemoryRecord, CudaOperations, bool]:
    copied: StepCopy = copy_of_step(step, fake=fake, batch=batch)
    has_lists = use_foreach(copied.optimizer)
    is_fused = step.modes["attention"].value != "math"
    with as_cuda(fused_attention=is_fused) as operations:
        record = run_copy(copied, title=f"{step.name}, step {step.step:,}")
    record = dataclasses.replace(record, experiment=step.name, step=step.step)
    return record, operations, has_lists


def _run_or_none(step: NextStep, batch: int) -> MemoryRecord | None:
    """Run with another batch; return None if the model does not accept one."""
    try:
        return _run(step, fake=True, batch=batch)[0]
    except StepCopyError:
        return None


def _changes(operations: CudaOperations, *, has_lists: bool) -> tuple[str, ...]:
    changes = {
        "Dropout keeps masks of booleans.": operations.num_dropouts,
        "Attention with dropout takes a fused kernel.": operations.num_attentions,
        "Normalisations and softmax are float32 under autocast.": operations.num_casts,
        "The optimizer works on lists of tensors (foreach).": has_lists,
    }
    return tuple(sentence for sentence, done in changes.items() if done)


def _reasons(step: NextStep) -> tuple[str, ...]:
    precision = step.modes["precision"].value
    recurrent = [module for module in step.model.modules() if isinstance(module, nn.RNNBase)]
    reasons = {
        EAGER: step.modes.compiled,
        AUTOCAST: precision != "fp32",
        SCALER: precision == "fp16",
        UNROLLED: any(module.mode != "LSTM" for module in recurrent),
    }
    return tuple(sentence for sentence, holds in reasons.items() if holds)


def _check_room(step: NextStep, batch: int | None, error: StepCopyError) -> None:
    """Refuse a real copy that would not fit.

    If the batch is larger than the step's own, the step's own is run first: what it needs on top of
    what stays grows with the batch.

    Raises:
        StepCopyError: the copy would not fit, or its own batch cannot be run.
    """
    own = split(step.batch)
    size = batch_size_of(*own)
    ratio = max(batch / size, 1.0) if batch is not None and size > 0 else 1.0
    inputs = int(ratio * sum(tensor.nbytes for tensor in tensors_in(own)))
    weights = _COPIES * sum(p.nbytes for p in step.model.parameters())
    _refuse_beyond(weights + inputs, "with its gradients and moments and its batch", error)
    if ratio == 1.0:
        return
    record = _run(step, fake=False, batch=None)[0]
    stays = int(record.series().sum(axis=0)[-1])
    needed = stays + inputs + int(ratio * (record.peak_bytes - stays))
    _refuse_beyond(needed, f"with a batch of {batch:,} samples", error)


def _refuse_beyond(num_bytes: int, what: str, error: StepCopyError) -> None:
    free = psutil.virtual_memory().available
    if num_bytes > _MOST_OF_FREE * free:
        raise StepCopyError(
            f"on fake tensors {error}, and a real copy of {format_bytes(num_bytes)} {what} is more "
            f"than half of the {format_bytes(free)} that are free"
        ) from error
