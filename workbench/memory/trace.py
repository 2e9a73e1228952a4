"""From an allocator's own trace to blocks: what each ``alloc`` and ``free_completed`` meant.

Schema and rules: ``torch/cuda/_memory_viz.py`` and ``c10/cuda/CUDACachingAllocator.cpp`` of
PyTorch. A trace gives the *requested* size of a block. What it occupies is known of the blocks that
are there at the end; of the others it is the request rounded up to 512 bytes, which leaves out a
remainder too small to be split off. A block that is freed in the trace without having been
allocated in it, and a block still active in a segment without an ``alloc``, were there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.memory.attribution import Line
from workbench.memory.blocks import Block
from workbench.memory.unpickle import ACTIONS
from workbench.records import BLOCK_STATES, CATEGORIES

Columns = Mapping[str, Any]
_ALLOC, _COMPLETED = ACTIONS.index("alloc"), ACTIONS.index("free_completed")
_GROW = {ACTIONS.index("segment_alloc"): 1, ACTIONS.index("segment_map"): 1}
_SHRINK = {ACTIONS.index("segment_free"): -1, ACTIONS.index("segment_unmap"): -1}
_RESERVED = _GROW | _SHRINK
_ROUND = 512
_FREE = BLOCK_STATES.index("free")
_UNKNOWN = CATEGORIES.index("unknown")


def rounded(num_bytes: int) -> int:
    """What the CUDA allocator sets aside for a request: the next multiple of 512 bytes."""
    return max(_ROUND, -(-num_bytes // _ROUND) * _ROUND)


def blocks_of(columns: Columns) -> list[Block]:
    """Every block of a trace; ``start`` and ``end`` are event numbers, times are in ns."""
    device = f"cuda:{columns['device']}"
    lines = [Line(*source) for source in columns["sources"]]
    found: list[Block] = []
    live: dict[int, Block] = {}
    event = 0
    names = ("trace_action", "trace_address", "trace_bytes", "trace_time_us", "trace_source")
    rows = zip(*(_ints(columns[name]) for name in names), strict=True)
    for action, address, num_bytes, time_us, source in rows:
        if action == _ALLOC:
            block = Block(rounded(num_bytes), device, address)
            block.start, block.started_ns = event, time_us * 1000
            block.line = lines[source] if source >= 0 else None
            live[address] = block
            found.append(block)
        elif action == _COMPLETED:
            block = live.pop(address, None)
            if block is None:
                block = Block(rounded(num_bytes), device, address)
                found.append(block)
            block.end, block.ended_ns = event, time_us * 1000
        else:
            continue
        event += 1
    return [*_still_there(columns, live, device, lines), *found]


def reserved_at(columns: Columns, event: int) -> int:
    """Bytes of all segments just after event number ``event`` (-1: before the first)."""
    actions = _ints(columns["trace_action"])
    reserved = int(sum(_ints(columns["segment_bytes"])))
    seen = sum(action in (_ALLOC, _COMPLETED) for action in actions)
    for action, num_bytes in zip(
        reversed(actions), reversed(_ints(columns["trace_bytes"])), strict=True
    ):
        if action not in (_ALLOC, _COMPLETED):
            reserved -= _RESERVED.get(action, 0) * num_bytes
        elif seen - 1 <= event:
            break
        else:
            seen -= 1
    return reserved


def segment_columns(
    columns: Columns, blocks: Sequence[Block], categories: Sequence[int]
) -> dict[str, Any]:
    """The ``segment_*`` columns of a `MemoryRecord`; a free block's category is unknown."""
    now = {
        block.address: row for block, row in zip(blocks, categories, strict=True) if block.end < 0
    }
    starts = _array(columns["segment_address"])
    owners, addresses = _array(columns["block_segment"]), _array(columns["block_address"])
    states = _array(columns["block_state"])
    return {
        "segment_address": starts,
        "segment_bytes": _array(columns["segment_bytes"]),
        "segment_stream": _array(columns["segment_stream"]),
        "segment_pool": _array(columns["segment_pool"]),
        "segment_block_segment": owners,
        "segment_block_offset": addresses - starts[owners] if len(owners) else addresses,
        "segment_block_bytes": _array(columns["block_bytes"]),
        "segment_block_state": states,
        "segment_block_category": [
            now.get(address, _UNKNOWN) if state != _FREE else _UNKNOWN
            for address, state in zip(addresses.tolist(), states.tolist(), strict=True)
        ],
    }


def _still_there(
    columns: Columns, live: dict[int, Block], device: str, lines: list[Line]
) -> list[Block]:
    """Blocks the segments hold and the trace never mentions; sets the true size of the others."""
    names = ("block_address", "block_bytes", "block_state", "block_source")
    before: list[Block] = []
    rows = zip(*(_ints(columns[name]) for name in names), strict=True)
    for address, num_bytes, state, source in rows:
        if state == _FREE:
            continue
        known = live.get(address)
        if known is not None:
            known.num_bytes = num_bytes  # what could not be split off is part of the block
            continue
        block = Block(num_bytes, device, address)
        block.line = lines[source] if source >= 0 else None
        before.append(block)
    return before


def _ints(column: Any) -> list[int]:
    return column.tolist()


def _array(column: Any) -> npt.NDArray[np.int64]:
    return np.array(column, dtype=np.int64)
