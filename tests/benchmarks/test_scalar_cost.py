"""What one logged scalar costs the training thread, and that logging reads nothing there."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import compare, measure_interleaved, median, versions
from workbench.experiment.scalars import ScalarLog
from workbench.metrics.writer import EventWriter
from workbench.modes import StepTimings

ROUNDS, POINTS = 15, 4000


def us_per_call(call: object, points: int) -> float:
    start = time.perf_counter()
    for step in range(points):
        call(step)
    return (time.perf_counter() - start) / points * 1e6


@pytest.mark.benchmark
def test_one_scalar_takes_at_most_2_us(tmp_path: Path) -> None:
    loss, log, timings = torch.tensor(1.5), ScalarLog(), StepTimings()
    writer = EventWriter(tmp_path / "ours")
    log.add_sink(writer.write)
    peer = SummaryWriter(tmp_path / "peer", max_queue=100_000, flush_secs=600)
    loop = us_per_call(lambda _: None, POINTS)

    def ours() -> float:
        cost = us_per_call(lambda step: log.add("train/loss", step, loss), POINTS) - loop
        log.flush()
        return cost

    def theirs() -> float:
        return us_per_call(lambda step: peer.add_scalar("train/loss", loss, step), 500) - loop

    def step_time() -> float:
        return us_per_call(lambda _: timings.add("compile+bf16", 0.01), POINTS) - loop

    results = measure_interleaved(
        {"ScalarLog.add": ours, "SummaryWriter.add_scalar": theirs, "StepTimings.add": step_time},
        ROUNDS,
    )
    peer.close()
    writer.close()
    print(
        "\n"
        + compare("One point, on the thread that logs", "µs", results, baseline="ScalarLog.add")
    )
    print(versions("torch", "tensorboard"))
    assert median(results["ScalarLog.add"]) <= 2
    assert median(results["StepTimings.add"]) <= 0.5


@pytest.mark.benchmark
def test_reading_and_writing_happens_elsewhere_and_is_cheap(tmp_path: Path) -> None:
    """Flush and encoding hold the interpreter lock: 500 points (0.1 s of a 200 µs step) at once."""
    log, writer = ScalarLog(), EventWriter(tmp_path)
    log.add_sink(writer.write)
    loss = torch.tensor(1.5)

    def flush() -> float:
        for step in range(500):
            log.add("train/loss", step, loss)
        start = time.perf_counter()
        log.flush()
        return (time.perf_counter() - start) / 500 * 1e6

    def write() -> float:
        for step in range(500):
            log.add("train/loss", step, 1.5)
        start = time.perf_counter()
        log.flush()
        writer.flush()
        return (time.perf_counter() - start) / 500 * 1e6

    results = measure_interleaved({"flush": flush, "flush floats and write": write}, ROUNDS)
    writer.close()
    print(
        "\n"
        + compare("One point, on the pulse and writer threads", "µs", results, baseline="flush")
    )
    assert sum(median(values) for values in results.values()) <= 40


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
