"""Running out of memory: the run survives, and the cause is investigated.

An experiment knows nothing of recordings, allocators or remedies; `workbench.memory` does, and its
tool is one of the experiment's `workbench.experiment.services`. The tool has two tasks. It
*simulates a GPU*: steps and validations run inside it, and a request that such a GPU could not
serve raises ``torch.OutOfMemoryError`` where it was made. And if that is raised in a run, by a
simulated GPU or by CUDA itself, the tool returns the memory record of the failed step, and then
tries what would help.

The failure is reported as soon as the record exists; remedies are tried after that, on a thread of
the runner's, until the user runs, resumes or stops (`remedied`).

Before that, the failed step is released (`workbench.experiment.failure.release`).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from workbench.experiment.failure.failure import at_line
from workbench.experiment.failure.release import release_frames
from workbench.experiment.failure.remedies import Tried
from workbench.experiment.report.events import Captured
from workbench.records import Fact, Failure, MemoryRecord, SourceLine

if TYPE_CHECKING:
    from workbench.allocator.memory_limit import GpuLimit
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.failure.changes import Change
    from workbench.experiment.training import Training

MOST_SHOWN = 5
"""Number of remedies that the failure names; the record has all."""

_KEPT = (
    "This is the step that ran out of memory, as it was kept; no step was computed for it. "
    "exp.resume() runs it again."
)

T = TypeVar("T")

log = logging.getLogger("workbench")


class GpuUse(NamedTuple):
    """Memory use of a simulated GPU, in bytes."""

    allocated: int
    reserved: int
    fragmentation: int
    """Free blocks in segments that are still used by other blocks (``inactive_split_bytes``)."""
    peak_allocated: int
    """Since the simulated GPU was created, as `peak_reserved`."""
    peak_reserved: int


class GpuSimulator(Protocol):
    """Runs steps on a simulated GPU."""

    limit: GpuLimit

    def at_work(
        self, what: Literal["step", "validation"], batch: Any
    ) -> AbstractContextManager[None]:
        """Return a context that is entered around the computation of ``batch``.

        Raises (inside):
            torch.OutOfMemoryError: the simulated GPU could not have served a request.
        """
        ...

    def empty_cache(self) -> None:
        """Return everything unused to the simulated GPU, as ``torch.cuda.empty_cache`` does."""
        ...

    def use(self) -> GpuUse:
        """Return its current memory use; can be called from any thread."""
        ...


class Trials(NamedTuple):
    """What a search for remedies may do apart from computing."""

    say: Callable[[str], None]
    """Shows what is being tried."""
    cancelled: Callable[[], bool]
    """Whether the search is to end; called often."""
    between: Callable[[], None]
    """Called between two trials: carries out what was requested in the meantime."""


class Explained(NamedTuple):
    """What is known about a step that ran out of memory."""

    record: MemoryRecord
    facts: tuple[Fact, ...]
    """What was requested and what was available, in a few rows."""
    source: SourceLine | None
    """The line that made the request, or whose backward did."""


class Remedied(NamedTuple):
    """Result of a search for remedies."""

    record: MemoryRecord
    """Record of the failed step, with its remedies."""
    changes: tuple[Change, ...]
    """What each of the remedies changes."""


class MemoryTool(Protocol):
    """The tool that knows about memory."""

    def simulate(self, training: Training, limit: GpuLimit) -> GpuSimulator:
        """Simulate a GPU from the next step on."""
        ...

    def explain(self, training: Training, error: torch.OutOfMemoryError) -> Explained | None:
        """Return the memory record of the step that failed; None if it was not recorded."""
        ...

    def with_remedies(self, training: Training, record: MemoryRecord, trials: Trials) -> Remedied:
        """Return ``record`` with what helps, each remedy tried; the training is left as it was."""
        ...


def _tool_of(training: Training) -> MemoryTool | None:
    make = training.services.memory_tool
    return None if make is None else make()


def simulate_gpu(training: Training, limit: GpuLimit | None) -> None:
    """Run steps on the GPU of ``limit`` from the next one on, or on the actual hardware.

    Raises:
        RuntimeError: nothing that can simulate a GPU is provided.
    """
    if limit is None:
        training.gpu = None
        return
    known = _tool_of(training)
    if known is None:
        raise RuntimeError(
            "nothing here can simulate a GPU: make the experiment with wb.Experiment"
        )
    training.gpu = known.simulate(training, limit)


def refuse_too_large_model(training: Training, limit: GpuLimit) -> None:
    """Raise if the model alone is larger than the GPU.

    Raises:
        ValueError: parameters and buffers do not fit.
    """
    held = sum(t.nbytes for t in (*training.parameters, *training.model.buffers()))
    usable = limit.gpu.usable_bytes
    if held > usable:
        raise ValueError(
            f"a GPU of {limit.gpu.name} has {usable / 2**20:,.0f} MiB for a program, and the "
            f"parameters and buffers of {type(training.model).__name__} alone are "
            f"{held / 2**20:,.0f} MiB; choose a larger GPU"
        )


def survive(training: Training, error: torch.OutOfMemoryError, failure: Failure) -> Failure:
    """Keep the record of the failed step, and release the step.

    Returns:
        ``failure``, which says what was requested and names the record.
    """
    known = _tool_of(training)
    found = None if known is None else _or_none(lambda: known.explain(training, error))
    training.failed_under = conditions(training)
    release_frames(error)
    if training.gpu is not None:
        training.gpu.empty_cache()
    elif training.device.type == "cuda":
        torch.cuda.empty_cache()
    if found is None:
        return replace(failure, title=f"Out of memory: {failure.title}")
    record = found.record
    capture_id = training.captures.add("memory", failure.step, record, record.title)
    training.board.emit(Captured(failure.step, capture_id))
    if failure.source is None and found.source is not None:
        failure = at_line(failure, found.source)  # backward: that line is not on the stack
    return replace(failure, title=record.title, capture=capture_id, memory=found.facts)


def remedied(training: Training, failure: Failure, trials: Trials) -> Failure:
    """Try what would have let the failed step fit, and replace its record by one that says so.

    Returns:
        ``failure`` with the best of the remedies.
    """
    known = _tool_of(training)
    if known is None or not failure.capture:
        return failure
    record = training.captures.get(failure.capture)
    if not isinstance(record, MemoryRecord):
        return failure
    gpu = None if training.gpu is None else str(training.gpu.limit)
    found = _or_none(lambda: known.with_remedies(training, record, trials))
    if found is None:
        return failure
    training.captures.replace(failure.capture, found.record)
    shown = found.record.remedies[:MOST_SHOWN]
    training.tried = Tried(shown, found.changes[:MOST_SHOWN], gpu)
    return replace(failure, remedies=shown)


def conditions(training: Training) -> tuple[object, ...]:
    """Return the settings of the next step, as far as they determine whether it fits."""
    source, val, gpu = training.cursor.source, training.val, training.gpu
    return (
        training.modes,
        weakref.ref(training.model),
        None if gpu is None else weakref.ref(gpu),
        source.batch_size,
        None if val is None else val.batch_size,
        *(group.get("foreach") for group in training.optimizer.param_groups),
        *(parameter.requires_grad for parameter in training.parameters),
        *((weakref.ref(module), *_switches(module)) for module in training.model.modules()),
    )


def _switches(module: nn.Module) -> list[tuple[str, object]]:
    """Attributes that a model lets the user switch: ``gradient_checkpointing``, a dropout rate."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if isinstance(value, (bool, int, float, str)) and name != "training"
    ]


def kept_record(experiment: Experiment) -> MemoryRecord | None:
    """Return the record of the step that ran out of memory, if the next one is not known to differ.

    Waits for trials of remedies, so that the record contains them. What the user's own code does is
    not compared, so the record says that it was kept.
    """
    experiment._runner.join()  # pyright: ignore[reportPrivateUsage] - the same package
    return _kept(experiment._training)  # pyright: ignore[reportPrivateUsage] - the same package


def _kept(training: Training) -> MemoryRecord | None:
    failure = training.board.failure
    if failure is None or conditions(training) != training.failed_under:
        return None
    try:
        record = training.captures.get(failure.capture)
    except KeyError:
        return None  # released meanwhile
    if not isinstance(record, MemoryRecord):
        return None
    return replace(record, notes=(*record.notes, _KEPT))


def _or_none(work: Callable[[], T | None]) -> T | None:
    """Return the result of ``work``; a fault of ours must not hide that memory ran out."""
    try:
        return work()
    except Exception:
        log.exception("the step that ran out of memory could not be examined")
        return None
