"""What a recording on the CPU holds that a GPU would not hold, and the other way round.

Each substitution is a function from a record to a `Changed` one, with a sentence on what it did; if
there was nothing to do it returns the record with no sentence. They work on a finished recording,
using what it says of its blocks. (What can only be changed while the step runs is in
`workbench.memory.prediction.cuda_operations`.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from workbench.memory.prediction.replaced_blocks import Added, with_blocks, with_rows, with_sizes
from workbench.records import CATEGORIES, MemoryRecord

MATMULS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.mv", "aten.addmv")
"""Operations that cuBLAS computes."""
CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward")
LSTM, LSTM_BACKWARD = "aten.mkldnn_rnn_layer", "aten.mkldnn_rnn_layer_backward"
FUSED_ATTENTION_BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward"
MASK = "dropout mask"
"""The recorder's name for the mask of a dropout; the dtype of its elements comes before it."""
ATTENTION_GRADIENT = "attention gradient"
"""The recorder's name for the gradient of an attention's queries, also after its dtype."""
_ITEM_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
_HALF_BYTES = 2
_COUNTER_BYTES = 8
_RESULTS_OF_ATTENTION = 3
"""Gradients of queries, keys and values."""
_LSTM_RESULTS = 3
"""Output, last hidden state, last cell state."""
_LSTM_GRADIENTS = 7
"""Of the input, four of weights and biases, two of states."""
_LSTM_STATES = 5
"""Values that backward needs for each element of each step: four gates and the cell's state."""


class Changed(NamedTuple):
    """A record, and what was done to it."""

    record: MemoryRecord
    what: str = ""
    """One sentence; empty if nothing was done."""


def boolean_masks(record: MemoryRecord) -> Changed:
    """Return the record with dropout masks of one byte per element.

    The CPU draws a mask of the input's dtype (``_dropout_impl`` in
    ``aten/src/ATen/native/Dropout.cpp``), CUDA's fused kernel draws a mask of booleans. In place,
    and for ``alpha_dropout``, there is no such kernel, and the recorder names no block a mask.
    """
    divisors = np.ones(len(record.block_bytes), dtype=np.int64)
    kinds = {
        row: _ITEM_BYTES[found[1]]
        for row, name in enumerate(record.strings)
        if (found := re.fullmatch(rf"(\w+) {MASK}", name)) and found[1] in _ITEM_BYTES
    }
    for row, item_bytes in kinds.items():
        divisors[record.block_name == row] = item_bytes
    count = int((divisors > 1).sum())
    if not count:
        return Changed(record)
    sizes = record.block_requested // divisors
    what = f"{_blocks(count, 'dropout mask')} counted with a byte for each element, as CUDA has it."
    return Changed(with_sizes(record, sizes), what)


def counters_on_host(record: MemoryRecord) -> Changed:
    """Return the record without the step counts of optimizers, which stay on the CPU.

    ``torch.optim`` makes them without a device unless ``capturable`` or ``fused`` is set
    (``_init_group`` of Adam and others): one small tensor for each parameter, on the host. A
    recording does not say whether one of these was set; if it was, a block of 512 B each is
    missing.
    """
    names = [row for row, name in enumerate(record.strings) if name.endswith(".step")]
    is_counter = np.isin(record.block_name, names) & (record.block_bytes <= _COUNTER_BYTES)
    is_counter &= record.block_category == CATEGORIES.index("optimizer")
    if not is_counter.any():
        return Changed(record)
    what = f"{_blocks(int(is_counter.sum()), 'step count')} of the optimizer left on the host."
    return Changed(with_rows(record, ~is_counter), what)


def without_workspaces(record: MemoryRecord) -> Changed:
    """Return the record without what oneDNN's LSTM keeps for backward; cuDNN keeps other blocks."""
    rows = lstm_workspaces(record)
    if not rows:
        return Changed(record)
    kept = np.ones(len(record.block_bytes), dtype=np.bool_)
    kept[rows] = False
    return Changed(with_rows(record, kept), "Workspaces of oneDNN's LSTM left out.")


def lstm_workspaces(record: MemoryRecord) -> list[int]:
    """Return the rows of what oneDNN's LSTM keeps for its backward in addition to its results."""
    return [row for rows in _lstm_outputs(record) for row in rows[_LSTM_RESULTS:]]


def lstm_reserves(record: MemoryRecord) -> Changed:
    """Return the record with what backward needs of each LSTM step: four gates, a cell state.

    cuDNN keeps them in a reserve space whose size only cuDNN knows (``cudnnGetRNNTempSpaceSizes``);
    this is the least that it needs.
    """
    forwards = _lstm_outputs(record)
    ends = _lstm_ends(record)
    added = [
        Added(
            num_bytes=_LSTM_STATES * int(record.block_requested[rows[0]]),
            start=int(record.block_start[rows[0]]),
            end=ends.get(rows[0], -1),
            op="cuDNN reserve space",
            category="activations",
            like=rows[0],
        )
        for rows in forwards
    ]
    if not added:
        return Changed(record)
    what = f"{_blocks(len(added), 'reserve space')} of LSTM layers added."
    return Changed(with_blocks(record, added), what)


