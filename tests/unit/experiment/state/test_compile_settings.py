"""Settings of torch.compile made by a cell hold in a run that another thread starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo
import torch._inductor.config as inductor
from torch import nn

from workbench.experiment import Experiment


class Net(nn.Module):
    """Notes what its forward reads."""

    def __init__(self, read: Callable[[], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.seen: list[Any] = []
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.read())
        return self.linear(x)


@pytest.fixture(autouse=True)
def as_before() -> Generator[None]:
    with dynamo.patch(recompile_limit=8), inductor.patch({"triton.cudagraphs": False}):
        yield
        dynamo.recompile_limit = 8  # what a run of a later test is started with
        inductor.triton.cudagraphs = False


def experiment_that_reads(read: Callable[[], Any], runs: Path) -> tuple[Experiment, list[Any]]:
    model = Net(read)
    data = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
    return Experiment(model, data, batch_size=4, runs=runs, device="cpu"), model.seen


def elsewhere(work: Callable[[], Any]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def limit() -> int:
    return dynamo.recompile_limit


def test_a_setting_made_after_the_experiment_holds_when_another_thread_starts(
    tmp_path: Path,
) -> None:
    experiment, seen = experiment_that_reads(limit, tmp_path)
    dynamo.recompile_limit = 33
    elsewhere(lambda: experiment.step(1))
    experiment.wait()
    dynamo.recompile_limit = 34
    elsewhere(lambda: experiment.step(1))
    experiment.wait()
    assert seen[0] == 33
    assert seen[-1] == 34


def test_so_does_one_with_a_name_of_two_parts(tmp_path: Path) -> None:
    experiment, seen = experiment_that_reads(lambda: inductor.triton.cudagraphs, tmp_path)
    inductor.triton.cudagraphs = True
    elsewhere(lambda: experiment.step(1))
    experiment.wait()
    assert seen[-1] is True


def test_a_block_of_patched_settings_holds_over_an_older_setting(tmp_path: Path) -> None:
    experiment, seen = experiment_that_reads(limit, tmp_path)
    dynamo.recompile_limit = 33
    with dynamo.patch(recompile_limit=5):
        experiment.step(1)
        experiment.wait()
    assert seen[-1] == 5


def test_a_setting_of_the_thread_that_starts_holds_over_that_of_the_main_thread(
    tmp_path: Path,
) -> None:
    experiment, seen = experiment_that_reads(limit, tmp_path)

    def set_and_start() -> None:
        dynamo.recompile_limit = 35
        experiment.step(1)

    dynamo.recompile_limit = 33
    elsewhere(set_and_start)
    experiment.wait()
    assert seen[-1] == 35
    assert dynamo.recompile_limit == 33


def test_a_block_that_the_main_thread_is_in_holds_for_a_run_that_another_starts(
    tmp_path: Path,
) -> None:
    experiment, seen = experiment_that_reads(limit, tmp_path)
    with dynamo.patch(recompile_limit=5):
        elsewhere(lambda: experiment.step(1))
        experiment.wait()
    elsewhere(lambda: experiment.step(1))
    experiment.wait()
    assert seen == [5, 8]
