"""What is not known about a prediction: alternatives that can be simulated, and sentences.

A *draft* is a record of what would be requested of a GPU, under one set of assumptions. The first
draft is the most likely; each of the others differs in one open question.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.allocator.simulator.gpus import Gpu
from workbench.memory.prediction.cublas_workspaces import blas_workspace
from workbench.memory.prediction.substitutions import (
    CONVOLUTIONS,
    FUSED_ATTENTION_BACKWARD,
    LSTM,
    MATMULS,
    Changed,
    attention_scratch,
    blas_workspaces,
    boolean_masks,
    counters_on_host,
    has_op,
    lstm_reserves,
    without_workspaces,
)
from workbench.records import MemoryRecord

NOT_CALIBRATED = (
    "Not calibrated: predictions have not been compared with a GPU here, so the interval holds "
    "what is known to be open and is no bound on the error."
)
SCRATCH = (
    "Scratch memory inside kernels (sorting, reductions, an embedding's backward) is left out."
)
CONVOLUTION = (
    "cuDNN chooses a workspace for each convolution by itself and holds it while that runs: left "
    "out."
)
RESERVE = (
    "cuDNN alone knows how large the reserve space of an LSTM is: counted is what its backward "
    "cannot do without, four gates and a cell state of every step."
)
ATTENTION = (
    "Which fused kernel attention takes depends on the GPU: where it works in 16 bits, the "
    "interval is without and with the sum in float32 that FlashAttention keeps during backward."
)
ARCHITECTURE = (
    "The GPU's architecture is not known, and with it the size of cuBLAS's workspaces: the "
    "interval is that of both defaults."
)
AS_RECORDED = (
    "Everything ran as it does on the CPU: on CUDA an optimizer works on lists of tensors by "
    "default, and attention with dropout has a fused kernel. wb.memory(experiment, card=...) "
    "predicts with both."
)

Change = Callable[[MemoryRecord], Changed]


def drafts_of(record: MemoryRecord, gpu: Gpu | None) -> tuple[list[MemoryRecord], tuple[str, ...]]:
    """Return the requests to a GPU under each set of assumptions, and the changes for the first.

    Args:
        record: a recording on the CPU.
        gpu: the GPU to predict for.
    """
    low, high = blas_workspace("" if gpu is None else gpu.name)
    common: list[Change] = [boolean_masks, counters_on_host, without_workspaces, lstm_reserves]
    base, sentences = _after(record, common)
    likely, more = _after(base, [lambda found: blas_workspaces(found, low)])
    others: list[MemoryRecord] = []
    if high != low:
        others.append(blas_workspaces(base, high).record)
    scratch = attention_scratch(likely)
    if scratch.what:
        others.append(scratch.record)
        if high != low:
            others.append(attention_scratch(others[0]).record)
    return [likely, *others], (*sentences, *more)


def reasons_of(
    record: MemoryRecord, gpu: Gpu | None, *, as_recorded: bool = False
) -> tuple[str, ...]:
    """Return why a prediction may be off, one sentence per reason.

    Args:
        record: the recording that it is made from.
        gpu: the GPU that it is for.
        as_recorded: whether everything ran as it does on the CPU.
    """
    low, high = blas_workspace("" if gpu is None else gpu.name)
    conditions = (
        (True, NOT_CALIBRATED),
        (as_recorded, AS_RECORDED),
        (has_op(record, CONVOLUTIONS), CONVOLUTION),
        (has_op(record, (LSTM,)), RESERVE),
        (has_op(record, (FUSED_ATTENTION_BACKWARD,)), ATTENTION),
        (low != high and has_op(record, MATMULS), ARCHITECTURE),
        (True, SCRATCH),
    )
    return tuple(sentence for holds, sentence in conditions if holds)


def _after(record: MemoryRecord, changes: list[Change]) -> tuple[MemoryRecord, tuple[str, ...]]:
    sentences: list[str] = []
    for change in changes:
        record, what = change(record)
        if what:
            sentences.append(what)
    return record, tuple(sentences)
