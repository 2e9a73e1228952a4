"""``with wb.memory() as mem:`` around any code.

Nothing has to be named: models and optimizers are recognised when they first run, and what they
hold is classified then and again at the end.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import torch
from torch import nn

from workbench.experiment import experiments
from workbench.memory.recording import cuda_history
from workbench.memory.recording.categories import adopt_model, adopt_optimizer
from workbench.memory.recording.record_builder import build_record
from workbench.memory.recording.recorder import Recorder, in_words, refuse_nested
from workbench.memory.recording.undispatched_memory import undispatched_memory
from workbench.memory.view import MemoryView
from workbench.records import MemoryRecord
from workbench.torch_private.self_check import notes_of


class MemoryRecording(MemoryView):
    """A recording of the block that it surrounds; after the block, the view of its record.

    An exception inside ends the recording, is kept in the record's notes and propagates. Naming
    what a model or an optimizer holds runs code of theirs: an exception raised by it becomes a note
    as well.
    """

    def __init__(self, title: str = "Recorded block") -> None:
        super().__init__(None)
        self._title = title
        self._stack = ExitStack()
        self._recorder: Recorder | None = None
        self._models: list[tuple[nn.Module, str]] = []
        self._history = cuda_history.AllocatorHistory()
        self._steps: dict[int, int] = {}

    def __enter__(self) -> Self:
        refuse_nested()
        notes_of("memory")
        if self._recorder is not None or self.has_record:
            raise RuntimeError(
                "this memory recording has been used already; write `with wb.memory() as mem:` for "
                "a new one"
            )
        self._steps = {id(experiment): experiment.step_count for experiment in experiments()}
        self._recorder = Recorder(on_root=self._saw_model, on_optimizer=adopt_optimizer)
        self._history.start()
        self._stack.enter_context(undispatched_memory())
        self._stack.enter_context(self._recorder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        assert recorder is not None, "left without being entered"  # noqa: S101
        try:
            self._stack.close()
            self._settle(recorder)
            notes = [] if error is None else [f"The block ended with {in_words(error)}"]
            notes += self._trained_elsewhere()
            self.show(self._finished(recorder, notes))
        finally:
            self._history.close()
            recorder.close()
            self._models.clear()
            self._recorder = None

    def _finished(self, recorder: Recorder, notes: list[str]) -> MemoryRecord:
        if threading.current_thread() is not threading.main_thread():
            notes.append(f"Recorded on the thread {threading.current_thread().name!r} only.")
        return build_record(recorder, self._history, title=self._title, notes=notes)

    def _trained_elsewhere(self) -> list[str]:
        """Return notes on experiments that trained meanwhile, on threads that are not recorded."""
        return [
            f"Experiment {experiment.name!r} trained meanwhile, on a thread of its own: its steps "
            "are not part of this recording. `wb.memory(experiment)` records a step of it."
            for experiment in experiments()
            if experiment.step_count > self._steps.get(id(experiment), 0)
        ]

    def _saw_model(self, recorder: Recorder, model: nn.Module, path: str) -> None:
        self._models.append((model, path))
        adopt_model(recorder, model, path)

    def _settle(self, recorder: Recorder) -> None:
        """Name what the block left behind: gradients and optimizer state that now exist."""
        with torch.no_grad():
            for model, path in self._models:
                recorder.name_held(adopt_model, model, path)
            for optimizer in recorder.optimizers.values():
                recorder.name_held(adopt_optimizer, optimizer)
