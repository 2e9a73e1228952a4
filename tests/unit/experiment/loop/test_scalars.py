"""The scalar log: nothing is read where it is logged, nothing is lost."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.experiment.loop.scalars import ScalarLog, Series


class Reads(TorchDispatchMode):
    """Counts operations that read a tensor's value or move it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in ("_local_scalar_dense", "_to_copy", "copy_")
        return func(*args, **(kwargs or {}))


def test_adding_reads_nothing_and_one_flush_reads_once() -> None:
    log = ScalarLog()
    values = [torch.tensor(float(i)) for i in range(100)]
    with Reads() as reads:
        for step, value in enumerate(values):
            log.add("a", step, value)
    assert reads.count == 0
    stacks: list[int] = []
    original = torch.stack
    try:
        torch.stack = lambda rows: stacks.append(len(rows)) or original(rows)  # type: ignore[assignment]
        assert log.flush() == 100
    finally:
        torch.stack = original
    assert stacks == [100], "more than one transfer for one device"
    steps, found = log.since("a", 0)
    assert steps.tolist() == list(range(100))
    assert found.tolist() == [float(i) for i in range(100)]


def test_sinks_get_each_point_once_by_name() -> None:
    log = ScalarLog()
    got: list[Any] = []
    remove = log.add_sink(got.extend)
    log.add("loss", 1, 0.5)
    log.add("loss", 2, torch.tensor(0.25, dtype=torch.bfloat16))
    log.add("lr", 2, 1e-3)
    log.flush()
    remove()
    log.add("loss", 3, 0.1)
    log.flush()
    assert [(name, s.tolist(), v.tolist()) for name, s, v, _ in got] == [
        ("loss", [1, 2], [0.5, 0.25]),
        ("lr", [2], [1e-3]),
    ]
    assert all(times.dtype == np.float64 and len(times) == len(s) for _, s, _, times in got)


def test_history_grows_and_since_continues() -> None:
    log = ScalarLog()
    for step in range(5):
        log.add("x", step, float(step))
        log.flush()
    steps, values = log.since("x", 3)
    assert (steps.tolist(), values.tolist()) == ([3, 4], [3.0, 4.0])
    assert (steps.dtype, values.dtype) == (np.int64, np.float64)
    assert log.since("nothing", 0)[0].tolist() == []
    assert log.last("x", 2) == [3.0, 4.0]


def test_metrics_read_like_a_mapping_and_list_what_there_is() -> None:
    log = ScalarLog()
    log.add("train/loss", 1, float("nan"))
    metrics = log.history()
    assert list(metrics) == ["train/loss"]
    assert np.isnan(metrics["train/loss"]["value"]).all()
    with pytest.raises(KeyError, match=r"no metric 'loss'; logged so far: train/loss"):
        metrics["loss"]


def test_a_faulty_sink_loses_nothing_for_the_others() -> None:
    log = ScalarLog()
    got: list[Any] = []
    log.add_sink(lambda batch: 1 / 0)
    log.add_sink(got.extend)
    log.add("a", 1, 1.0)
    log.flush()
    assert len(got) == 1


def test_flushes_from_several_threads_lose_and_double_nothing() -> None:
    log = ScalarLog()
    stop = threading.Event()

    def flusher() -> None:
        while not stop.is_set():
            log.flush()

    threads = [threading.Thread(target=flusher) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(5000):
        log.add("x", step, float(step))
    stop.set()
    for thread in threads:
        thread.join()
    log.flush()
    steps, values = log.since("x", 0)
    assert steps.tolist() == list(range(5000))
    assert values.tolist() == steps.tolist()


def test_sinks_get_batches_in_order_whoever_flushes() -> None:
    log, got = ScalarLog(), list[int]()
    other = threading.Thread(target=log.flush)

    def sink(batch: list[Series]) -> None:
        if not got and not other.is_alive():
            log.add("x", 2, 2.0)
            other.start()
            other.join(0.2)  # long enough to overtake this batch, if it could
        got.extend(batch[0][1].tolist())

    log.add_sink(sink)
    log.add("x", 1, 1.0)
    log.flush()
    other.join()
    assert got == [1, 2]


def test_a_sink_may_read_what_was_logged() -> None:
    log, seen = ScalarLog(), list[int]()
    log.add_sink(lambda _batch: seen.append(len(log.history()["x"]["step"])))
    log.add("x", 1, 1.0)
    log.flush()
    assert seen == [1]
