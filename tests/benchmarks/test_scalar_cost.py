"""What one logged scalar costs the training thread, and that logging reads nothing there."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)
from workbench.experiment.loop.scalars import ScalarLog
from workbench.metrics.writer import EventWriter
from workbench.modes import StepTimings

ROUNDS, POINTS = 15, 4000
ADDED, TIMED = 1.5, 1.0
"""Times what a point costs in a log written by hand (`LogByHand`): a scalar, and a step's time."""
WRITTEN = 0.5
"""Times what ``SummaryWriter.add_scalar`` takes for a point, its writer's thread included."""


class LogByHand:
    """What one writes first: a list of points for each name."""

    def __init__(self) -> None:
        self.points: defaultdict[str, list[tuple[int, torch.Tensor, float]]] = defaultdict(list)

    def add(self, name: str, step: int, value: torch.Tensor) -> None:
        self.points[name].append((step, value, time.time()))


def us_per_call(call: Callable[[int], object], points: int) -> float:
    """Processor time, of all threads."""
    start = time.process_time()
    for step in range(points):
        call(step)
    return (time.process_time() - start) / points * 1e6


def show(name: str, results: dict[str, list[float]], reference: str, limit: float) -> float:
    """The median ratio, printed."""
    found = ratios(results[name], results[reference])
    print(ratio_line(f"{name} over {reference}", found, limit))
    return median(found)


@pytest.mark.benchmark
def test_one_scalar_costs_what_a_list_of_points_does(tmp_path: Path) -> None:
    loss, log, timings = torch.tensor(1.5), ScalarLog(), StepTimings()
    writer = EventWriter(tmp_path / "ours")
    log.add_sink(writer.write)
    peer = SummaryWriter(tmp_path / "peer", max_queue=100_000, flush_secs=600)

    def by_hand() -> float:
        add = LogByHand().add
        return us_per_call(lambda step: add("train/loss", step, loss), POINTS)

    def ours() -> float:
        cost = us_per_call(lambda step: log.add("train/loss", step, loss), POINTS)
        log.flush()
        return cost

    def theirs() -> float:
        return us_per_call(lambda step: peer.add_scalar("train/loss", loss, step), 500)

    def step_time() -> float:
        return us_per_call(lambda _: timings.add("compile+bf16", 0.01), POINTS)

    contenders = {
        "a log by hand": by_hand,
        "ScalarLog.add": ours,
        "SummaryWriter.add_scalar": theirs,
        "StepTimings.add": step_time,
    }
    results = measure_interleaved(contenders, ROUNDS)
    peer.close()
    writer.close()
    print(
        "\n"
        + compare("One point, on the thread that logs", "µs", results, baseline="a log by hand")
    )
    added = show("ScalarLog.add", results, "a log by hand", ADDED)
    timed = show("StepTimings.add", results, "a log by hand", TIMED)
    print(versions("torch", "tensorboard"))
    assert added <= ADDED
    assert timed <= TIMED


@pytest.mark.benchmark
def test_reading_and_writing_happens_elsewhere_and_is_cheap(tmp_path: Path) -> None:
    """Flush and encoding hold the interpreter lock: 500 points (0.1 s of a 200 µs step) at once."""
    log, writer = ScalarLog(), EventWriter(tmp_path / "ours")
    log.add_sink(writer.write)
    peer = SummaryWriter(tmp_path / "peer", max_queue=100_000, flush_secs=600)
    loss = torch.tensor(1.5)

    def read_and_write() -> float:
        for step in range(500):
            log.add("train/loss", step, loss)
        return us_per_call(lambda _: (log.flush(), writer.flush()), 1) / 500

    def theirs() -> float:
        def write(_: int) -> None:
            for step in range(500):
                peer.add_scalar("train/loss", loss, step)
            peer.flush()

        return us_per_call(write, 1) / 500

    contenders = {"SummaryWriter, add and flush": theirs, "flush and write": read_and_write}
    results = measure_interleaved(contenders, ROUNDS)
    peer.close()
    writer.close()
    title = "One point, processor time of all threads"
    print("\n" + compare(title, "µs", results, baseline="SummaryWriter, add and flush"))
    written = show("flush and write", results, "SummaryWriter, add and flush", WRITTEN)
    assert written <= WRITTEN


def test_logging_reads_no_tensor_until_the_flush() -> None:
    reads = ReadCounter()
    log = ScalarLog()
    with reads:
        for step in range(50):
            log.add("train/loss", step, torch.ones(()))
        assert reads.counts == Counter()
        log.flush()
        assert sum(reads.counts.values()) <= 1
    assert log.last("train/loss") == [1.0]
