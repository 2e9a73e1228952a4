"""Weights of a run on disk: loaded into other models, and read back by other tools."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import workbench as wb
from tests.unit.experiment.experiments import experiment
from tests.unit.experiment.plain_loop import CLASSES, FEATURES, data, seeded
from workbench.experiment.runtime.resume import ResumeError
from workbench.experiment.runtime.weights import export_weights, load_weights


class Net(nn.Module):
    """With tied weights, a buffer that is stored and one that is not."""

    def __init__(self, width: int = 8, classes: int = CLASSES) -> None:
        super().__init__()
        self.encode = nn.Linear(FEATURES, width)
        self.norm = nn.BatchNorm1d(width)
        self.decode = nn.Linear(FEATURES, width, bias=False)
        self.decode.weight = self.encode.weight
        self.head = nn.Linear(width, classes)
        self.register_buffer("scale", torch.full((2,), 0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.encode(x) + self.decode(x))) * self.scale[0]


def trained(tmp_path: Path, model: nn.Module | None = None, **options: Any) -> Any:
    exp = experiment(
        tmp_path, seeded(Net) if model is None else model, val=data(32, seed=5), **options
    )
    run = exp.run(epochs=2, wait=True)
    exp.close()
    return run, exp.model


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_plain_model_has_the_weights_of_the_run(tmp_path: Path) -> None:
    run, model = trained(tmp_path)
    for source in (run, run.path, str(run.path), next((run.path / "checkpoints").iterdir())):
        fresh = seeded(Net, seed=99)
        assert not equal(fresh, model)
        found = wb.load_weights(fresh, source)
        assert not found.missing
        if source == run:
            assert equal(fresh, model)
            assert repr(found).startswith("step 8: 9 of 10 parameters and buffers loaded")
            assert "scale" in repr(found), "not persistent: a model's own, as in load_state_dict"
        assert fresh.decode.weight is fresh.encode.weight


def test_the_file_is_what_load_state_dict_takes(tmp_path: Path) -> None:
    run, model = trained(tmp_path)
    path = run.export_weights(tmp_path / "model.safetensors")
    stored = load_file(path)
    assert set(stored) == set(model.state_dict())
    fresh = seeded(Net, seed=99)
    fresh.load_state_dict(stored)
    assert equal(fresh, model)
    assert export_weights(run.path, path, step=8) == path, "it may be replaced"


def test_the_best_is_that_of_the_metric(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(Net), val=data(32, seed=5), monitor=("mine", "max"))
    values, kept = [0.1, 0.7, 0.3], dict[int, dict[str, torch.Tensor]]()

    def validated(event: Any) -> None:
        exp.log("mine", values[event.epoch - 1])
        kept[event.epoch] = {k: v.clone() for k, v in exp.model.state_dict().items()}

    exp.on("validated", validated)
    run = exp.run(epochs=3, wait=True)
    exp.close()
    fresh = Net()
    assert load_weights(fresh, run, "best").step == 8
    assert all(torch.equal(v, kept[2][k]) for k, v in fresh.state_dict().items())
    assert load_weights(fresh, run).step == 12


def test_another_model_is_refused_with_what_differs(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    other = Net(classes=5)
    other.extra = nn.Linear(2, 2)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(ResumeError, match="strict=False") as raised:
        load_weights(other, run)
    told = str(raised.value)
    for line in ("head.weight", "3×8", "5×8", "extra.weight", "2×2"):
        assert line in told
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())
    found = load_weights(other, run, strict=False)
    assert set(found.missing) == {"head.weight", "head.bias", "extra.weight", "extra.bias"}
    assert not torch.equal(other.encode.weight, before["encode.weight"])
    assert torch.equal(other.head.weight, before["head.weight"])


def test_types_and_flags_of_the_model_stay(tmp_path: Path) -> None:
    run, model = trained(tmp_path)
    half = Net().to(torch.bfloat16).eval()
    half.head.weight.requires_grad_(False)
    load_weights(half, run)
    assert half.head.weight.dtype is torch.bfloat16
    assert torch.equal(half.head.weight, model.head.weight.bfloat16())
    assert not half.head.weight.requires_grad
    assert not half.training


def test_a_layer_without_a_shape_takes_the_runs(tmp_path: Path) -> None:
    run, model = trained(tmp_path, nn.Sequential(nn.Linear(FEATURES, CLASSES)))
    lazy = nn.Sequential(nn.LazyLinear(CLASSES))
    load_weights(lazy, run)
    x = data()[0]
    assert torch.equal(lazy(x), model(x))


def test_a_model_that_is_trained_is_not_written(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    at_step, go_on = threading.Event(), threading.Event()
    exp = experiment(tmp_path, seeded(Net))

    def wait(_event: Any) -> None:
        at_step.set()
        assert go_on.wait(60)

    exp.on("step", wait)
    exp.run(epochs=1)
    assert at_step.wait(60)
    with pytest.raises(RuntimeError, match="pause it first"):
        load_weights(exp.model, run)
    go_on.set()
    exp.wait()
    load_weights(exp.model, run)
    exp.close()


def test_what_is_no_run_or_no_step_is_refused(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    with pytest.raises(ResumeError, match="no run directory"):
        load_weights(Net(), tmp_path / "elsewhere")
    with pytest.raises(ResumeError, match="no checkpoint of step 3"):
        load_weights(Net(), run, 3)
    with pytest.raises(ValueError, match=r"\.safetensors"):
        run.export_weights(tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()
    with pytest.raises(TypeError):
        load_weights("net", run)  # type: ignore[arg-type]


class Extrapolates(torch.optim.SGD):
    """Trains one point and evaluates another, as schedule-free optimizers do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.is_training = True
        self.other = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def _move(self, weight: float) -> None:
        held = [p for group in self.param_groups for p in group["params"]]
        with torch.no_grad():
            for parameter, other in zip(held, self.other, strict=True):
                parameter.lerp_(other, weight)

    def eval(self) -> None:
        if self.is_training:
            self._move(-0.5)
        self.is_training = False

    def train(self) -> None:
        if not self.is_training:
            self._move(1 / 3)
        self.is_training = True


def test_where_an_optimizer_evaluates_other_weights_those_are_loaded(tmp_path: Path) -> None:
    val = data(32, seed=5)
    exp = experiment(tmp_path, seeded(Net), val=val, optimizer=Extrapolates)
    exp.run(epochs=2, wait=True)
    evaluated = exp.evaluate(val).loss
    exp.run(epochs=1, wait=True)
    assert exp.evaluate(val).loss != pytest.approx(evaluated, rel=1e-4)
    exp.load_weights(exp.path, 8)
    assert exp.evaluate(val).loss == pytest.approx(evaluated, rel=1e-5)
    exp.close()
    with pytest.raises(ValueError, match="leave ema out"):
        experiment(tmp_path, seeded(Net), optimizer=Extrapolates, ema=0.9)
