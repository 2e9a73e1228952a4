"""How fast a trace is replayed, beside bookkeeping in plain Python and beside reading its file.

``simulated`` is the events alone; ``all of it`` also works out what was there before the trace and
compares what is there in the end. ``booked`` goes over the same events with a dictionary of what is
allocated: the least that a loop in Python does with them. All times are processor time of one
thread.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import pytest

from tests.benchmarks import absent
from tests.benchmarks.table import median, quartiles, ratio_line, ratios
from tests.unit.allocator.traces import FILES, FOLDER, snapshot_of
from workbench.allocator.replay.replay import replay
from workbench.allocator.snapshot.snapshot import ALLOC, FREE_COMPLETED, Snapshot

pytestmark = pytest.mark.benchmark
ROUNDS = 15
SIMULATED = 8.0
"""Times what the same events cost where they are only booked."""


def seconds(action: Callable[[], object]) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start


def booked(snapshot: Snapshot) -> int:
    """The most bytes that were allocated at once, as far as the trace alone tells."""
    live: dict[int, int] = {}
    held = most = 0
    rows = zip(
        snapshot.action.tolist(), snapshot.address.tolist(), snapshot.size.tolist(), strict=True
    )
    for action, address, size in rows:
        if action == ALLOC:
            live[address] = size
            held += size
            most = max(most, held)
        elif action == FREE_COMPLETED:
            held -= live.pop(address, 0)
    return most


def present() -> list[str]:
    """The traces that are there; noted where one is not."""
    found = [name for name in FILES if (FOLDER / f"{name}.pickle").exists()]
    for name in sorted(set(FILES) - set(found)):
        absent.note(f"recorded CUDA trace {FOLDER / name}.pickle", "how fast it is replayed")
    if not found:
        pytest.skip(f"needs recorded CUDA traces: {', '.join(FILES)} as .pickle in {FOLDER}")
    return found


def test_replay_costs_a_few_times_what_bookkeeping_does() -> None:
    slow = {}
    for name in present():
        if (ratio := over_booked(name)) > SIMULATED:
            slow[name] = ratio
    assert slow == {}


def over_booked(name: str) -> float:
    """The median ratio, printed with the rest of what is known of the trace's replay."""
    snapshot = snapshot_of(name)
    data = (FOLDER / f"{name}.pickle").read_bytes()
    booking, simulated, whole, read = [], [], [], []
    for _ in range(ROUNDS):
        booking.append(seconds(lambda: booked(snapshot)))
        started = time.thread_time()
        found = replay(snapshot)
        whole.append(time.thread_time() - started)
        simulated.append(found.simulated_s)
        read.append(seconds(lambda: pickle.loads(data)))
        assert found.certificate.exact
    low, high = quartiles([snapshot.num_events / one for one in simulated])
    print(
        f"\n{name}, {snapshot.num_events:,} events: simulated "
        f"{low / 1e3:,.0f}k .. {high / 1e3:,.0f}k a second, "
        f"all of it {snapshot.num_events / median(whole) / 1e3:,.0f}k"
    )
    print(ratio_line("  all of it over pickle.loads", ratios(whole, read)))
    over = ratios(simulated, booking)
    print(ratio_line("  simulated over booked", over, SIMULATED))
    return median(over)
