"""What opening a snapshot of a million events costs, beside reading the same file with pickle.

`pickle.load` alone is the least that anybody pays who opens the file in Python, and it may run
whatever the file says. Each reading happens in a fresh process, so that none profits from memory
that another left warm; the decoder's time includes starting its own. Beside the clock stands the
processor time of both processes: one thread does all the work, so on a machine with an idle core
they agree, and on a busy one the second still says what the decoder costs. The quickest round is
judged.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.table import compare, measure_interleaved, median, quartiles, versions

ROOT = Path(__file__).resolve().parents[2]
EVENTS, ROUNDS = 1_000_000, 5
MOST_S, MOST_BYTES = 3.0, 1_500_000_000
KINDS = {
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
from workbench.allocator.decode import read
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
began = time.perf_counter()
with open(sys.argv[1], "rb") as stream: found = pickle.load(stream)
print(time.perf_counter() - began, len(found["device_traces"][0]), flush=True)
import os; os._exit(0)
"""


def timed(program: str, *arguments: str) -> list[float]:
    """The numbers that a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [float(word) for word in done.stdout.split()]


@pytest.mark.benchmark
@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured with getrusage")
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_events_open_in_three_seconds(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pickle"
    # In a process of its own: one that grows large passes its peak on to those it starts.
    timed(_MAKE, str(path), str(EVENTS), json.dumps(KINDS[kind]))
    seen: list[list[float]] = []

    def decode() -> float:
        seen.append(timed(_DECODE, str(path)))
        return seen[-1][0]

    contenders = {
        "pickle.load": lambda: timed(_LOAD, str(path), "usual")[0],
        "pickle.load, no gc": lambda: timed(_LOAD, str(path), "quiet")[0],
        "allocator.decode.read": decode,
    }
    results = measure_interleaved(contenders, ROUNDS)
    events, stacks, taken = int(seen[0][1]), int(seen[0][2]), max(row[4] for row in seen)
    worked = sorted(row[3] for row in seen)
    size = path.stat().st_size
    title = f"{events:,} events, {stacks} stacks, {size / 1e6:.0f} MB ({kind})"
    print("\n" + compare(title, "s", results, baseline="pickle.load"))
    for name in ("pickle.load", "pickle.load, no gc"):
        ratios = [
            ours / plain
            for ours, plain in zip(results["allocator.decode.read"], results[name], strict=True)
        ]
        low, high = quartiles(ratios)
        print(f"{median(ratios):.2f}x of {name} in the same round ({low:.2f} .. {high:.2f})")
    print(f"processor time {median(worked):.2f} s ({worked[0]:.2f} .. {worked[-1]:.2f})")
    print(f"peak memory of both processes together {taken / 1e6:,.0f} MB")
    print(versions("numpy"))
    assert events >= EVENTS
    assert stacks == (0 if kind == "no stacks" else 400)
    assert min(*results["allocator.decode.read"], worked[0]) <= MOST_S
    assert taken < MOST_BYTES
