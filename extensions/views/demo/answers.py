# ruff: noqa: T201 - a script that answers on standard output, not a library
"""Answers questions of saved memory records, so that the row "What if?" can be looked at.

A line of standard input is ``{"record": path, "question": {...}}``; a line of standard output is
what `workbench.memory.simulation.questions` says to it, or ``{"error": sentence}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from workbench.memory.simulation.questions import answer
from workbench.records import MemoryRecord


def main() -> None:
    """Answer until the input ends."""
    known: dict[str, MemoryRecord] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            path = asked["record"]
            if path not in known:
                known[path] = MemoryRecord.from_bytes(Path(path).read_bytes())
            said = answer(known[path], asked["question"])
        except (ValueError, TypeError, KeyError) as reason:
            said = {"error": str(reason)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
