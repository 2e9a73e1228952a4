"""How a captured step grows with its batch, determined when it is needed.

Two steps are run on fake tensors for this (`workbench.memory.prediction.batch_growth`), between two
steps of a run in progress, which waits: 0.4 to 0.8 ms for each operation of the step, whatever its
batch (for ResNet-50 1.2 s on one quiet core, half of a plain step of 8 images of 224 pixels there;
`tests/benchmarks/test_prediction.py`). So a capture by itself never does this; only a request does.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from workbench.experiment.runtime.step_boundary import LONGEST_WAIT_S, NextStep, between_steps
from workbench.memory.prediction.batch_growth import with_growth
from workbench.memory.prediction.copied_steps import plain_steps
from workbench.memory.prediction.step_copy import StepCopyError
from workbench.records import GROWTHS, MemoryRecord
from workbench.torch_private.modules import has_hooks

if TYPE_CHECKING:
    from workbench.experiment import Experiment

MOST_BY_DEFAULT = 3_000
"""The largest number of blocks of a step whose growth is determined by default: a few seconds at
most."""
_UNKNOWN = GROWTHS.index("unknown")

_NOT_DETERMINED = (
    "How this step grows with its batch is not known, so another batch gives an interval:"
)

log = logging.getLogger("workbench")


def with_determined_growth(
    experiment: Experiment,
    record: MemoryRecord,
    most: int | None = None,
    wait_s: float | None = None,
) -> MemoryRecord:
    """Return ``record`` with the growth of its blocks, unknown if it cannot be determined.

    Nothing in the experiment changes. A model with hooks is not run: the user's hooks would do with
    fake tensors what they do with real ones. If the growth was requested (``most`` is None), a note
    says why it is not known.

    Args:
        experiment: the experiment whose step was recorded.
        record: one of its captures.
        most: the largest number of blocks of a step for which the growth is determined; None: no
            limit.
        wait_s: seconds within which the step in progress must end; None: no limit.
    """
    is_known = not (record.block_growth == _UNKNOWN).any()
    num_made = int((record.block_start >= 0).sum())
    if record.batch_size < 1 or is_known or (most is not None and num_made > most):
        return record

    def runs(step: NextStep) -> tuple[MemoryRecord, MemoryRecord]:
        if _has_hooks(step.model):
            raise StepCopyError("the model has hooks, which are not run beside its training")
        return plain_steps(step, record.batch_size)

    try:
        found = between_steps(experiment, runs, wait_s=wait_s)
    except Exception as reason:  # whatever prevents it, the record is there
        log.debug("the growth of a step could not be determined", exc_info=True)
        return (
            _with_reason(record, str(reason) or type(reason).__name__) if most is None else record
        )
    return with_growth(record, *found)


def _with_reason(record: MemoryRecord, reason: str) -> MemoryRecord:
    """Return ``record`` with a note why the answer for another batch is an interval."""
    before = [note for note in record.notes if not note.startswith(_NOT_DETERMINED)]
    return replace(record, notes=(*before, f"{_NOT_DETERMINED} {reason}"))


def growth_on_demand(experiment: Experiment, record: MemoryRecord) -> Callable[[], MemoryRecord]:
    """Return a function that returns ``record`` with the growth of its blocks.

    The growth is determined at the first call. No reference to the experiment is kept: once it is
    deleted, the record stays as it was.
    """
    reference, known, lock = weakref.ref(experiment), record, threading.Lock()

    def determined() -> MemoryRecord:
        nonlocal known
        with lock:
            alive = reference()
            if alive is not None:
                known = with_determined_growth(alive, known, wait_s=LONGEST_WAIT_S)
            return known

    return determined


def _has_hooks(model: nn.Module) -> bool:
    return any(has_hooks(module) for module in model.modules())
