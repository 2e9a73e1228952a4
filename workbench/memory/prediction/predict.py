"""A training step on a GPU that is not available here.

The requests of a step are recorded on the CPU, from a copy
(`workbench.memory.prediction.step_copy`) that is run the way CUDA would run it
(`workbench.memory.prediction.cuda_operations`); what a GPU's libraries hold in addition is added,
and what only a CPU holds is removed (`workbench.memory.prediction.substitutions`). A simulated
allocator serves two such steps, and the second is the prediction: the state of its allocator, and
of the optimizer, is then that of a training that has begun.

What is not known is reported (`workbench.memory.prediction.unknowns`): if a question has two
answers, both are simulated and make the interval; what cannot be bounded is only a sentence. No
prediction has been compared with a GPU yet, so no error is claimed.

It takes 0.6 to 1 ms for each operation of the step, whatever its batch (for ResNet-50 2 s on one
quiet core, three quarters of a plain step of 8 images of 224 pixels there), and a run in progress
waits meanwhile. The copy's forward is the user's own code: what it does outside of the model and
its tensors, such as printing or appending to a list, it does four more times.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, SupportsIndex

from workbench.allocator.replay.program import Lifetimes
from workbench.allocator.simulator.gpus import Gpu
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.experiment.runtime.step_boundary import between_steps
from workbench.memory.prediction.copied_steps import copied_steps
from workbench.memory.prediction.unknowns import drafts_of, reasons_of
from workbench.memory.reading.record_range import from_event
from workbench.memory.reading.recorded_program import CUT_OFF, is_cut_off, lifetimes_of_record
from workbench.memory.reading.text import format_bytes, gpu_in_words
from workbench.memory.simulation.batch_scaling import assumptions
from workbench.memory.simulation.simulated_record import simulated
from workbench.memory.simulation.what_if import batch_of, gpu_of, parsed
from workbench.records import MemoryRecord

if TYPE_CHECKING:
    from workbench.experiment import Experiment

Place = Gpu | str | SupportsIndex | None

OF_STEP = (
    "Predicted: two steps of {copy}, run the way CUDA would allocate, served by a simulated CUDA "
    "allocator; this is the second."
)
OF_RECORDING = (
    "Predicted: what was recorded on the CPU, as it would be requested from a GPU, served by a "
    "simulated CUDA allocator."
)
OF_GPU = "Predicted: what was recorded on a GPU, served by a simulated CUDA allocator."

AGAIN = (
    "Predicted again from a prediction for {gpu}: what its libraries would hold is as it was there."
)
_FAILED = "Out of memory: "
OF_CPU_STORAGES = (
    "Predicted again from what operations on the CPU requested from a simulated allocator: what a "
    "GPU's libraries would hold in addition is not in it, and masks are as large as there."
)
TIGHT = (
    "It fits as it is most likely to be; under another assumption about what is open it does not."
)


def predicted_step(
    experiment: Experiment,
    gpu: Place = None,
    settings: AllocatorSettings | str = "",
    *,
    batch: int | None = None,
    fake: bool | None = None,
) -> MemoryRecord:
    """Predict the next step of an experiment, in steady state, on ``gpu``.

    Nothing in the training changes: a copy runs, between two steps if a run is in progress.

    Args:
        experiment: the experiment whose next step it is.
        gpu: name of a GPU, or the bytes that it reports; None: a GPU without a limit.
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``.
        batch: samples in the batch; None: as in the step.
        fake: whether the copy has no memory and computes nothing; None: a fake copy if that works,
            else a real one.

    Raises:
        StepCopyError: the step cannot be copied or run; the message says why.
        SettingsError: the allocator does not accept the settings.
        TypeError: a GPU is neither a name nor a whole number, or a batch is not a whole number.
        ValueError: no GPU has that name, or the batch has no samples.
    """
    place, chosen, batch = gpu_of(gpu), parsed(settings), batch_of(batch)
    steps = between_steps(experiment, lambda step: copied_steps(step, fake=fake, batch=batch))
    drafts, changes = drafts_of(steps.record, place)
    found = [_steady(simulated(draft, chosen, place)) for draft in drafts]
    needed = [
        _steady(simulated(draft, _keeping(chosen), None)) if len(one.oom_event) else one
        for draft, one in zip(drafts, found, strict=True)
    ]
    basis = " ".join((OF_STEP.format(copy=steps.what), *steps.changes, *changes))
    return _claimed(found, needed, basis, (*steps.reasons, *reasons_of(steps.record, place)))


def predicted_recording(
    record: MemoryRecord,
    gpu: Place = None,
    settings: AllocatorSettings | str = "",
    *,
    batch: int | None = None,
) -> MemoryRecord:
    """Predict a recording on ``gpu``: unchanged if it is of a GPU, else as a GPU would allocate.

    Args:
        record: a recording, a snapshot, or a prediction.
        gpu: name of a GPU, or the bytes that it reports; None: a GPU without a limit.
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``.
        batch: samples in the batch; None: as recorded.

    Raises:
        SettingsError: the allocator does not accept the settings.
        TypeError: a GPU is neither a name nor a whole number, or a batch is not a whole number.
        ValueError: no GPU has that name, or the recording does not know its batch.
    """
    place, chosen, batch = gpu_of(gpu), parsed(settings), batch_of(batch)
    drafts, basis, reasons = _read(record, place)
    if is_cut_off(record) and CUT_OFF not in reasons:
        reasons = (CUT_OFF, *reasons)
    found: list[MemoryRecord] = []
    needed: list[MemoryRecord] = []
    for draft in drafts:
        for lifetimes in _sizes(draft, batch):
            made = simulated(draft, chosen, place, lifetimes)
            size = draft.batch_size if batch is None else batch
            found.append(dataclasses.replace(made, batch_size=size))
            is_refused = len(made.oom_event) > 0
            needed.append(
                simulated(draft, _keeping(chosen), None, lifetimes) if is_refused else made
            )
    return _claimed(found, needed, basis, reasons)


def _read(record: MemoryRecord, gpu: Gpu | None) -> tuple[list[MemoryRecord], str, tuple[str, ...]]:
    """Return a GPU's requests under each set of assumptions, their basis, and what is open."""
    if _is_of_cpu_storages(record):
        reasons = reasons_of(record, gpu, as_recorded=True)
        return [record], record.basis, (OF_CPU_STORAGES, *record.reasons, *reasons)
    if record.is_predicted:
        return (
            [record],
            record.basis,
            (AGAIN.format(gpu=record.card or "a GPU without a limit"), *record.reasons),
        )
    if record.device.startswith("cuda"):
        return [record], OF_GPU, ()
    drafts, changes = drafts_of(record, gpu)
    reasons = reasons_of(record, gpu, as_recorded=True)
    return drafts, " ".join((OF_RECORDING, *changes)), reasons


