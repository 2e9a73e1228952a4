"""From columns to a `Snapshot`, each column checked first.

The columns of a file come from a process that read untrusted data. Whatever that process returned,
the result of this module is a snapshot in which every pointer points to something, columns of one
table are equally long, blocks are inside their segments, and no two segments or blocks share
memory. Readers of a `Snapshot` need not check any of it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.allocator.snapshot.columns import Columns
from workbench.allocator.snapshot.plain import RefusedError
from workbench.allocator.snapshot.snapshot import ACTIONS, I64, STATES, Annotation, Frame, Snapshot

Arrays = Mapping[str, npt.NDArray[Any]]
U64 = npt.NDArray[np.uint64]

TYPES = {
    "action": "B", "address": "q", "size": "q", "stream": "q", "time_us": "q", "trace_pool": "i",
    "trace_stack": "i",
    "segment_address": "q", "segment_bytes": "q", "segment_stream": "q", "segment_is_large": "B",
    "segment_is_expandable": "B", "segment_pool": "i", "segment_stack": "i",
    "block_segment": "i", "block_address": "q", "block_bytes": "q", "block_requested": "q",
    "block_state": "B", "block_stack": "i",
    "annotation_time_us": "q", "annotation_is_end": "B", "annotation_name": "i",
    "frame_file": "i", "frame_line": "q", "frame_name": "i",
    "stack_start": "q", "stack_frame": "i",
}  # fmt: skip
"""Each column with its type code, the same for ``array`` and numpy."""

_TABLES = (
    ("action", "address", "size", "stream", "time_us", "trace_pool", "trace_stack"),
    tuple(name for name in TYPES if name.startswith("segment_")),
    tuple(name for name in TYPES if name.startswith("block_")),
    tuple(name for name in TYPES if name.startswith("annotation_")),
    tuple(name for name in TYPES if name.startswith("frame_")),
)
_SNAPSHOT_COLUMNS = tuple(name for name in TYPES if not name.startswith(("annotation_", "frame_")))


def assemble(columns: Columns, arrays: Arrays) -> Snapshot:
    """Assemble the snapshot of ``columns``, whose numbers are in ``arrays`` (see `TYPES`).

    Raises:
        RefusedError: a column does not match the others.
    """
    _check_tables(arrays)
    _check_pointers(columns, arrays)
    order = _order_of_blocks(arrays)
    fields = {name: arrays[name] for name in _SNAPSHOT_COLUMNS}
    if order is not None:
        fields |= {name: column[order] for name, column in fields.items() if name in _TABLES[2]}
    _check_geometry(fields)
    return Snapshot(
        device=columns.device,
        other_devices=tuple(columns.other_devices),
        settings=columns.settings,
        annotations=_annotations(columns.strings, arrays),
        num_unknown=columns.num_unknown,
        pools=tuple(columns.pools),
        frames=_frames(columns.strings, arrays),
        **fields,
    )


def _check_tables(arrays: Arrays) -> None:
    if set(arrays) != set(TYPES):
        raise RefusedError("its reader returned other columns than requested")
    for names in _TABLES:
        if len({len(arrays[name]) for name in names}) != 1:
            raise RefusedError(
                f"its reader returned columns of different lengths: {', '.join(names)}"
            )


def _check_pointers(columns: Columns, arrays: Arrays) -> None:
    starts, num_strings = arrays["stack_start"], len(columns.strings)
    ends = len(starts) > 0 and starts[0] == 0 and starts[-1] == len(arrays["stack_frame"])
    if not ends or bool((np.diff(starts) < 0).any()):
        raise RefusedError("its reader returned stacks that do not follow each other")
    num_stacks, num_pools = len(starts) - 1, len(columns.pools)
    bounds = {
        "action": (0, len(ACTIONS)), "block_state": (0, len(STATES)),
        "segment_is_large": (0, 2), "segment_is_expandable": (0, 2), "annotation_is_end": (0, 2),
        "block_segment": (0, len(arrays["segment_address"])),
        "stack_frame": (0, len(arrays["frame_file"])), "frame_line": (0, 1 << 31),
        "frame_file": (0, num_strings), "frame_name": (0, num_strings),
        "annotation_name": (0, num_strings),
        "trace_pool": (-1, num_pools), "segment_pool": (-1, num_pools),
        "trace_stack": (-1, num_stacks), "segment_stack": (-1, num_stacks),
        "block_stack": (-1, num_stacks),
        "size": (0, 1 << 63), "segment_bytes": (0, 1 << 63), "block_bytes": (0, 1 << 63),
        "block_requested": (0, 1 << 63),
    }  # fmt: skip
    for name, (least, end) in bounds.items():
        column = arrays[name]
        if len(column) and not least <= int(column.min()) <= int(column.max()) < end:
            raise RefusedError(f"its reader returned a {name} outside {least} .. {end - 1}")


def _order_of_blocks(arrays: Arrays) -> I64 | None:
    """Return the rows of the blocks by segment and address; None if they are already sorted so."""
    owner, address = arrays["block_segment"], _unsigned(arrays["block_address"])
    same = owner[1:] == owner[:-1]
    if bool(((owner[1:] > owner[:-1]) | (same & (address[1:] >= address[:-1]))).all()):
        return None
    return np.lexsort((address, owner)).astype(np.int64)


def _check_geometry(fields: Arrays) -> None:
    """Refuse segments or blocks that share memory, and blocks outside their segment."""
    starts, sizes = _unsigned(fields["segment_address"]), _unsigned(fields["segment_bytes"])
    order = np.argsort(starts, kind="stable")
    if bool((_room(starts[order]) < sizes[order]).any()):
        raise RefusedError("two of its segments share memory")
    owner = fields["block_segment"]
    address, size = _unsigned(fields["block_address"]), _unsigned(fields["block_bytes"])
    # A difference of unsigned numbers wraps, so each is computed only if the check before it
    # passed.
    begin = address < starts[owner]
    if not bool(begin.any()):
        offset = address - starts[owner]
        begin = (offset > sizes[owner]) | (size > sizes[owner] - np.minimum(offset, sizes[owner]))
    if bool(begin.any()):
        raise RefusedError("one of its blocks is outside its segment")
    room = address[1:] - address[:-1]
    if bool(((owner[1:] == owner[:-1]) & (room < size[:-1])).any()):
        raise RefusedError("two of its blocks share memory")


def _room(starts: U64) -> U64:
    """Return the bytes from each sorted address to the next, or to the end of all addresses."""
    ends = np.append(starts[1:], np.uint64(2**64 - 1))
    return ends - starts


def _annotations(strings: list[str], arrays: Arrays) -> tuple[Annotation, ...]:
    names = ("annotation_time_us", "annotation_is_end", "annotation_name")
    rows = zip(*(arrays[name].tolist() for name in names), strict=True)
    stages = ("START", "END")
    return tuple(Annotation(time, stages[is_end], strings[name]) for time, is_end, name in rows)


def _frames(strings: list[str], arrays: Arrays) -> tuple[Frame, ...]:
    rows = zip(
        *(arrays[f"frame_{name}"].tolist() for name in ("file", "line", "name")), strict=True
    )
    return tuple(Frame(strings[file], line, strings[name]) for file, line, name in rows)


def _unsigned(column: npt.NDArray[Any]) -> U64:
    return column.astype(np.int64, copy=False).view(np.uint64)
