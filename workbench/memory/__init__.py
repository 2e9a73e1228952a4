"""Where memory goes: every allocation and free, classified by what it is for.

``memory()`` around any code, `MemoryProbe` in a training step, ``memory(path)`` for a file.

Recording needs torch. Reading a record or a snapshot, replaying it and answering questions about it
do not, and neither does importing this package: its names are resolved on first use, so that a
process of the Jupyter server can open a file without spending a second and 200 MB on torch.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from workbench.records import MemoryRecord

if TYPE_CHECKING:
    from workbench.memory.files.snapshot import open_file
    from workbench.memory.probe import MemoryProbe
    from workbench.memory.reading.chart import to_chart
    from workbench.memory.session import MemoryRecording
    from workbench.memory.view import MemoryView

__all__ = ["MemoryProbe", "MemoryRecording", "MemoryView", "memory", "open_file", "to_chart"]

_MODULES = {
    "MemoryProbe": "workbench.memory.probe",
    "MemoryRecording": "workbench.memory.session",
    "MemoryView": "workbench.memory.view",
    "open_file": "workbench.memory.files.snapshot",
    "to_chart": "workbench.memory.reading.chart",
}


_NOT_A_FILE = (
    "certify=True replays the trace of a snapshot file, and memory() got a {}; pass the path "
    "of a file that torch.cuda.memory._dump_snapshot wrote"
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {__all__}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


@overload
def memory(target: None = None) -> MemoryRecording: ...
@overload
def memory(
    target: Any,
    *,
    certify: bool = False,
    card: str | SupportsIndex | None = None,
    settings: str | None = None,
    batch: int | None = None,
) -> MemoryView: ...
def memory(
    target: Any = None,
    *,
    certify: bool = False,
    card: str | SupportsIndex | None = None,
    settings: str | None = None,
    batch: int | None = None,
) -> MemoryView:
    """Show where memory goes, or where it would go on a GPU that is not available here.

    With ``card``, ``settings`` or ``batch`` nothing is measured: a simulated CUDA allocator serves
    the requests of the next step of an experiment (computed on a copy, mostly on fake tensors, and
    never applied), of a recording or of a snapshot. The record is marked *predicted*, with an
    interval of its peak and the reasons why it may be off.

    Args:
        target: nothing, for ``with wb.memory() as mem:`` around any code; an `Experiment`, for its
            next step (one step is run if the experiment is idle; if that step has run out of
            memory, and model, modes, GPU and batch sizes have not changed since, the record kept of
            it, with what helps); a path to a saved record or an allocator snapshot; or a
            `MemoryRecord`, or a view of one.
        certify: for a snapshot file, replay the trace whatever its length, so that blocks have
            their true sizes and the view reports how far they can be trusted. Short traces are
            always replayed.
        card: the GPU to predict for: a name (``"RTX 4090"``), an amount (``"8 GiB"``), or the bytes
            that a GPU reports.
        settings: the settings to predict under, as in ``PYTORCH_CUDA_ALLOC_CONF``
            (``"expandable_segments:True"``).
        batch: the number of samples in the batch to predict with.

    Returns:
        A view with ``.record``, ``.save(path)``, ``.figure()`` and a rich display.

    Raises:
        TypeError: the target is none of these, ``certify`` is given for something that is not a
            file, or a prediction is requested without anything to predict from.
        ValueError: no GPU has that name, the allocator does not accept the settings, the batch has
            no samples, or a recording does not know its batch.
        RuntimeError: no copy of the experiment's step can be run, or the experiment is closed; the
            message says why.
        FileNotFoundError: no file at the path.
        RecordError: the file is neither a memory record nor an allocator snapshot.
    """
    from workbench.memory.view import MemoryView

    if isinstance(target, MemoryView):
        target = target.record
    if not (card is None and settings is None and batch is None):
        return MemoryView(_predicted(target, card, settings or "", batch, certify=certify))
    if isinstance(target, (str, Path)):
        from workbench.memory.files.snapshot import open_file

        return MemoryView(open_file(target, certify=certify))
    if certify:
        raise TypeError(_NOT_A_FILE.format(type(target).__name__))
    if target is None:
        from workbench.memory.session import MemoryRecording

        return MemoryRecording()
    if isinstance(target, MemoryRecord):
        return MemoryView(target)
    if callable(getattr(target, "capture", None)):
        from workbench.experiment.failure.out_of_memory import kept_record
        from workbench.memory.prediction.batch_growth_capture import (
            MOST_BY_DEFAULT,
            growth_on_demand,
            with_determined_growth,
        )
        from workbench.memory.probe import MemoryProbe

        kept = kept_record(target) if getattr(target, "failure", None) is not None else None
        record = kept or target.capture(MemoryProbe()).wait()
        record = with_determined_growth(target, record, MOST_BY_DEFAULT)
        return MemoryView(record, growth_on_demand(target, record))
    raise TypeError(
        f"memory() got a {type(target).__name__}; it takes nothing (as a `with` block), an "
        "Experiment, a path to a saved record or allocator snapshot, or a MemoryRecord"
    )


def _predicted(
    target: Any,
    card: str | SupportsIndex | None,
    settings: str,
    batch: int | None,
    *,
    certify: bool,
) -> MemoryRecord:
    if isinstance(target, (str, Path)):
        from workbench.memory.files.snapshot import open_file

        target = open_file(target, certify=certify)
    elif certify:
        raise TypeError(_NOT_A_FILE.format(type(target).__name__))
    if isinstance(target, MemoryRecord):
        from workbench.memory.prediction.predict import predicted_recording

        return predicted_recording(target, card, settings, batch=batch)
    if callable(getattr(target, "capture", None)):
        from workbench.memory.prediction.predict import predicted_step

        return predicted_step(target, card, settings, batch=batch)
    raise TypeError(
        f"memory() got a {type(target).__name__} to predict from; with card=, settings= or batch= "
        "it takes an Experiment, a path to a saved record or allocator snapshot, or a MemoryRecord"
    )
