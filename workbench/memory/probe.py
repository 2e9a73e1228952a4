"""The memory of one training step that runs anyway."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch

from workbench.experiment.data.data import batch_size_of, split
from workbench.experiment.loop.probe import StepContext, StepProbe
from workbench.memory.prediction.batch_growth import with_growth
from workbench.memory.reading.recorded_program import is_cut_off
from workbench.memory.reading.text import format_bytes
from workbench.memory.recording import cuda_history
from workbench.memory.recording.categories import adopt_inputs, adopt_model, adopt_optimizer
from workbench.memory.recording.contained_errors import in_words
from workbench.memory.recording.record_builder import build_record
from workbench.memory.recording.recorder import Recorder, current_recorder, refuse_nested
from workbench.memory.recording.undispatched_memory import undispatched_memory
from workbench.memory.simulated_gpu.gpu_recorder import GpuRecorder
from workbench.records import CATEGORIES, MemoryRecord

if TYPE_CHECKING:
    from workbench.memory.simulated_gpu.work_record import Work


class MemoryProbe(StepProbe):
    """Record every allocation and free of one step, separated into forward, backward and optimizer.

    It installs no hooks and causes no recompilation; the step computes what it would have computed
    without the probe, and each operation takes some 20 to 45 us longer (a step of 65 to 110 ms of a
    CNN or a transformer takes about 1.5 times as long, one of thousands of tiny operations about 5
    times: docs/memory.md). Steps without the probe run code that does not involve it.
    """

    kind: ClassVar[str] = "memory"
    feature = "memory"

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._recorder: Recorder | None = None
        self._context: StepContext | None = None
        self._history = cuda_history.AllocatorHistory()
        self._work: Work | None = None
        """The step, if it is recorded anyway because it runs on a simulated GPU."""

    def before_step(self, context: StepContext) -> None:
        """Name what is allocated already, then start recording."""
        self._context = context
        running = current_recorder()
        if isinstance(running, GpuRecorder) and running.work is not None:
            self._work = running.work
            return
        refuse_nested()
        recorder = Recorder(automatic_phases=False)
        self._recorder = recorder
        self._settle()
        recorder.name_held(adopt_inputs, context.batch)
        recorder.attribution.add_root(context.model)
        if context.device.type == "cuda":
            self._history.start()
        self._stack.enter_context(undispatched_memory())
        self._stack.enter_context(recorder)

    def before_forward(self) -> None:
        """Name what was allocated so far as the batch on the device, and begin the forward."""
        if self._work is not None:
            return
        recorder = self._running()
        for block in recorder.blocks:
            if block.start >= 0 and not block.category:
                block.category, block.name = "buffers", "batch"
        recorder.begin_phase("forward")

    def after_forward(self, loss: torch.Tensor) -> None:  # noqa: ARG002 - the hook's signature
        """Begin the backward."""
        if self._work is None:
            self._running().begin_phase("backward")

    def after_backward(self) -> None:
        """Name the gradients, which now exist, and begin the optimizer."""
        if self._work is not None:
            return
        self._settle()
        self._running().begin_phase("optimizer")

    def finish(self) -> MemoryRecord:
        """Stop, name what the step left behind, release everything and return the record."""
        context = self._context
        if context is None:
            raise RuntimeError(_ONE_STEP)
        try:
            return with_first_state(self._finished(context))
        finally:
            self._history.close()
            if self._recorder is not None:
                self._recorder.close()
            self._recorder = self._context = self._work = None

    def _finished(self, context: StepContext) -> MemoryRecord:
        if self._work is not None:
            self._work.end(sys.exception(), context.model, context.optimizer)
            return self._work.record()
        recorder = self._running()
        self._stack.close()
        recorder.begin_phase("")
        self._settle()
        return with_growth(self._built(recorder, context, sys.exception()))

    def _built(
        self, recorder: Recorder, context: StepContext, error: BaseException | None
    ) -> MemoryRecord:
        inputs, targets = split(context.batch)
        ended = () if error is None else (f"The step ended with {in_words(error)}",)
        return build_record(
            recorder,
            self._history,
            title=f"{context.name}, step {context.step:,}",
            device=str(_indexed(context.device)),
            experiment=context.name,
            step=context.step,
            batch_size=batch_size_of(inputs, targets),
            notes=(*ended, *(_COMPILED if context.compiled else ())),
        )

    def _settle(self) -> None:
        context, recorder = self._context, self._running()
        if context is not None:
            with torch.no_grad():
                recorder.name_held(adopt_model, context.model)
                recorder.name_held(adopt_optimizer, context.optimizer)

    def _running(self) -> Recorder:
        if self._recorder is None:
            raise RuntimeError(_ONE_STEP)
        return self._recorder


_ONE_STEP = "a memory probe serves one step; make a new one for another"

_COMPILED = (
    "Compiled regions ran as they always do: their buffers are counted, but belong to the region's "
    "module as a whole, and values fused away were never allocated.",
)

_FIRST_STATE = (
    "The optimizer made its state in this step, {size}: it appears at the update, and every later "
    "step has it from its beginning."
)


def _indexed(device: torch.device) -> torch.device:
    """Return ``cuda`` as ``cuda:0``, as storages name their device."""
    return torch.empty(0, device=device).device


def with_first_state(record: MemoryRecord) -> MemoryRecord:
    """Return ``record`` with a note if the optimizer made its state in it, as it does only once."""
    is_state = (record.block_category == CATEGORIES.index("optimizer")) & (record.block_bytes > 0)
    made = is_state & (record.block_start >= 0) & (record.block_end < 0)
    was_there = (is_state & (record.block_start < 0)).any()
    if was_there or not made.any() or is_cut_off(record):
        return record
    note = _FIRST_STATE.format(size=format_bytes(int(record.block_bytes[made].sum())))
    return replace(record, notes=(*record.notes, note))
