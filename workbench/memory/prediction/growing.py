"""A captured step learns how it grows with its batch, when somebody wants to know.

Two steps are run on fake tensors for it (`workbench.memory.prediction.grown`), between two steps of
a run that is under way, which waits: 0.4 to 0.8 ms for each operation of the step, whatever its
batch (for ResNet-50 1.2 s on one quiet core, half of a plain step of 8 images of 224 pixels there;
`tests/benchmarks/test_prediction.py`). So a capture by itself never does it; who asks does.
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
from workbench.memory.prediction.grown import with_growth
from workbench.memory.prediction.twin import TwinError
from workbench.memory.prediction.twin_steps import plain_steps
from workbench.records import GROWTHS, MemoryRecord
from workbench.torch_private.modules import has_hooks

if TYPE_CHECKING:
    from workbench.experiment import Experiment

MOST_UNASKED = 3_000
"""Blocks that a step makes, up to which its growth is found out unasked: a few seconds at most."""
_UNKNOWN = GROWTHS.index("unknown")

_UNLEARNED = "How this step grows with its batch is not known, so another batch gives an interval:"

log = logging.getLogger("workbench")


def grown(
    experiment: Experiment,
    record: MemoryRecord,
    most: int | None = None,
    wait_s: float | None = None,
) -> MemoryRecord:
    """``record`` with the growth of its blocks, unknown where it cannot be found out.

    Nothing of the experiment changes. A model with hooks is not run: what hooks of the user's do
    with tensors they would do with fake ones. Where somebody asks (``most`` is None), a note says
    why it is not known.

    Args:
        experiment: that the step was recorded of.
        record: one of its captures.
        most: blocks that a step makes for which it is found out; None: however many.
        wait_s: seconds within which the step under way must end; None: however long it takes.
    """
    is_known = not (record.block_growth == _UNKNOWN).any()
    num_made = int((record.block_start >= 0).sum())
    if record.batch_size < 1 or is_known or (most is not None and num_made > most):
        return record

    def runs(step: NextStep) -> tuple[MemoryRecord, MemoryRecord]:
        if _has_hooks(step.model):
            raise TwinError("the model has hooks, which are not run beside its training")
        return plain_steps(step, record.batch_size)

    try:
        found = between_steps(experiment, runs, wait_s=wait_s)
    except Exception as reason:  # whatever keeps it from being known, the record is there
        log.debug("the growth of a step could not be found out", exc_info=True)
        return _unlearned(record, str(reason) or type(reason).__name__) if most is None else record
    return with_growth(record, *found)


def _unlearned(record: MemoryRecord, reason: str) -> MemoryRecord:
    """``record`` with a note why another batch is answered with an interval."""
    before = [note for note in record.notes if not note.startswith(_UNLEARNED)]
    return replace(record, notes=(*before, f"{_UNLEARNED} {reason}"))


def growing(experiment: Experiment, record: MemoryRecord) -> Callable[[], MemoryRecord]:
    """What gives ``record`` with the growth of its blocks, worked out when it is first called.

    It keeps no experiment: once that is deleted, the record is what it was.
    """
    about, known, turn = weakref.ref(experiment), record, threading.Lock()

    def learned() -> MemoryRecord:
        nonlocal known
        with turn:
            alive = about()
            if alive is not None:
                known = grown(alive, known, wait_s=LONGEST_WAIT_S)
            return known

    return learned


def _has_hooks(model: nn.Module) -> bool:
    return any(has_hooks(module) for module in model.modules())