def _is_of_cpu_storages(record: MemoryRecord) -> bool:
    """Return whether a simulated allocator served what the CPU allocated (`Experiment.card`).

    The device of such a record is a GPU without an index, and nothing in it is known to be open,
    unlike in a prediction.
    """
    return record.is_predicted and record.device == "cuda" and {*record.reasons} <= {CUT_OFF}


def _sizes(record: MemoryRecord, batch: int | None) -> list[Lifetimes]:
    lifetimes = lifetimes_of_record(record, with_refused=True)
    return [lifetimes] if batch is None else assumptions(record, lifetimes, batch)


def _steady(record: MemoryRecord) -> MemoryRecord:
    """Return only the second step; everything if the first one did not fit."""
    forwards = [phase.start for phase in record.phases if phase.name == "forward"]
    return from_event(record, forwards[1]) if len(forwards) > 1 else record


def _keeping(settings: AllocatorSettings) -> AllocatorSettings:
    """Return the same settings without garbage collection, for a GPU without a limit."""
    return dataclasses.replace(settings, garbage_collection_threshold=0.0)


def _claimed(
    found: list[MemoryRecord],
    needed: list[MemoryRecord],
    basis: str,
    reasons: tuple[str, ...],
) -> MemoryRecord:
    """Return the most likely of several results, with the interval that all of them span.

    Args:
        found: the results on the GPU.
        needed: the same results; for one with a refused request, the result without a limit.
        basis: what they are based on.
        reasons: what is open.
    """
    peaks = [int(record.reserved().max()) for record in needed]
    first = found[0]
    if any(len(record.oom_event) for record in found) and not len(first.oom_event):
        reasons = (TIGHT, *reasons)
    return dataclasses.replace(
        first,
        title=_title(first),
        basis=basis,
        reasons=reasons,
        peak_interval=(min(peaks), max(peaks)),
    )


def _title(record: MemoryRecord) -> str:
    """Return the title; if the step does not fit, the title of a failed run's record."""
    title = record.title
    if title.startswith(_FAILED) and record.experiment is not None and record.step is not None:
        title = f"{record.experiment}, step {record.step:,}"  # it failed on another GPU
    if not len(record.oom_event):
        return title
    requested = format_bytes(int(record.oom_bytes[-1]))
    last = int(record.oom_event[-1])
    during = next((f" ({p.name})" for p in record.phases if p.start <= last <= p.end), "")
    return f"{_FAILED}{requested} requested{during}, {title}, on {gpu_in_words(record.card)}"
