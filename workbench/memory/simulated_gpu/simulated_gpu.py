"""Steps and validations of an experiment on a simulated GPU.

The simulated GPU exists for as long as it is set: what one step leaves in its cache is there for
the next step, as on a GPU. Between steps it only records what is freed. Every piece of work is
recorded, which is what it costs (`workbench.memory.probe` says how much), so that the record of the
one that fails is available.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch

from workbench.allocator.memory_limit import GpuLimit
from workbench.allocator.simulator.release import inactive_split
from workbench.experiment.data.data import batch_size_of, split
from workbench.experiment.failure.out_of_memory import GpuUse
from workbench.memory.recording.recorder import refuse_nested
from workbench.memory.recording.undispatched_memory import undispatched_memory
from workbench.memory.simulated_gpu.gpu_recorder import GpuLedger, GpuRecorder
from workbench.memory.simulated_gpu.held_segments import held_by
from workbench.memory.simulated_gpu.work_record import Work

if TYPE_CHECKING:
    from workbench.experiment.training import Training


class SimulatedGpu:
    """A simulated GPU, and the training that runs on it."""

    def __init__(self, training: Training, limit: GpuLimit) -> None:
        self.limit = limit
        self.ledger = GpuLedger(limit, _named(training.device))
        self.failed: Work | None = None
        """The work that was refused a request, until it has been explained."""
        self._training = weakref.ref(training)
        self._settled: tuple[int, int] = (0, 0)
        """Ids of the model and the optimizer that are on the simulated GPU."""

    @contextmanager
    def at_work(self, what: Literal["step", "validation"], batch: Any) -> Generator[None]:
        """Enter this around the computation of ``batch``.

        Raises (inside):
            torch.OutOfMemoryError: the simulated GPU could not have served a request.
        """
        refuse_nested()
        training = self._training()
        if training is None:
            raise RuntimeError("the training that this simulated GPU was made for no longer exists")
        self.failed = None
        batch_size = batch_size_of(*split(batch))
        recorder = GpuRecorder(self.ledger)
        recorder.attribution.add_root(training.model)
        self.ledger.next_step()
        work = recorder.work = self._work(training, recorder, what, batch_size)
        try:
            if self._settle(training, recorder):
                work.held = held_by(self.ledger.allocator)
            with undispatched_memory(), recorder:
                yield
        except torch.OutOfMemoryError as error:
            work.end(error, training.model, training.optimizer)
            self.failed = work if work.is_refused else None
            raise
        finally:
            recorder.close()

    @contextmanager
    def trial(self, interrupted: Callable[[], bool]) -> Generator[None]:
        """Do not count what is done inside, and end it when ``interrupted`` returns True.

        Raises (inside):
            Interrupted: ``interrupted`` returned True.
        """
        ledger = self.ledger
        peaks = ledger.peak_allocated, ledger.peak_reserved
        ledger.peak_allocated, ledger.peak_reserved = ledger.allocated, ledger.allocator.reserved
        ledger.interrupted = interrupted
        try:
            yield
        finally:
            ledger.interrupted = self.failed = None
            ledger.peak_allocated, ledger.peak_reserved = peaks

    def empty_cache(self) -> None:
        """Release everything unused, as ``torch.cuda.empty_cache`` does."""
        self.ledger.next_step()
        self.ledger.allocator.empty_cache()

    def use(self) -> GpuUse:
        """Return what it holds now; may be called from any thread."""
        ledger, allocator = self.ledger, self.ledger.allocator
        return GpuUse(
            allocated=ledger.allocated,
            reserved=allocator.reserved,
            fragmentation=inactive_split(allocator),
            peak_allocated=ledger.peak_allocated,
            peak_reserved=ledger.peak_reserved,
        )

    def _settle(self, training: Training, recorder: GpuRecorder) -> bool:
        """Put a new model and a new optimizer on the simulated GPU, before the step begins."""
        settled = id(training.model), id(training.optimizer)
        if settled == self._settled:
            return False
        recorder.settle(training.model, training.optimizer)
        self._settled = settled
        self.ledger.next_step()
        return True

    def _work(
        self,
        training: Training,
        recorder: GpuRecorder,
        what: Literal["step", "validation"],
        batch_size: int,
    ) -> Work:
        step = training.step_count + (what == "step")
        return Work(
            recorder=recorder,
            held=held_by(self.ledger.allocator),
            when=f"step {step:,}" if what == "step" else f"validation after step {step:,}",
            experiment=training.name,
            step=step,
            batch_size=batch_size,
        )


def _named(device: torch.device) -> str:
    """Return the device as storages name it."""
    return str(torch.empty(0, device=device).device)
