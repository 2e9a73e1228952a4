"""How fast a trace is replayed, beside reading its file: events a second, and the ratio.

``simulated`` is the events alone; ``all of it`` also works out what was there before the trace and
compares what is there in the end. All times are processor time of one thread.
"""

from __future__ import annotations

import pickle
import time

import pytest

from tests.benchmarks.table import median, quartiles
from tests.unit.allocator.traces import FILES, FOLDER, snapshot_of
from workbench.allocator.replay import replay

pytestmark = pytest.mark.benchmark
ROUNDS = 15
EVENTS_PER_S = 500_000


def seconds(action) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start


def test_events_replayed_in_a_second():
    print(f"\n{'trace':30}{'events':>8}{'simulated':>26}{'all of it':>12}{'/ pickle.load':>14}")
    speeds = []
    for name in FILES:
        snapshot = snapshot_of(name)
        data = (FOLDER / f"{name}.pickle").read_bytes()
        found = [replay(snapshot) for _ in range(ROUNDS)]
        simulated = [snapshot.num_events / one.simulated_s for one in found]
        whole = [seconds(lambda s=snapshot: replay(s)) for _ in range(ROUNDS)]
        read = [seconds(lambda d=data: pickle.loads(d)) for _ in range(ROUNDS)]
        low, high = quartiles(simulated)
        ratio = median([a / b for a, b in zip(whole, read, strict=True)])
        print(
            f"{name:30}{snapshot.num_events:8,}{median(simulated) / 1e3:8,.0f}k"
            f" ({low / 1e3:,.0f}k .. {high / 1e3:,.0f}k)"
            f"{snapshot.num_events / median(whole) / 1e3:9,.0f}k{ratio:13.2f}x"
        )
        speeds.append(median(simulated))
        assert found[0].certificate.exact
    assert min(speeds) >= EVENTS_PER_S
