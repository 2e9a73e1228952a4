"""The moving average of the weights, judged by torch's own `AveragedModel` in a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.unit.experiment.experiments import experiment, losses, sgd
from tests.unit.experiment.plain_loop import batches, data, linear, plain_loop, seeded
from workbench.experiment import Experiment
from workbench.experiment.runtime.resume import ResumeError

DECAY, HELD_OUT = 0.7, data(40, seed=9)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))


def by_hand(epochs: int) -> tuple[list[float], AveragedModel, nn.Module]:
    model = seeded(normed)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    found = plain_loop(
        model, batches(data()), sgd(model.parameters()), epochs=epochs,
        after_step=lambda: averaged.update_parameters(model),
    )  # fmt: skip
    return found, averaged, model


def values(exp: Experiment, name: str) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since(name, 0)[1].tolist()


def same(found: dict[str, Any], judge: nn.Module) -> bool:
    expected = judge.state_dict()
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], value) for name, value in expected.items()
    )


@pytest.mark.parametrize("modes", ["", "bf16", "fp16", "checkpoint:auto"])
def test_it_is_torchs_own(tmp_path: Path, modes: str) -> None:
    expected, averaged, model = by_hand(epochs=3)
    exp = experiment(tmp_path, seeded(normed), ema=DECAY, val=HELD_OUT, modes=modes)
    run = exp.run(epochs=3, wait=True)
    found = exp.averaged_state_dict()
    assert len(values(exp, "val/ema_loss")) == 3
    if not modes:
        assert losses(exp) == expected, "an average changes nothing of the training"
        assert same(found, averaged.module)
        assert same(exp.model.state_dict(), model)
        with torch.no_grad():
            logits = averaged.module.eval()(HELD_OUT[0])
        assert values(exp, "val/ema_loss")[-1] == pytest.approx(
            F.cross_entropy(logits, HELD_OUT[1]).item(), rel=1e-6
        )
        right = (logits.argmax(1) == HELD_OUT[1]).double().mean().item()
        assert values(exp, "val/ema_accuracy")[-1] == pytest.approx(right)
    assert not same(found, exp.model)
    exp.close()
    other = seeded(normed, seed=7)
    other.load_state_dict(load_file(run.export_weights(tmp_path / "a.safetensors", averaged=True)))
    assert same(found, other)


def test_validating_it_draws_nothing_from_the_run(tmp_path: Path) -> None:
    """With a loader's own order, whose validation draws from the run's generators."""
    from torch.utils.data import DataLoader, TensorDataset

    def trained(ema: float | None) -> Experiment:
        def loader(pair: Any) -> Any:
            generator = torch.Generator().manual_seed(4)
            return DataLoader(TensorDataset(*pair), 16, shuffle=True, generator=generator)

        exp = experiment(
            tmp_path, seeded(normed), loader(data()), val=loader(HELD_OUT), order="loader", ema=ema
        )
        exp.run(epochs=3, wait=True)
        exp.close()
        return exp

    plain, exp = trained(None), trained(DECAY)
    for name in ("train/loss", "val/loss", "val/accuracy"):
        assert values(exp, name) == values(plain, name)


def test_it_goes_on_after_a_resume(tmp_path: Path) -> None:
    whole = experiment(tmp_path, seeded(normed), ema=DECAY, val=HELD_OUT)
    whole.run(epochs=4, wait=True)
    first = experiment(tmp_path, seeded(normed), ema=DECAY, val=HELD_OUT)
    first.run(steps=7, wait=True)
    first.close()
    again = experiment(tmp_path, seeded(normed, seed=8), ema=DECAY, val=HELD_OUT)
    again.resume_from(first.path)
    again.run(steps=9, wait=True)
    found, expected = again.averaged_state_dict(), whole.averaged_state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert values(again, "val/ema_loss") == values(whole, "val/ema_loss")
    other = experiment(tmp_path, seeded(normed), val=HELD_OUT)
    with pytest.raises(ResumeError, match="decay of averaged weights"):
        other.resume_from(first.path, fork=True)
    for exp in (whole, again, other):
        exp.close()


def test_a_hot_swap_carries_it(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(normed), ema=DECAY)
    exp.run(epochs=1, wait=True)
    before = exp.averaged_state_dict()
    exp.model = nn.Sequential(*seeded(normed, seed=5)[:3], nn.Linear(8, 3, bias=False))
    exp.run(steps=1, wait=True)
    found = exp.averaged_state_dict()
    weight = exp.model[0].weight.detach()
    lerped = before["0.weight"].lerp(weight, 1 - DECAY)
    assert torch.equal(found["0.weight"], lerped)
    assert set(found) == set(exp.model.state_dict())
    exp.close()


def test_the_best_can_go_by_it(tmp_path: Path) -> None:
    exp = experiment(
        tmp_path, seeded(normed), ema=DECAY, val=HELD_OUT, monitor="val/ema_loss", patience=2
    )
    exp.run(epochs=4, wait=True)
    assert exp.best is not None
    assert exp.best.value == min(values(exp, "val/ema_loss"))
    exp.close()


def test_what_is_no_decay_is_refused(tmp_path: Path) -> None:
    for wrong in (0, 1, 1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            Experiment(linear(), data(), runs=tmp_path, ema=wrong)
    with pytest.raises(TypeError, match=r"0\.999"):
        Experiment(linear(), data(), runs=tmp_path, ema="fast")  # type: ignore[arg-type]
    exp = experiment(tmp_path, seeded(linear))
    with pytest.raises(RuntimeError, match=r"ema=0\.999"):
        exp.averaged_state_dict()
    assert exp.ema is None
    exp.close()
