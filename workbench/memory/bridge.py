"""Columns of `workbench.memory.unpickle` as a `Snapshot`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.allocator.snapshot import Frame, Snapshot


def snapshot_of(columns: Mapping[str, Any]) -> Snapshot:
    """The snapshot that the columns describe; sources stand for stacks of one frame."""

    def ints(name: str) -> npt.NDArray[np.int64]:
        return np.array(columns[name], dtype=np.int64)

    sources = columns["sources"]
    num_segments, num_events = len(columns["segment_address"]), len(columns["trace_action"])
    return Snapshot(
        device=columns["device"],
        other_devices=tuple(columns["other_devices"]),
        settings={},
        annotations=(),
        num_unknown=0,
        action=ints("trace_action").astype(np.uint8),
        address=ints("trace_address"),
        size=ints("trace_bytes"),
        stream=ints("trace_stream"),
        time_us=ints("trace_time_us"),
        trace_pool=np.full(num_events, -1, dtype=np.int32),
        trace_stack=ints("trace_source").astype(np.int32),
        segment_address=ints("segment_address"),
        segment_bytes=ints("segment_bytes"),
        segment_stream=ints("segment_stream"),
        segment_is_large=ints("segment_pool").astype(np.uint8),
        segment_is_expandable=np.zeros(num_segments, dtype=np.uint8),
        segment_pool=np.full(num_segments, -1, dtype=np.int32),
        segment_stack=np.full(num_segments, -1, dtype=np.int32),
        block_segment=ints("block_segment").astype(np.int32),
        block_address=ints("block_address"),
        block_bytes=ints("block_bytes"),
        block_requested=ints("block_requested"),
        block_state=ints("block_state").astype(np.uint8),
        block_stack=ints("block_source").astype(np.int32),
        pools=(),
        frames=tuple(Frame(*source) for source in sources),
        stack_start=np.arange(len(sources) + 1),
        stack_frame=np.arange(len(sources), dtype=np.int32),
    )
