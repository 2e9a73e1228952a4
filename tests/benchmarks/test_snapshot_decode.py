"""What opening a snapshot of a million events costs, beside reading the same file with pickle.

`pickle.load` alone is the least that anybody pays who opens the file in Python, and it may run
whatever the file says. Each reading happens in a fresh process, so that none profits from memory
that another left warm; the decoder's time includes starting its own. Beside the clock stands the
processor time, of the decoder's both processes: one thread does all the work, so on a machine with
an idle core they agree, and on a busy one the second still says what the decoder costs. It is
judged beside that of `pickle.load` in the same round, without the garbage collector, whose passes
over a million objects are no part of reading.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)

ROOT = Path(__file__).resolve().parents[2]
EVENTS, ROUNDS = 1_000_000, 5
MOST_BYTES = 1_500_000_000
DECODED = 4.5
"""Times the processor time of `pickle.load` without the garbage collector, on the same file."""
KINDS: dict[str, dict[str, bool]] = {
    "a list per event, as torch makes them": {},
    "one list per distinct stack": {"own_lists": False},
    "no stacks": {"with_stacks": False},
}

_MAKE = """
import json, pathlib, sys
from tests.unit.allocator.made import made_file
made_file(pathlib.Path(sys.argv[1]), int(sys.argv[2]), **json.loads(sys.argv[3]))
"""
_DECODE = """
import resource, sys, time
from workbench.allocator.snapshot.decode import read
began, worked = time.perf_counter(), time.process_time()
found = read(sys.argv[1])
took, worked = time.perf_counter() - began, time.process_time() - worked
here, there = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
worked += there.ru_utime + there.ru_stime
print(took, found.num_events, len(found.stack_start) - 1, worked,
      1024 * (here.ru_maxrss + there.ru_maxrss))
"""
_LOAD = """
import gc, pickle, sys, time
if sys.argv[2] == "quiet": gc.disable()
began, worked = time.perf_counter(), time.process_time()
with open(sys.argv[1], "rb") as stream: found = pickle.load(stream)
print(time.perf_counter() - began, time.process_time() - worked, flush=True)
import os; os._exit(0)
"""


_SHELL = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""Starts a process that inherits no peak of memory: a large one passes its own on to those that it
starts itself, and a session that measured much before is large."""


def timed(program: str, *arguments: str) -> list[float]:
    """The numbers that a fresh process prints."""
    done = subprocess.run(
        [*_SHELL, sys.executable, "-c", program, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [float(word) for word in done.stdout.split()]


@pytest.mark.benchmark
@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured with getrusage")
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_events_open_in_a_few_times_pickles_time(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pickle"
    timed(_MAKE, str(path), str(EVENTS), json.dumps(KINDS[kind]))
    seen: dict[str, list[list[float]]] = {"usual": [], "quiet": [], "decoded": []}

    def load(collector: str) -> float:
        seen[collector].append(timed(_LOAD, str(path), collector))
        return seen[collector][-1][0]

    def decode() -> float:
        seen["decoded"].append(timed(_DECODE, str(path)))
        return seen["decoded"][-1][0]

    contenders = {
        "pickle.load": partial(load, "usual"),
        "pickle.load, no gc": partial(load, "quiet"),
        "allocator.decode.read": decode,
    }
    results = measure_interleaved(contenders, ROUNDS)
    _, num_events, num_stacks, *_ = map(int, seen["decoded"][0])
    taken = max(row[4] for row in seen["decoded"])
    title = (
        f"{num_events:,} events, {num_stacks} stacks, {path.stat().st_size / 1e6:.0f} MB ({kind})"
    )
    print("\n" + compare(title, "s, clock", results, baseline="pickle.load"))
    worked = {
        "pickle.load": [row[1] for row in seen["usual"]],
        "pickle.load, no gc": [row[1] for row in seen["quiet"]],
        "allocator.decode.read": [row[3] for row in seen["decoded"]],
    }
    print(compare(title, "s, processor", worked, baseline="pickle.load"))
    ours = worked["allocator.decode.read"]
    print(ratio_line("over pickle.load", ratios(ours, worked["pickle.load"])))
    over = ratios(ours, worked["pickle.load, no gc"])
    print(ratio_line("over pickle.load, no gc", over, DECODED))
    print(f"peak memory of both processes together {taken / 1e6:,.0f} MB")
    print(versions("numpy"))
    assert num_events >= EVENTS
    assert num_stacks == (0 if kind == "no stacks" else 400)
    assert median(over) <= DECODED
    assert taken < MOST_BYTES
