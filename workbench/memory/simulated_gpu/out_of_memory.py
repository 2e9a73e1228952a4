"""An experiment's tool for memory: simulate a GPU, explain a shortage, try what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.experiment.failure.out_of_memory import Explained, Remedied
from workbench.memory.reading.text import format_bytes
from workbench.memory.simulated_gpu.remedies import Search
from workbench.memory.simulated_gpu.simulated_gpu import SimulatedGpu
from workbench.records import Fact, MemoryRecord
from workbench.records.source import source_line

if TYPE_CHECKING:
    import torch

    from workbench.allocator.memory_limit import GpuLimit
    from workbench.experiment.failure.out_of_memory import Trials
    from workbench.experiment.training import Training


class OutOfMemoryTool:
    """The tool of `workbench.experiment.services.Services`."""

    def simulate(self, training: Training, limit: GpuLimit) -> SimulatedGpu:
        """Simulate a GPU from the next step on."""
        return SimulatedGpu(training, limit)

    def explain(self, training: Training, error: torch.OutOfMemoryError) -> Explained | None:
        """Return the memory record of the step that failed; None if it was not recorded."""
        del error
        gpu = training.gpu
        if not isinstance(gpu, SimulatedGpu) or gpu.failed is None:
            return None
        work, gpu.failed = gpu.failed, None
        block = gpu.ledger.refused[-1].block
        line = block.line
        source = None if line is None else source_line(line.filename, line.line, line.function)
        record = work.record()
        return Explained(record, facts_of(record, block.op, block.module), source)

    def with_remedies(self, training: Training, record: MemoryRecord, trials: Trials) -> Remedied:
        """Return ``record`` with what helps, each remedy tried; the training is unchanged.

        Nothing is tried without a simulated GPU: on a real one the failed step is not recorded.
        """
        if not isinstance(training.gpu, SimulatedGpu):
            return Remedied(record, ())
        search = Search(training, record, trials)
        search.run()
        return search.remedied()


def facts_of(record: MemoryRecord, op: str = "", module: str = "") -> tuple[Fact, ...]:
    """Return the last request and what was available, in a few rows.

    Args:
        record: a record that ends with a refused request.
        op: the operation that made it.
        module: the module whose forward or backward it ran in.
    """
    requested = format_bytes(int(record.oom_bytes[-1]))
    by = "".join([f", {op}" if op else "", f" in {module}" if module else ""])
    live = int(record.series()[:, -1].sum())
    reserved = int(record.reserved()[-1])
    found = {
        "Requested": f"{requested}{by}",
        "GPU": f"{record.card}, simulated: {format_bytes(record.card_bytes)} usable",
        "Allocated": format_bytes(live),
        "Free on the GPU": format_bytes(max(0, record.card_bytes - reserved)),
        "Free in segments": _in_segments(record, reserved - live),
    }
    rows = record.obstacle_block[record.obstacle_oom == len(record.oom_event) - 1]
    if len(rows):
        held, count = format_bytes(int(record.block_bytes[rows].sum())), len(rows)
        found["In the way"] = f"{count:,} block{'s' * (count > 1)}, {held}"
    return tuple(Fact(label=label, value=value) for label, value in found.items())


def _in_segments(record: MemoryRecord, unused: int) -> str:
    largest = int(record.oom_largest[-1])
    if unused <= 0 or largest < 0:
        return format_bytes(max(0, unused))
    if not largest:
        return f"{format_bytes(unused)}, none where it could go"
    return f"{format_bytes(unused)}, at most {format_bytes(largest)} in one piece"
