"""Captures of steps, one after another, of runs that are over, and by probes that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.support import batchless, chart, net
from workbench.experiment import DataError, Experiment, StepContext, StepProbe
from workbench.records import MemoryChart, Record


class Counter(StepProbe):
    kind = "memory"

    def before_step(self, context: StepContext) -> None:
        self.step = context.step

    def finish(self) -> Record:
        return chart(self.step)


def test_a_capture_waited_for_right_after_another_never_hangs(exp: Experiment) -> None:
    exp.epochs = 1000
    for count in range(1, 101):
        record = exp.capture(Counter()).wait(120)
        assert isinstance(record, MemoryChart)
        assert record.step == count == exp.step_count or exp.status == "training"
    exp.wait(120)
    assert exp.step_count == 100


def test_captures_of_a_run_that_is_over_follow_each_other_and_train_nothing(
    exp: Experiment,
) -> None:
    exp.run(steps=3, wait=True)
    for _ in range(100):
        assert getattr(exp.capture(Counter()).wait(120), "step", None) == 4
    exp.run(steps=1, wait=True)
    assert exp.step_count == 4


class FaultyProbe(Counter):
    def after_forward(self, loss: torch.Tensor) -> None:
        raise ValueError("probe is broken")


def test_a_faulty_probe_is_told_to_its_owner_and_no_step_is_lost(exp: Experiment) -> None:
    handle = exp.capture(FaultyProbe())
    exp.run(steps=3, wait=True)
    assert exp.step_count == 3
    with pytest.raises(RuntimeError, match="the memory capture failed: ValueError: probe is"):
        handle.wait(1)
    assert exp.captures.infos() == ()


class Unfinished(Counter):
    def finish(self) -> Record:
        raise RuntimeError("there is nothing to record of this step")


def test_a_capture_of_a_step_that_fails_adds_nothing_to_the_users_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exp = Experiment(net(), (batchless()[0], batchless()[1] + 5), runs=tmp_path, device="cpu")
    handle = exp.capture(Unfinished())
    with pytest.raises(DataError, match="labels run from 5"):
        exp.run(wait=True)
    with pytest.raises(RuntimeError, match="there is nothing to record"):
        handle.wait(1)
    assert caplog.records == []
    exp.close()
