"""Memory while training: where each figure is from, and that it disturbs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.loop import measures
from workbench.metrics import attach, memory

MIB = 2**20


def counters(current: int, peak: int, **others: int) -> dict[str, Any]:
    """As `torch.cuda.memory_stats_as_nested_dict` nests them, with other pools beside ``all``."""

    def pools(current: int, peak: int = 0) -> dict[str, Any]:
        wrong = {"current": 1, "peak": 1, "allocated": 1, "freed": 1}
        right = {"current": current, "peak": peak, "allocated": 9, "freed": 9}
        return {"all": right, "small_pool": wrong, "large_pool": wrong}

    return {"allocated_bytes": pools(current, peak)} | {
        name: pools(value) for name, value in others.items()
    }


def experiment(folder: Path, **options: Any) -> Experiment:
    data = torch.randn(64, 8), torch.arange(64) % 2
    return Experiment(nn.Linear(8, 2), data, batch_size=8, runs=folder, device="cpu", **options)


def test_each_scalar_is_the_counter_that_it_is_named_after() -> None:
    stats = counters(3 * MIB, 7 * MIB, reserved_bytes=10 * MIB, inactive_split_bytes=2 * MIB)
    assert memory.from_allocator(stats) == {
        "memory/allocated": 3 * MIB,
        "memory/reserved": 10 * MIB,
        "memory/fragmentation": 2 * MIB,
        "memory/allocated_peak": 7 * MIB,
    }
    assert memory.from_allocator({}) == {}, "CUDA has not been used: nothing is known"


def test_a_cuda_device_is_queried_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = counters(5, 6, reserved_bytes=8, inactive_split_bytes=1)
    queried: list[torch.device] = []

    def answer(device: torch.device) -> dict[str, Any]:
        queried.append(device)
        return stats

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", answer)
    assert memory.memory_now(torch.device("cuda:1"))["memory/allocated"] == 5
    assert queried == [torch.device("cuda:1")]


HOLDS_MEMORY = """
import json, mmap, psutil, torch
from workbench.metrics import memory

size = 256 * 2**20
found = [memory.memory_now(torch.device("cpu"))]
rss = psutil.Process().memory_info().rss
held = mmap.mmap(-1, size)
for page in range(0, size, mmap.PAGESIZE):
    held[page] = 1
found.append(memory.of_process())
held.close()
found.append(memory.of_process())
print(json.dumps([rss, found]))
"""


def test_without_an_allocator_it_is_the_process_that_is_measured() -> None:
    """In one of its own: this one gives memory back, and takes it again, as other tests left it."""
    done = subprocess.run(
        [sys.executable, "-c", HOLDS_MEMORY], capture_output=True, text=True, timeout=480
    )
    assert done.returncode == 0, done.stderr
    rss, (before, during, after) = json.loads(done.stdout)
    assert set(before) == {"memory/resident", "memory/resident_peak"}
    assert before["memory/resident"] == pytest.approx(rss, rel=0.05)
    assert during["memory/resident"] - before["memory/resident"] > 240 * MIB
    assert during["memory/resident"] - after["memory/resident"] > 240 * MIB
    # the kernel counts on each core and adds up now and then: its mark may lag a little
    assert after["memory/resident_peak"] > during["memory/resident"] - 16 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="the mark is read from /proc")
def test_where_no_mark_is_kept_no_peak_is_made_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t  2208 kB\n")
    for path in (tmp_path / "status", tmp_path / "missing"):
        monkeypatch.setattr(memory, "_STATUS", path)
        assert set(memory.of_process()) == {"memory/resident"}


def test_a_run_has_them_in_its_metrics_and_in_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], EventAccumulator]
) -> None:
    monkeypatch.setattr(measures, "EVERY", 1)
    exp = experiment(tmp_path)
    ends = [memory.attach(exp), attach(exp)]
    run = exp.run(steps=12, wait=True)
    for name in ("memory/resident", "memory/resident_peak"):
        points = run.metrics[name]
        assert points["step"].tolist() == list(range(1, 13))
        assert (points["value"] > MIB).all()
    assert (
        run.metrics["memory/resident"]["value"] <= run.metrics["memory/resident_peak"]["value"]
    ).all()
    for end in ends:
        end()
    shown = read(Path(exp.path)).Scalars("memory/resident")
    assert [point.step for point in shown] == list(range(1, 13))
    np.testing.assert_allclose(
        [point.value for point in shown], run.metrics["memory/resident"]["value"], rtol=1e-6
    )
    exp.close()


def test_they_are_logged_as_often_as_other_details(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    memory.attach(exp)
    run = exp.run(steps=200, wait=True)
    steps = run.metrics["memory/resident"]["step"].tolist()
    assert steps == run.metrics["train/learning_rate"]["step"].tolist()
    assert len(steps) < 200
    exp.close()


def test_counters_that_fail_end_the_logging_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: torch.device) -> dict[str, float]:
        raise RuntimeError("no counters today")

    monkeypatch.setattr(measures, "EVERY", 1)
    monkeypatch.setattr(memory, "memory_now", fail)
    exp = experiment(tmp_path)
    memory.attach(exp)
    run = exp.run(steps=5, wait=True)
    assert exp.status == "finished"
    assert not [name for name in run.metrics if name.startswith("memory/")]
    assert [record.message for record in caplog.records] == ["memory is not logged any more"]
    exp.close()


def test_what_is_detached_logs_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "EVERY", 1)
    exp = experiment(tmp_path)
    end = memory.attach(exp)
    exp.run(steps=2, wait=True)
    end()
    end()
    run = exp.run(steps=2, wait=True)
    assert run.metrics["memory/resident"]["step"].tolist() == [1, 2]
    exp.close()


def test_on_a_simulated_gpu_it_is_the_simulated_allocators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.experiment.services import Services, only
    from workbench.memory.simulated_gpu.out_of_memory import OutOfMemoryTool

    monkeypatch.setattr(measures, "EVERY", 1)
    with only(Services(memory_tool=OutOfMemoryTool)):
        exp = experiment(tmp_path)
    memory.attach(exp)
    exp.card = "1 GiB"
    run = exp.run(steps=4, wait=True)
    use = exp.card_use
    assert use is not None
    found = {name: run.metrics[name]["value"] for name in run.metrics if name.startswith("memory/")}
    assert set(found) == {
        "memory/allocated", "memory/reserved", "memory/fragmentation", "memory/allocated_peak"
    }  # fmt: skip
    assert found["memory/allocated_peak"][-1] == use.peak_allocated
    assert found["memory/reserved"][-1] == use.reserved
    assert use.peak_allocated >= use.allocated > 0
    assert (
        found["memory/fragmentation"] <= found["memory/reserved"] - found["memory/allocated"]
    ).all()
    exp.card = None
    run = exp.run(steps=1, wait=True)
    assert run.metrics["memory/resident"]["step"].tolist() == [5]
    assert len(run.metrics["memory/allocated"]["step"]) == 4
    exp.close()
