"""Two made-up recordings and what their diff comes to, for Python and for the browser.

``python -m tests.unit.memory.diff_case`` writes the file again, which both test suites read.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from workbench.memory.recording.record_builder import record_of
from workbench.memory.render.diff import BY, MemoryDiff
from workbench.records import MemoryRecord, Phase, SourceLine

FILE = Path(__file__).parents[3] / "extensions/views/test/fixtures/memory-diff.json"
MODULES = ("", "encoder", "encoder.layers.0", "head", "model")
_MODEL = {"filename": "/me/model.py", "cell": None, "function": "forward"}
_TORCH = {"filename": "/lib/site-packages/torch/nn/linear.py", "cell": None, "function": "forward"}
SOURCES: tuple[dict[str, Any], ...] = (
    {"filename": "<ipython-input-1>", "line": 3, "cell": 7, "function": "", "text": "run()"},
    {**_MODEL, "line": 20, "text": "x = f(x)"},
    {**_TORCH, "line": 5, "text": ""},
    {**_MODEL, "line": 24, "text": "return x"},
)
CALL_PARENT = (-1, 0, 1, 0, -1)
CALL_SOURCE = (0, 1, 2, 3, 2)


def side(seed: int, cell: int, scale: int) -> dict[str, Any]:
    """One recording, as plain lists: blocks are (start, end, bytes, category, module, call)."""
    made = random.Random(seed)
    blocks: list[list[int]] = [
        [-1, -1, 4096 * row, made.choice((0, 1, 2)), made.randrange(5), -1] for row in range(1, 6)
    ]
    open_rows: list[int] = []
    events = 120
    for event in range(events):
        if open_rows and made.random() < 0.4:
            blocks[open_rows.pop(made.randrange(len(open_rows)))][1] = event
        else:
            open_rows.append(len(blocks))
            size, category = made.randrange(1, 1 << 20) * scale, made.choice((3, 4, 5, 6))
            blocks.append([event, -1, size, category, made.randrange(5), made.randrange(5)])
    phases = [["forward", 0, 60], ["backward", 60, 100], ["optimizer", 100, events]]
    sources = [{**source, "cell": cell if source["cell"] else None} for source in SOURCES]
    return {
        "title": f"side {seed}", "events": events, "strings": list(MODULES), "phases": phases,
        "sources": sources, "blocks": blocks, "call_parent": CALL_PARENT,
        "call_source": CALL_SOURCE,
    }  # fmt: skip


def record(given: dict[str, Any]) -> MemoryRecord:
    """The record that the lists stand for."""
    columns = np.array(given["blocks"], dtype=np.int64).T
    start, end, size, category, module, call = columns
    source = [given["call_source"][row] if row >= 0 else -1 for row in call.tolist()]
    empty = record_of(
        [], [], title=given["title"], experiment=None, step=None, device="cpu", basis="Made up.",
        started_ns=0, notes=(),
    )  # fmt: skip
    num_events = given["events"]
    facts = dict.fromkeys(("block_op", "block_name"), np.zeros(len(start), dtype=np.int64))
    none = np.full(len(start), -1)
    phases = tuple(Phase(name=name, start=first, end=last) for name, first, last in given["phases"])
    values = vars(empty) | facts | {
        "strings": tuple(given["strings"]), "phases": phases,
        "sources": tuple(SourceLine(**line) for line in given["sources"]),
        "event_time_us": np.arange(num_events), "event_kind": np.zeros(num_events),
        "block_start": start, "block_end": end, "block_bytes": size, "block_requested": size,
        "block_category": category, "block_module": module, "block_call": call,
        "block_source": source, "block_pending": none, "block_address": none,
        "block_segment": none, "block_stream": none * 0, "block_growth": none * 0 + 2,
        "call_parent": given["call_parent"], "call_source": given["call_source"],
    }  # fmt: skip
    made = MemoryRecord(**values)
    totals = made.series().sum(axis=0)
    at = int(np.argmax(totals))
    return MemoryRecord(**values | {"peak_event": at - 1, "peak_bytes": int(totals[at])})


def expected(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """What Python says of the two."""
    diff = MemoryDiff(record(a), record(b))
    groups = {kind: [list(row) for row in diff.by(kind)] for kind in BY}
    peaks = [[side.peak_event, side.peak_bytes] for side in (diff.a, diff.b)]
    return {"sentence": diff.sentence, "change": diff.change, "peaks": peaks, "by": groups}


def case() -> dict[str, Any]:
    """The whole file."""
    a, b = side(1, 7, 1), side(2, 9, 2)
    return {"a": a, "b": b, "expected": expected(a, b)}


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(case(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
