"""The blocks of a step that grow with its batch, found by running it with twice the batch.

A shape alone does not determine this: 64 may be the batch or a layer's width. But two runs of the
same step, one with twice the samples, allocate the same blocks in the same order, and a block
either has the same size in both, or twice the size, or four times (scores of every sample against
every other grow with its square), or none of these: what more than doubles is *steep*, the rest
stays *unknown*. Runs on fake tensors take no memory and compute nothing, so this costs a fraction
of a step.

The result is transferred to a recording block by block if both made their blocks by the same
operations in the same order; if not, to those blocks whose operation, module and size imply the
same growth wherever they occur in the runs (on a GPU, libraries make further blocks in between).
Without runs, only parameters, their gradients and the optimizer's state are known not to grow.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from workbench.memory.prediction.substitutions import lstm_workspaces
from workbench.records import CATEGORIES, GROWTHS, MemoryRecord

FIXED, BATCH, UNKNOWN, SQUARE, STEEP = (
    GROWTHS.index(name) for name in ("fixed", "batch", "unknown", "square", "steep")
)
_HELD = tuple(CATEGORIES.index(name) for name in ("parameters", "gradients", "optimizer"))
_BATCH = ("batch", "input")
"""Prefixes of the names of inputs; other names are those of a module's own tensors."""

_NUMBER_BYTES = 8
_RATIOS = np.array([1, 2, 4, 8, 16])
_WIDEST = 4
"""Sizes are alike if one is 1/4 to 4 times the other: the dtypes of two tensors may differ so
much."""

Growth = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]


def with_growth(
    record: MemoryRecord, once: MemoryRecord | None = None, twice: MemoryRecord | None = None
) -> MemoryRecord:
    """Return ``record`` with what is known of the growth of its blocks.

    Args:
        record: a recording of one or more steps.
        once: the record of a copy, with the recording's batch; None if there is none.
        twice: the record of a copy, with twice the batch.
    """
    growth = np.full(len(record.block_bytes), UNKNOWN, dtype=np.uint8)
    if once is not None and twice is not None:
        found = growth_between(once, twice)
        if not _align(record, once, found, growth):
            _match(record, once, found, growth)
    growth[_of_no_samples(record) & (growth == UNKNOWN)] = FIXED
    held = np.isin(record.block_category, _HELD) & ~_of_batch(record)
    growth[(held & (growth == UNKNOWN)) | _of_modules(record)] = FIXED
    return dataclasses.replace(record, block_growth=growth)


def growth_between(once: MemoryRecord, twice: MemoryRecord) -> Growth:
    """Return the growth of each block of ``once``; unknown for all if the two do not match."""
    growth = np.full(len(once.block_bytes), UNKNOWN, dtype=np.uint8)
    if not _alike(once, twice) or twice.batch_size != 2 * once.batch_size:
        return growth
    small, large = once.block_requested, twice.block_requested
    growth[large > 2 * small] = STEEP
    growth[large == 4 * small] = SQUARE
    growth[large == 2 * small] = BATCH
    growth[large == small] = FIXED
    return growth


def _alike(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Return whether two runs made the same blocks in the same order, whatever their sizes.

    Blocks that are freed all at once (the casts that autocast keeps) may be freed in any order.
    """
    if len(one.block_bytes) != len(other.block_bytes) or _ops(one) != _ops(other):
        return False
    return np.array_equal(one.block_start, other.block_start)


def _align(record: MemoryRecord, once: MemoryRecord, found: Growth, growth: Growth) -> bool:
    """Transfer what is known of ``once`` block by block; return False if the two do not match."""
    rows, candidates = _made(record), _made(once)
    ops, others = _ops(record), _ops(once)
    at = _find([ops[row] for row in rows], [others[row] for row in candidates])
    if at < 0:
        return False
    pairs = [(rows, candidates[at : at + len(rows)])]
    inputs, theirs = _named(record), _named(once)
    if len(inputs) == len(theirs):
        pairs.append((inputs, theirs))
    for mine, copied in pairs:
        alike = _alike_sizes(record.block_requested[mine], once.block_requested[copied])
        growth[mine[alike]] = found[copied[alike]]
    return True


def _alike_sizes(mine: Rows, theirs: Rows) -> npt.NDArray[np.bool_]:
    """Return whether sizes are alike, or differ only by a dtype's width (float32 statistics)."""
    return (mine[:, None] * _WIDEST == theirs[:, None] * _RATIOS).any(axis=1)


def _match(record: MemoryRecord, once: MemoryRecord, found: Growth, growth: Growth) -> None:
    """Transfer the growth that all blocks of one operation, module and size have in common."""
    known: dict[tuple[str, str, int], int] = {}
    for key, kind in zip(_keys(once), found.tolist(), strict=True):
        known[key] = kind if known.get(key, kind) == kind else UNKNOWN
    growth[:] = [known.get(key, UNKNOWN) for key in _keys(record)]


def _made(record: MemoryRecord) -> Rows:
    """Return the rows of blocks that the recording saw made, in order, without workspaces."""
    rows = np.flatnonzero(record.block_start >= 0)
    rows = np.setdiff1d(rows, np.array(lstm_workspaces(record), dtype=np.int64))
    return rows[np.argsort(record.block_start[rows], kind="stable")]


def _named(record: MemoryRecord) -> Rows:
    """Return the rows of the batch's tensors that were there before."""
    is_batch = [name.startswith("batch.") for name in record.strings]
    named = np.array(is_batch, dtype=np.bool_)[record.block_name]
    return np.flatnonzero(named & (record.block_start < 0))


def _of_batch(record: MemoryRecord) -> npt.NDArray[np.bool_]:
    """Return whether a block is named after the batch: its tensors, and their gradients."""
    is_batch = [name.startswith(_BATCH) for name in record.strings]
    return np.array(is_batch, dtype=np.bool_)[record.block_name]


def _of_modules(record: MemoryRecord) -> npt.NDArray[np.bool_]:
    """Return whether a block is a buffer of a module: its size does not depend on the batch."""
    is_own = [bool(name) and not name.startswith(_BATCH) for name in record.strings]
    named = np.array(is_own, dtype=np.bool_)[record.block_name]
    is_buffer = record.block_category == CATEGORIES.index("buffers")
    return named & is_buffer & (record.block_start < 0)


def _of_no_samples(record: MemoryRecord) -> npt.NDArray[np.bool_]:
    """Return whether a block from before is a single number, or does not hold whole samples."""
    sizes = record.block_requested
    is_other = (sizes <= _NUMBER_BYTES) | (sizes % max(record.batch_size, 1) != 0)
    return (record.block_start < 0) & is_other


def _keys(record: MemoryRecord) -> list[tuple[str, str, int]]:
    """Return operation, module and size of each block."""
    modules = [record.strings[row] for row in record.block_module.tolist()]
    sizes = record.block_requested.tolist()
    return list(zip(_ops(record), modules, sizes, strict=True))


def _find(keys: list[str], others: list[str]) -> int:
    """Return the last position of ``keys`` in ``others``; -1 if there is none."""
    if not keys:
        return -1
    for at in range(len(others) - len(keys), -1, -1):
        if others[at] == keys[0] and others[at : at + len(keys)] == keys:
            return at
    return -1


def _ops(record: MemoryRecord) -> list[str]:
    return [record.strings[row] for row in record.block_op.tolist()]
