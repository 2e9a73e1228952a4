"""A recorded step of a copy: what a training would allocate, without training.

Two steps are run one after the other, because the first step of a training is different from all
others: the optimizer makes its state in it. The second step, and all after it, find that state
there. Both are in the record, so that an allocator can serve both.

On a fake copy the operations that reach the dispatcher are those of a real run, and their storages
have the same sizes; what is missing is what only the kernel itself decides (the workspace that
oneDNN's LSTM keeps for its backward). Data-dependent control flow (``.item()``, ``nonzero``) ends
such a run.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from workbench.experiment.loop.step import call, clear_gradients
from workbench.experiment.recipe.losses import logits_of
from workbench.memory.prediction.step_copy import StepCopy, StepCopyError
from workbench.memory.recording.attribution import Site
from workbench.memory.recording.categories import adopt_inputs, adopt_model, adopt_optimizer
from workbench.memory.recording.cuda_history import AllocatorHistory
from workbench.memory.recording.ledger import Ledger, StorageRef
from workbench.memory.recording.record_builder import build_record
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block
from workbench.records import MemoryRecord
from workbench.torch_private.memory import is_fake
from workbench.torch_private.tensors import storage_identity

NUM_STEPS = 2
_LIFT = torch.ops.aten.lift_fresh.default
BASIS = (
    "Measured on {what}: requested bytes of every tensor storage as operations made and released "
    "them on the CPU; scratch memory inside a kernel is not seen."
)


def run_copy(
    copied: StepCopy,
    *,
    title: str,
    num_steps: int = NUM_STEPS,
) -> MemoryRecord:
    """Return the record of ``num_steps`` steps of a copy, one after the other.

    Args:
        copied: it is used up: its weights are those after the steps.
        title: the title of the record.
        num_steps: the number of steps; the first makes the optimizer's state.

    Raises:
        StepCopyError: a step cannot be run on a copy; the message says why.
    """
    recorder = CopyRecorder(fake=copied.is_fake)
    try:
        with copied.context, torch.enable_grad(), _nothing_logged():
            with torch.no_grad():
                adopt_model(recorder, copied.model)
                adopt_optimizer(recorder, copied.optimizer)
                adopt_inputs(recorder, (copied.inputs, copied.targets))
            recorder.attribution.add_root(copied.model)
            with recorder:
                for _ in range(num_steps):
                    recorder.begin_phase("forward")
                    _step(copied, recorder)
            recorder.begin_phase("")
            _settle(copied, recorder)
    except StepCopyError:
        raise
    except Exception as error:
        first = str(error).partition("\n")[0][:200]
        raise StepCopyError(f"the step cannot be run ({type(error).__name__}: {first})") from error
    return _built(copied, recorder, title)


@contextmanager
def _nothing_logged() -> Generator[None]:
    """Suppress torch's log, with a stack, of a failed fake operation: one sentence reports it."""
    here = threading.get_ident()

    def is_other_thread(entry: logging.LogRecord) -> bool:
        return entry.thread != here

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addFilter(is_other_thread)
    try:
        yield
    finally:
        logger.removeFilter(is_other_thread)


def _built(copied: StepCopy, recorder: CopyRecorder, title: str) -> MemoryRecord:
    if recorder.failure:
        raise StepCopyError(f"the step cannot be recorded ({recorder.failure})")
    record = build_record(
        recorder, AllocatorHistory(), title=title, device="cpu", batch_size=copied.batch_size
    )
    what = "fake tensors" if copied.is_fake else "a copy of the model"
    return dataclasses.replace(record, basis=BASIS.format(what=what))


def _step(copied: StepCopy, recorder: Recorder) -> None:
    """Run a step like `workbench.experiment.loop.step`, without what reads values."""
    clear_gradients(copied.optimizer, list(copied.model.parameters()))
    with copied.modes.forward_context():
        logits = logits_of(call(copied.model, copied.inputs))
        copied.loss.choose(logits, copied.targets)
        loss = copied.loss(logits, copied.targets)
    recorder.begin_phase("backward")
    loss.backward()
    _settle(copied, recorder)
    recorder.begin_phase("optimizer")
    if copied.clip_grad_norm is not None:
        parameters = list(copied.model.parameters())
        torch.nn.utils.clip_grad_norm_(parameters, copied.clip_grad_norm)
    copied.optimizer.step()


def _settle(copied: StepCopy, recorder: Recorder) -> None:
    """Name what now exists: gradients, optimizer state."""
    with torch.no_grad():
        adopt_model(recorder, copied.model)
        adopt_optimizer(recorder, copied.optimizer)


class CopyLedger(Ledger):
    """A ledger in which storages without memory count as if they had it, on the CPU."""

    def track(self, storage: torch.UntypedStorage) -> Block | None:
        """Make a block for a storage not known before; None if it takes no memory."""
        if storage.nbytes() == 0:
            return None
        ref = StorageRef(storage, self.dead_storages.append)
        ref.block, ref.key = self.new_block(storage), storage_identity(storage)
        self.live[ref.key] = ref
        return ref.block

    def new_block(self, storage: torch.UntypedStorage) -> Block:
        """Make another block; a fake storage has no address."""
        block = Block(storage.nbytes(), "cpu", -1)
        self.blocks.append(block)
        return block


class CopyRecorder(Recorder):
    """Record fake tensors as well as real ones."""

    def __init__(self, *, fake: bool) -> None:
        super().__init__(automatic_phases=False)
        self._is_fake = fake
        self.ledger = CopyLedger()
        self.blocks, self.uncounted = self.ledger.blocks, self.ledger.uncounted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record as any recorder does, without what fake tensors do underneath."""
        if func.namespace == "prim":  # fake tensors are queried for their device all the time
            return func(*args, **(kwargs or {}))
        seen = tuple(kind for kind in types or () if not is_fake(kind))
        return super().__torch_dispatch__(func, seen, args, kwargs)

    def allocated(self, storage: torch.UntypedStorage, op: str, site: Site | None = None) -> None:
        """Record as any recorder does; a number made a tensor has the same name, fake or not."""
        super().allocated(storage, "torch.tensor" if op == "aten.lift_fresh" else op, site)

    def _before(self, func: Any, args: Any, kwargs: Any) -> None:
        if self._is_fake and func is _LIFT:
            self.ledger.record_frees()  # lifted memory is temporary; its fake tensor counts
            return
        super()._before(func, args, kwargs)
