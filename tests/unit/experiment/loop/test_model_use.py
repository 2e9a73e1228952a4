"""Two experiments on one model: one trains at a time, and the second gets an error."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from torch import nn

from tests.unit.experiment.plain_loop import data, linear
from tests.unit.experiment.test_control import Turnstile
from workbench.experiment import Experiment, experiments


def made(model: nn.Module, runs: Path, name: str) -> Experiment:
    return Experiment(
        model, data(), optimizer="sgd", lr=0.1, batch_size=16, name=name, runs=runs, device="cpu"
    )


def test_a_second_run_on_one_model_is_refused(tmp_path: Path) -> None:
    turnstile = Turnstile()
    first, second = made(turnstile, tmp_path, "a"), made(turnstile, tmp_path, "b")
    first.run(epochs=1)
    turnstile.inside.acquire()
    for begin in (second.run, second.step, lambda: second.predict(data()[0])):
        with pytest.raises(
            RuntimeError, match=r"^b cannot use its model now: a is training it"
        ) as e:
            begin()
        assert "(weight); pause or stop a first" in str(e.value)
    assert second.status == "idle"
    turnstile.open()
    first.wait()
    second.run(epochs=1, wait=True)
    assert (first.step_count, second.step_count) == (4, 4)


@pytest.mark.parametrize("how", ["stop", "pause", "dropped"])
def test_one_that_was_requested_to_end_is_waited_for(tmp_path: Path, how: str) -> None:
    """The cell is run again: the same name has the new experiment."""
    turnstile = Turnstile()
    exp = made(turnstile, tmp_path, "a")
    exp.run(epochs=1)
    turnstile.inside.acquire()
    if how == "dropped":
        exp = made(turnstile, tmp_path, "b")
        gc.collect()
        assert [one.name for one in experiments()] == ["b"]
        second = exp
    else:
        getattr(exp, how)()
        second = made(turnstile, tmp_path, "b")
    second.run(epochs=1)
    assert second.status == "training"
    assert not turnstile.inside.acquire(timeout=0.2), "both are in a step"
    turnstile.open()
    second.wait()
    assert second.step_count == 4


def test_who_waits_can_be_stopped(tmp_path: Path) -> None:
    turnstile = Turnstile()
    first, second = made(turnstile, tmp_path, "a"), made(turnstile, tmp_path, "b")
    first.run(epochs=1)
    turnstile.inside.acquire()
    first.stop()
    second.run(epochs=1)
    second.stop()
    second.wait()
    assert (second.status, second.step_count) == ("stopped", 0)
    turnstile.open()
    first.wait()


def test_models_that_share_nothing_train_at_once(tmp_path: Path) -> None:
    first, second = Turnstile(), linear()
    a = made(first, tmp_path, "a")
    a.run(epochs=1)
    first.inside.acquire()
    b = made(second, tmp_path, "b")
    b.run(epochs=1, wait=True)
    first.open()
    a.wait()
    assert (a.step_count, b.step_count) == (4, 4)
