"""A recorded step of a twin: what a training would allocate, without training.

Two steps are run one after the other, because the first step of a training is different from all
others: the optimizer makes its state in it. The second step, and all after it, find that state
there. Both are in the record, so that an allocator can serve both.

On a fake twin the operations that reach the dispatcher are those of a real run, and their storages
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
from workbench.memory.prediction.twin import Twin, TwinError
from workbench.memory.recording.attribution import Site
from workbench.memory.recording.blocks import Block
from workbench.memory.recording.build import build_record
from workbench.memory.recording.categories import adopt_inputs, adopt_model, adopt_optimizer
from workbench.memory.recording.cuda import AllocatorHistory
from workbench.memory.recording.ledger import Death, Ledger
from workbench.memory.recording.recorder import Recorder
from workbench.records import MemoryRecord
from workbench.torch_private.memory import is_fake
from workbench.torch_private.tensors import storage_identity

NUM_STEPS = 2
_LIFT = torch.ops.aten.lift_fresh.default
BASIS = (
    "Measured on {what}: requested bytes of every tensor storage as operations made and released "
    "them on the CPU; scratch memory inside a kernel is not seen."
)


def run_twin(
    twin: Twin,
    *,
    title: str,
    num_steps: int = NUM_STEPS,
) -> MemoryRecord:
    """Return the record of ``num_steps`` steps of a twin, one after the other.

    Args:
        twin: it is used up: its weights are those after the steps.
        title: the title of the record.
        num_steps: the number of steps; the first makes the optimizer's state.

    Raises:
        TwinError: a step cannot be run on a twin; the message says why.
    """
    recorder = TwinRecorder(fake=twin.is_fake)
    try:
        with twin.context, torch.enable_grad(), _nothing_logged():
            with torch.no_grad():
                adopt_model(recorder, twin.model)
                adopt_optimizer(recorder, twin.optimizer)
                adopt_inputs(recorder, (twin.inputs, twin.targets))
            recorder.attribution.add_root(twin.model)
            with recorder:
                for _ in range(num_steps):
                    recorder.begin_phase("forward")
                    _step(twin, recorder)
            recorder.begin_phase("")
            _settle(twin, recorder)
    except TwinError:
        raise
    except Exception as error:
        first = str(error).partition("\n")[0][:200]
        raise TwinError(f"the step cannot be run ({type(error).__name__}: {first})") from error
    return _built(twin, recorder, title)


@contextmanager
def _nothing_logged() -> Generator[None]:
    """Suppress torch's log, with a stack, of a failed fake operation: one sentence reports it."""
    here = threading.get_ident()

    def elsewhere(said: logging.LogRecord) -> bool:
        return said.thread != here

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addFilter(elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(elsewhere)


def _built(twin: Twin, recorder: TwinRecorder, title: str) -> MemoryRecord:
    if recorder.failure:
        raise TwinError(f"the step cannot be recorded ({recorder.failure})")
    record = build_record(
        recorder, AllocatorHistory(), title=title, device="cpu", batch_size=twin.batch_size
    )
    what = "fake tensors" if twin.is_fake else "a copy of the model"
    return dataclasses.replace(record, basis=BASIS.format(what=what))


def _step(twin: Twin, recorder: Recorder) -> None:
    """Run a step like `workbench.experiment.loop.step`, without what reads values."""
    clear_gradients(twin.optimizer, list(twin.model.parameters()))
    with twin.modes.forward_context():
        logits = logits_of(call(twin.model, twin.inputs))
        twin.loss.choose(logits, twin.targets)
        loss = twin.loss(logits, twin.targets)
    recorder.begin_phase("backward")
    loss.backward()
    _settle(twin, recorder)
    recorder.begin_phase("optimizer")
    if twin.clip_grad_norm is not None:
        parameters = list(twin.model.parameters())
        torch.nn.utils.clip_grad_norm_(parameters, twin.clip_grad_norm)
    twin.optimizer.step()


def _settle(twin: Twin, recorder: Recorder) -> None:
    """Name what now exists: gradients, optimizer state."""
    with torch.no_grad():
        adopt_model(recorder, twin.model)
        adopt_optimizer(recorder, twin.optimizer)


class TwinLedger(Ledger):
    """A ledger in which storages without memory count as if they had it, on the CPU."""

    def track(self, storage: torch.UntypedStorage) -> Block | None:
        """Make a block for a storage not known before; None if it takes no memory."""
        if storage.nbytes() == 0:
            return None
        death = Death(storage, self.deaths.append)
        death.block, death.key = self.new_block(storage), storage_identity(storage)
        self.live[death.key] = death
        return death.block

    def new_block(self, storage: torch.UntypedStorage) -> Block:
        """Make another block; a fake storage has no address."""
        block = Block(storage.nbytes(), "cpu", -1)
        self.blocks.append(block)
        return block


class TwinRecorder(Recorder):
    """Record fake tensors as well as real ones."""

    def __init__(self, *, fake: bool) -> None:
        super().__init__(automatic_phases=False)
        self._is_fake = fake
        self.ledger = TwinLedger()
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
            self.ledger.bury()  # what is lifted has memory for a moment; its fake tensor counts
            return
        super()._before(func, args, kwargs)
