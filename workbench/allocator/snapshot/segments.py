"""The segments of a snapshot and the blocks in them, as columns.

The oldest schema has no addresses of blocks, because blocks follow each other without gaps, and
keeps the requested bytes in a block's ``history``, latest first. Standard library only.
"""

from __future__ import annotations

from array import array
from itertools import chain, repeat
from typing import Any

from workbench.allocator.snapshot.event_names import FILE_STATES
from workbench.allocator.snapshot.plain import RefusedError, Row, counts, numbers, rows_of, signed
from workbench.allocator.snapshot.pools import Pools
from workbench.allocator.snapshot.stacks import Stacks


def segment_columns(
    segments: list[Row], stacks: Stacks, pools: Pools, most: int
) -> dict[str, array[int]]:
    """Return columns ``segment_*`` and ``block_*``, in the order of the file.

    Raises:
        RefusedError: a value is not a number, a state is unknown, or there are more than ``most``
            blocks.
    """
    lists = [_blocks_of(segment) for segment in segments]
    lengths = [len(blocks) for blocks in lists]
    if sum(lengths) > most:
        raise RefusedError("it repeats its blocks more often than a file of its size holds")
    blocks = rows_of(list[Any](chain.from_iterable(lists)), "block")
    starts = numbers(segments, "address", "segment")
    sizes = counts(numbers(blocks, "size", "block"), "size", "block")
    totals = numbers(segments, "total_size", "segment")
    return {
        "segment_address": starts,
        "segment_bytes": counts(totals, "total_size", "segment"),
        "segment_stream": numbers(segments, "stream", "segment", 0),
        "segment_is_large": array("B", [_is(s.get("segment_type"), "large") for s in segments]),
        "segment_is_expandable": array("B", [s.get("is_expandable") is True for s in segments]),
        "segment_pool": pools.column(segments, "segment_pool_id"),
        "segment_stack": stacks.column([segment.get("frames") for segment in segments]),
        "block_segment": array("i", chain.from_iterable(map(repeat, range(len(lists)), lengths))),
        "block_address": _addresses(lists, starts, sizes),
        "block_bytes": sizes,
        "block_requested": _requested(blocks, sizes),
        "block_state": array("B", [_state(block) for block in blocks]),
        "block_stack": stacks.column([_frames(block) for block in blocks]),
    }


def _blocks_of(segment: Row) -> list[Any]:
    blocks = segment.get("blocks")
    if blocks is None:
        return []
    if type(blocks) is not list:
        raise RefusedError("its schema is not one we know: the blocks of a segment are no list")
    return blocks


def _addresses(lists: list[list[Row]], starts: array[int], sizes: array[int]) -> array[int]:
    """Return the address of each block; a block without one follows the block before it."""
    found: list[Any] = []
    for blocks, start in zip(lists, starts, strict=True):
        at: int = start
        for block in blocks:
            given = block.get("address", at)
            at = (given if type(given) is int else at) + sizes[len(found)]
            found.append(given)
    return signed(found, "address", "block")


def _requested(blocks: list[Row], sizes: array[int]) -> array[int]:
    values = [
        block.get("requested_size", _latest(block).get("real_size", size))
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return counts(signed(values, "requested_size", "block"), "requested_size", "block")


def _frames(block: Row) -> Any:
    return block.get("frames") or _latest(block).get("frames")


def _latest(block: Row) -> Row:
    history = block.get("history")
    first = history[0] if type(history) is list and history else None
    return first if type(first) is dict else {}


def _state(block: Row) -> int:
    state = block.get("state")
    if type(state) is str and state in FILE_STATES:
        return FILE_STATES[state]
    shown = ascii(state[:40]) if type(state) is str else f"of type {type(state).__name__}"
    raise RefusedError(f"a block's state is {shown}; known are {', '.join(FILE_STATES)}")


def _is(value: Any, word: str) -> bool:
    return type(value) is str and value == word
