"""How a run ends: whatever is raised, and whatever is raised in telling it, it has ended."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.experiment.plain_loop import data
from workbench.experiment import Experiment, RunError
from workbench.experiment.runtime import runner


class SilentError(Exception):
    """Cannot be printed: an attribute that its text needs was never set."""

    def __str__(self) -> str:
        return f"it was {self.missing}"  # type: ignore[attr-defined]


class Failing(nn.Linear):
    """Raises once, in its third step."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(6, 3)
        self.error = SimpleQueue[BaseException]()  # no container: nobody puts back what is taken
        self.error.put(error)
        self.calls = 0

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch calls it
        self.calls += 1
        if self.calls == 3 and not self.error.empty():
            raise self.error.get()
        return super().forward(input)

    def get_extra_state(self) -> Any:
        if self.calls == 4 and not self.error.empty():
            raise self.error.get()
        return 0

    def set_extra_state(self, state: Any) -> None:
        pass


def made(model: nn.Module, runs: Path) -> Experiment:
    return Experiment(model, data(), batch_size=16, runs=runs, device="cpu")


def test_an_exception_that_cannot_be_printed_ends_the_run(tmp_path: Path) -> None:
    exp = made(Failing(SilentError()), tmp_path)
    exp.run(epochs=1)
    with pytest.raises(RunError, match="its __str__ raises AttributeError"):
        exp.wait()
    assert (exp.status, exp.step_count) == ("exception", 2)
    assert exp.failure is not None
    assert exp.failure.title.endswith("SilentError")
    assert exp.failure.source is not None, "the line is found all the same"
    exp.resume().wait()
    assert (exp.status, exp.step_count) == ("finished", 4)


def test_a_failure_that_cannot_be_told_in_full_is_told_in_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise SystemExit

    monkeypatch.setattr(runner, "failure_of", broken)
    exp = made(Failing(ValueError("no")), tmp_path)
    exp.run(epochs=1)
    with pytest.raises(RunError, match="no"):
        exp.wait()
    assert exp.failure is not None
    assert exp.failure.title == "ValueError"
    assert exp.failure.subtitle == "Step 3 was not applied."
    exp.resume().wait()
    assert exp.step_count == 4


@pytest.mark.parametrize("error", [SilentError(), SystemExit()], ids=["silent", "exit"])
def test_a_state_that_cannot_be_had_ends_no_run(tmp_path: Path, error: BaseException) -> None:
    model = Failing(error)
    model.calls = 0
    exp = made(model, tmp_path)
    model.calls = -10
    exp.run(steps=3, wait=True)
    model.calls = 3  # the next step is its last, and its state is asked for after that
    exp.run(steps=1, wait=True)
    assert model.error.empty()
    assert (exp.status, exp.step_count) == ("finished", 4)