def blas_workspaces(record: MemoryRecord, num_bytes: int) -> Changed:
    """Return the record with cuBLAS's workspaces: one per thread that computes products.

    One belongs to the thread that runs forwards, one to autograd's. See
    `workbench.memory.prediction.cublas_workspaces`.
    """
    added: list[Added] = []
    for phases in (("forward", "optimizer", ""), ("backward",)):
        first = _first_matmul(record, phases)
        if first >= 0:
            added.append(Added(num_bytes=num_bytes, start=first, end=-1, op="cuBLAS workspace"))
    if not added or not num_bytes:
        return Changed(record)
    each = f"{num_bytes:,} B each, kept from the first product on"
    what = f"{_blocks(len(added), 'workspace')} of cuBLAS added ({each})."
    return Changed(with_blocks(record, added), what)


def attention_scratch(record: MemoryRecord) -> Changed:
    """Return the record with float32 sums in which a fused attention's backward may accumulate.

    FlashAttention's backward holds one for the queries' gradient while it runs (``dq_accum`` in
    ``flash_api.cpp``); whether the kernel that is chosen needs it is not known. It accepts 16-bit
    dtypes only; if the recording does not contain the dtype, it may have been one of them.
    """
    last = len(record.event_kind) - 1
    added = [
        Added(
            num_bytes=2 * int(record.block_requested[call[0]]),
            start=int(record.block_start[call[0]]),
            end=min(int(record.block_start[call[-1]]) + 1, last),
            op="attention's scratch",
            like=call[0],
        )
        for call in _attention_backwards(record)
        if not _is_wide(record, call[0])
    ]
    if not added:
        return Changed(record)
    what = f"{_blocks(len(added), 'backward')} of attention with a sum in float32."
    return Changed(with_blocks(record, added), what)


def _attention_backwards(record: MemoryRecord) -> list[list[int]]:
    """Return, for each call, the rows of the gradients of queries, keys and values."""
    size = _RESULTS_OF_ATTENTION
    return [
        run[at : at + size]
        for run in _runs(record, FUSED_ATTENTION_BACKWARD)
        for at in range(0, len(run), size)
    ]


def _is_wide(record: MemoryRecord, row: int) -> bool:
    """Return whether a gradient of attention is known to have more than 16 bits per element."""
    dtype, _, what = record.strings[record.block_name[row]].partition(" ")
    return what == ATTENTION_GRADIENT and _ITEM_BYTES.get(dtype, 0) > _HALF_BYTES


def has_op(record: MemoryRecord, ops: Sequence[str]) -> bool:
    """Return whether any block was made by one of ``ops``."""
    return bool(np.isin(record.block_op, _ops(record, ops)).any())


def _ops(record: MemoryRecord, ops: Sequence[str]) -> list[int]:
    return [row for row, name in enumerate(record.strings) if name in ops]


def _first_matmul(record: MemoryRecord, phases: Sequence[str]) -> int:
    """Return the event of the first product in one of ``phases``; -1 if there is none."""
    starts = record.block_start[np.isin(record.block_op, _ops(record, MATMULS))]
    names = np.full(len(record.event_kind), "", dtype=object)
    for phase in record.phases:
        names[phase.start : phase.end] = phase.name
    found = [int(start) for start in np.sort(starts) if start >= 0 and names[start] in phases]
    return found[0] if found else -1


def _lstm_outputs(record: MemoryRecord) -> list[list[int]]:
    """Return the rows of each layer call's results, in order: output, states, workspace."""
    found: list[list[int]] = []
    for run in _runs(record, LSTM):
        call: list[int] = []
        for row in run:
            is_output = not call or record.block_requested[row] == record.block_requested[call[0]]
            if is_output and (not call or len(call) >= _LSTM_RESULTS):
                call = [row]
                found.append(call)
            else:
                call.append(row)
    return found


def _lstm_ends(record: MemoryRecord) -> dict[int, int]:
    """Return the row of a call's output -> the event at which its backward has begun."""
    forwards = [(int(record.block_start[rows[0]]), rows[0]) for rows in _lstm_outputs(record)]
    backwards = [
        (int(record.block_start[row]), -1)
        for run in _runs(record, LSTM_BACKWARD)
        for row in run[::_LSTM_GRADIENTS]
    ]
    ends: dict[int, int] = {}
    under_way: list[int] = []
    for start, row in sorted(forwards + backwards):
        if row >= 0:
            under_way.append(row)
        elif under_way:
            ends[under_way.pop()] = start + 1
    return ends


def _runs(record: MemoryRecord, op: str) -> list[list[int]]:
    """Return the rows of blocks that ``op`` made, grouped into consecutive runs."""
    rows = np.flatnonzero(np.isin(record.block_op, _ops(record, (op,))))
    rows = rows[record.block_start[rows] >= 0]
    rows = rows[np.argsort(record.block_start[rows], kind="stable")]
    breaks = np.flatnonzero(np.diff(record.block_start[rows]) > 1) + 1
    return [run.tolist() for run in np.split(rows, breaks) if len(run)]


def _blocks(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
