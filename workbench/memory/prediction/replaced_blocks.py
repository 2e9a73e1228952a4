"""A finished recording with blocks changed; its events stay as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.records import CATEGORIES, GROWTHS, MemoryRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class Added:
    """A block that a GPU would hold in addition to the recorded ones."""

    num_bytes: int
    start: int
    end: int
    op: str
    category: str = "temporaries"
    like: int = -1
    """Row of a block whose module, line and growth it shares; -1 for none."""


def with_blocks(record: MemoryRecord, added: Sequence[Added]) -> MemoryRecord:
    """Return ``record`` with additional blocks, at events that exist already."""
    strings = list(record.strings)
    rows = {name: _row(strings, name) for name in {"", *(block.op for block in added)}}
    like = np.array([block.like for block in added], dtype=np.int64)
    columns: dict[str, Any] = {
        "start": [block.start for block in added],
        "end": [block.end for block in added],
        "pending": [-1] * len(added),
        "bytes": [block.num_bytes for block in added],
        "requested": [block.num_bytes for block in added],
        "category": [CATEGORIES.index(block.category) for block in added],
        "op": [rows[block.op] for block in added],
        "name": [rows[""]] * len(added),
        "module": _shared(record.block_module, like, rows[""]),
        "source": _shared(record.block_source, like, -1),
        "call": _shared(record.block_call, like, -1),
        "growth": _shared(record.block_growth, like, GROWTHS.index("fixed")),
        "address": [-1] * len(added),
        "segment": [-1] * len(added),
        "stream": [0] * len(added),
    }
    found = {
        f"block_{name}": np.append(getattr(record, f"block_{name}"), np.array(column))
        for name, column in columns.items()
    }
    return dataclasses.replace(record, strings=tuple(strings), **found)


def with_sizes(record: MemoryRecord, sizes: npt.NDArray[np.int64]) -> MemoryRecord:
    """Return ``record`` with blocks of other sizes."""
    return dataclasses.replace(record, block_bytes=sizes, block_requested=sizes)


def with_rows(record: MemoryRecord, kept: npt.NDArray[np.bool_]) -> MemoryRecord:
    """Return ``record`` without some of its blocks; their events stay."""
    columns = {
        field.name: getattr(record, field.name)[kept]
        for field in dataclasses.fields(record)
        if field.name.startswith("block_")
    }
    return dataclasses.replace(record, **columns)


def _row(strings: list[str], name: str) -> int:
    if name not in strings:
        strings.append(name)
    return strings.index(name)


def _shared(column: npt.NDArray[Any], like: npt.NDArray[np.int64], default: int) -> Any:
    if not len(column):
        return np.full(len(like), default)
    return np.where(like >= 0, column[np.maximum(like, 0)], default)
