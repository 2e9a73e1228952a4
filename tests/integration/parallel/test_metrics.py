"""Parts of a loss, the metric that a run goes by, and functions of the user's, on ranks.

Judged by the same experiment in one process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.unit.experiment.plain_loop import data, linear, seeded
from workbench.experiment import Experiment, RunError

pytestmark = pytest.mark.usefixtures("forked_ranks")

HELD_OUT = data(40, seed=9)


def fast(parameters: Any) -> torch.optim.Optimizer:
    """So fast that the loss of validation soon rises."""
    return torch.optim.SGD(parameters, lr=2.0, momentum=0.9)


def of_parts(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    main, penalty = F.cross_entropy(logits, labels), logits.pow(2).mean()
    return {"loss": main + 0.01 * penalty, "main": main, "penalty": penalty}


def trained(runs: Path, modes: str, **options: Any) -> tuple[Experiment, list[tuple[str, int]]]:
    exp = Experiment(
        seeded(linear), data(), HELD_OUT, loss=of_parts, optimizer=fast, batch_size=16,
        modes=modes, runs=runs, device="cpu", monitor="val/loss", patience=2, **options,
    )  # fmt: skip
    seen: list[tuple[str, int]] = []
    exp.on("step", lambda event: seen.append(("step", event.step)))
    exp.on("validated", lambda event: seen.append(("validated", event.epoch)))
    exp.on("epoch", lambda event: seen.append(("epoch", event.epoch)))
    exp.run(epochs=30, wait=True)
    exp.close()
    return exp, seen


def test_all_of_it_is_as_in_one_process(tmp_path: Path) -> None:
    alone, seen = trained(tmp_path, "")
    assert alone.epoch < 30, "or early stopping shows nothing"
    for modes in ("ddp:2", "fsdp:2"):
        exp, heard = trained(tmp_path, modes)
        assert (exp.status, exp.epoch, exp.step_count) == (
            "finished",
            alone.epoch,
            alone.step_count,
        )
        assert exp.message == alone.message
        assert heard == seen
        assert exp.best is not None
        assert alone.best is not None
        assert exp.best[2:] == alone.best[2:]
        assert exp.best.value == pytest.approx(alone.best.value, rel=1e-5)
        for name in ("main", "penalty"):
            for of in ("train", "val"):
                (steps, values), (own, judge) = (
                    one.scalars.since(f"{of}/{name}", 0) for one in (exp, alone)
                )
                assert steps.tolist() == own.tolist(), (modes, of, name)
                assert values.tolist() == pytest.approx(judge.tolist(), rel=1e-5, abs=1e-6)


def test_a_metric_that_the_kernel_logs_ends_the_ranks_soon_after(tmp_path: Path) -> None:
    exp = Experiment(
        seeded(linear), data(), HELD_OUT, batch_size=16, modes="ddp:2", runs=tmp_path,
        device="cpu", monitor=("mine", "max"), patience=1,
    )  # fmt: skip
    exp.on("validated", lambda event: exp.log("mine", -event.epoch))
    exp.run(epochs=100_000, wait=True)
    assert exp.status == "finished"
    assert exp.epoch < 100_000
    assert "mine has not been better than -1, of epoch 1" in exp.message
    assert exp.best == ("mine", -1.0, 4, 1)
    assert not [note for note in exp.notes if "not logged" in note]
    exp.close()


def test_a_schedule_that_goes_by_such_a_metric_is_refused(tmp_path: Path) -> None:
    exp = Experiment(
        seeded(linear), data(), HELD_OUT, batch_size=16, modes="ddp:2", runs=tmp_path,
        device="cpu", monitor=("mine", "max"), optimizer="sgd", lr=0.1,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max"),
    )  # fmt: skip
    exp.on("validated", lambda event: exp.log("mine", -event.epoch))
    exp.run(epochs=2)
    with pytest.raises(RunError, match="goes by mine, which is logged in this process"):
        exp.wait()
    assert exp.step_count == 0
    exp.close()


def test_an_average_of_the_weights_comes_home(tmp_path: Path) -> None:
    """Begun in one process, continued on ranks, back again."""

    def averaged(modes: str) -> tuple[Experiment, dict[str, Any]]:
        exp = Experiment(
            seeded(linear), data(), HELD_OUT, batch_size=16, optimizer="sgd", lr=0.1,
            ema=0.8, runs=tmp_path, device="cpu",
        )  # fmt: skip
        exp.run(steps=3, wait=True)
        exp.modes = modes
        exp.run(steps=7, wait=True)
        exp.modes = ""
        exp.run(steps=2, wait=True)
        found = exp.averaged_state_dict()
        exp.close()
        return exp, found

    alone, judge = averaged("")
    for modes in ("ddp:2", "fsdp:2"):
        exp, found = averaged(modes)
        for name, value in judge.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
        own, theirs = (one.scalars.since("val/ema_loss", 0)[1] for one in (exp, alone))
        assert own.tolist() == pytest.approx(theirs.tolist(), rel=1e-5)
        assert len(own) == 3
