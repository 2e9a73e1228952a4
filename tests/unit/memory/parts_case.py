"""A made-up program under settings, and where its memory went, for Python and for the browser.

``python -m tests.unit.memory.parts_case`` writes the file again, which both test suites read.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.memory.reading.fragmentation import PARTS, fragmentation
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.memory.recording.record_builder import record_of
from workbench.memory.simulation.simulated_record import simulated
from workbench.records import MemoryRecord

FILE = Path(__file__).parents[3] / "extensions/views/test/fixtures/memory-parts.json"
SETTINGS = (
    "",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[2:16,8:2,16:4,>:1],expandable_segments:True",
    "large_segment_size_mb:64",
    "expandable_segments:True,large_segment_size_mb:12",
    "expandable_segments:True,large_segment_size_mb:32,roundup_power2_divisions:8",
)
WORDS = (
    *SETTINGS,
    "roundup_power2_divisions:[1024:8,>:2]",
    "roundup_power2_divisions:[65536:4,1:2]",
    "roundup_power2_divisions:[4:2, 1:8, 2:16]",
    "roundup_power2_divisions:[>:2,4:8]",
    "max_split_size_mb:128, large_segment_size_mb:40, a_later_key:[1:2,3:4]",
    "large_segment_size_mb:64,large_segment_size_mb:24",
)
"""Settings that are only read, not run."""
_COLUMNS = (
    *(f"block_{name}" for name in ("start", "end", "pending", "bytes", "requested", "category")),
    *("block_address", "block_stream", "block_segment"),
    *(f"segment_{name}" for name in ("start", "end", "address", "bytes", "stream", "pool")),
    *("segment_expandable", "segment_private"),
)
_NUM_EVENTS = 80
_STREAMS = (0, 0, 0, 7)


def program(seed: int) -> MemoryRecord:
    """Blocks of a few bytes to 48 MiB on two streams, some of which wait before they are free."""
    made = random.Random(seed)
    rows: list[list[int]] = []
    live: list[int] = []
    for event in range(_NUM_EVENTS):
        if live and made.random() < 0.45:
            row = live.pop(made.randrange(len(live)))
            rows[row][1] = event
            if made.random() < 0.3 and event - rows[row][0] > 1:
                rows[row][2] = made.randrange(rows[row][0] + 1, event)
        else:
            live.append(len(rows))
            size = made.randrange(1, 1 << made.choice((9, 12, 20, 22, 24, 26)))
            rows.append([event, -1, -1, size, made.randrange(7), made.choice(_STREAMS)])
    return _record(np.array(rows, dtype=np.int64))


def _record(rows: np.ndarray[Any, np.dtype[np.int64]]) -> MemoryRecord:
    """The record of ``[num_blocks, 6]``: start, end, pending, bytes, category, stream."""
    empty = record_of(
        [], [], title="parts", experiment=None, step=None, device="cpu", basis="Made up.",
        started_ns=0, notes=(),
    )  # fmt: skip
    start, end, pending, size, category, stream = rows.T
    none = np.full(len(rows), -1)
    facts = dict.fromkeys(("block_op", "block_name", "block_module"), none * 0)
    return MemoryRecord(**vars(empty) | facts | {
        "strings": ("",), "event_time_us": np.arange(_NUM_EVENTS),
        "event_kind": np.zeros(_NUM_EVENTS), "block_start": start, "block_end": end,
        "block_pending": pending, "block_bytes": size, "block_requested": size,
        "block_category": category, "block_stream": stream, "block_call": none,
        "block_source": none, "block_address": none, "block_segment": none,
        "block_growth": none * 0 + 2,
    })  # fmt: skip


def run(settings: str, seed: int) -> dict[str, Any]:
    """The program under ``settings``, and the parts of what it held after every event."""
    record = simulated(program(seed), settings)
    parts = fragmentation(record, recorded_settings(record))
    return {
        "settings": record.settings,
        "events": len(record.event_time_us),
        "columns": {name: getattr(record, name).tolist() for name in _COLUMNS},
        "parts": dict(zip(PARTS, parts.tolist(), strict=True)),
    }


def read(words: str) -> dict[str, Any]:
    """What Python reads in ``words`` of what the browser reads, too."""
    found = AllocatorSettings.parse(words, tolerant=True)
    return {
        "words": words,
        "divisions": list(found.roundup_power2_divisions),
        "large_page": found.large_segment_size,
    }


def case() -> dict[str, Any]:
    """The whole file."""
    return {
        "runs": [run(settings, seed) for seed, settings in enumerate(SETTINGS, 1)],
        "read": [read(words) for words in WORDS],
    }


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(case()).replace("}, {", "},\n{") + "\n", encoding="utf-8")
