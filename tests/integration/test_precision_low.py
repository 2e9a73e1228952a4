"""fp8, fp8-rowwise and mxfp8 in an experiment: beside other modes, through swaps and errors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import workbench as wb
from tests.integration.support import weights
from workbench.experiment import Experiment
from workbench.modes import ModeSet
from workbench.modes.compile.toolchain import missing_for_compile
from workbench.modes.precision.float8 import VALUES

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed"
)

compiles = pytest.mark.skipif(
    missing_for_compile(torch.device("cpu")) is not None, reason="nothing here compiles"
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 32, generator=generator)
    return inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long()


def experiment(folder: Path, modes: str, train: object = None, **options: Any) -> Experiment:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"batch_size": 40, "seed": 1, "device": "cpu", **options}
    train = data() if train is None else train
    return Experiment(Net(), train, runs=folder, modes=modes, **settings)


def losses(exp: Experiment) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since("train/loss", 0)[1].tolist()


def untouched(model: nn.Module) -> bool:
    return not any("forward" in part.__dict__ for part in model.modules())


@pytest.mark.parametrize("value", VALUES)
def test_it_trains_close_to_bf16_and_leaves_no_trace(tmp_path: Path, value: str) -> None:
    """The last batch of an epoch has 20 rows: no multiple of a block."""
    low = experiment(tmp_path / "low", value)
    half = experiment(tmp_path / "half", "bf16")
    for exp in (low, half):
        exp.run(epochs=4, wait=True)
    a, b = (torch.tensor(losses(exp)) for exp in (low, half))
    assert not torch.equal(a, b), "something was computed in 8 bits"
    assert (a - b).abs().max() < 0.05
    assert a[-8:].mean() < 0.9 * a[:8].mean()
    low.modes = "fp32"
    low.run(steps=1, wait=True)
    assert untouched(low.model)


def test_names_and_moments_stay_through_a_detour(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "fp32")
    exp.run(steps=3, wait=True)
    names = list(exp.model.state_dict())
    parameters = list(exp.model.parameters())
    kept = weights(exp)
    for value in (*VALUES, "fp32"):
        exp.modes = value
        exp.run(steps=1, wait=True)
        assert list(exp.model.state_dict()) == names
        assert all(a is b for a, b in zip(exp.model.parameters(), parameters, strict=True))
    assert all(int(exp.optimizer.state[p]["step"]) == 7 for p in parameters)
    assert not any(torch.equal(a, b) for a, b in zip(weights(exp), kept, strict=True))


def test_steps_before_and_after_are_those_of_a_run_that_never_switched(tmp_path: Path) -> None:
    """A step that fails under fp8 is undone; back in fp32 the losses go on bit for bit."""
    plain = experiment(tmp_path / "plain", "fp32")
    plain.run(steps=6, wait=True)
    exp = experiment(tmp_path / "tried", "fp32")
    exp.run(steps=3, wait=True)
    broken = exp.model.head.register_forward_hook(_fail)
    exp.modes = "fp8"
    with pytest.raises(ValueError, match="this batch will not do"):
        exp.run(steps=1, wait=True)
    broken.remove()
    exp.modes = "fp32"
    exp.run(steps=3, wait=True)
    assert losses(exp) == losses(plain)
    assert untouched(exp.model)


def _fail(*_: object) -> None:
    raise ValueError("this batch will not do")


@compiles
def test_it_compiles(tmp_path: Path) -> None:
    """Switching the precision of compiled blocks computes anew, and finds the first again."""
    eager = experiment(tmp_path / "eager", "fp8")
    eager.run(steps=7, wait=True)
    exp = experiment(tmp_path / "compiled", "compile:whole+fp8")
    exp.run(steps=7, wait=True)
    torch.testing.assert_close(losses(exp), losses(eager), rtol=0.02, atol=5e-3)
    x = data()[0][:40]
    found = {}
    for text in ("fp8", "bf16", "compile:whole+bf16", "compile:whole+fp8"):
        modes = ModeSet.parse(text, "cpu")
        exp.model.eval()
        _modes_off(exp)
        modes.attach(exp.model)
        with modes.forward_context(), torch.no_grad():
            found[text] = exp.model(x).float()
        modes.detach(exp.model)
    apart = (found["fp8"] - found["bf16"]).norm()
    for text in ("bf16", "fp8"):
        assert (found[f"compile:whole+{text}"] - found[text]).norm() < 0.5 * apart


def _modes_off(exp: Experiment) -> None:
    exp._training.detach_modes()


@pytest.mark.parametrize("value", VALUES)
def test_a_checkpointed_block_computes_the_same_to_the_bit(tmp_path: Path, value: str) -> None:
    plain = experiment(tmp_path / "plain", value)
    kept = experiment(tmp_path / "kept", f"checkpoint+{value}")
    for exp in (plain, kept):
        exp.run(steps=9, wait=True)
    assert losses(plain) == losses(kept)
    kept.modes = ""
    kept.run(steps=1, wait=True)
    assert untouched(kept.model)


def test_batches_of_a_loader_with_workers(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(*data()), batch_size=7, num_workers=2)
    exp = experiment(tmp_path, "mxfp8", loader)
    exp.run(steps=6, wait=True)
    assert torch.tensor(losses(exp)).isfinite().all()


def test_a_model_that_is_swapped_in_is_converted_and_the_old_one_is_given_back(
    tmp_path: Path,
) -> None:
    exp = experiment(tmp_path, "fp8")
    exp.run(steps=2, wait=True)
    old = exp.model
    exp.model = Net(classes=5)
    exp.run(steps=2, wait=True)
    assert untouched(old)
    assert "forward" in exp.model.blocks[0].up.__dict__
    assert "forward" not in exp.model.head.__dict__


def test_a_model_with_nothing_to_convert_is_refused_before_anything_changes(
    tmp_path: Path,
) -> None:
    exp = experiment(tmp_path, "fp8")
    exp.run(steps=2, wait=True)
    old = exp.model
    with pytest.raises(ValueError, match="fp8 converts no layer of Linear: it is 3 × 32"):
        exp.model = nn.Linear(32, 3)
    exp.run(steps=1, wait=True)
    assert exp.model is old


@pytest.mark.parametrize("value", VALUES)
def test_graph_and_memory_of_such_a_step_can_be_captured(tmp_path: Path, value: str) -> None:
    exp = experiment(tmp_path, value)
    exp.run(steps=2, wait=True)
    graph = wb.graph(exp).record
    names = {node.op for node in graph.nodes}
    assert any("mx_mm" in name or "matmul_with_hp" in name for name in names), sorted(names)
    memory = wb.memory(exp).record
    modules = {memory.strings[index] for index in memory.block_module.tolist()}
    assert {"blocks.0.up", "blocks.1.down", "head"} <= modules


def test_validation_computes_in_8_bits_too(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "fp8", val=data())
    exp.run(epochs=1, wait=True)
    low = exp.scalars.last("val/loss")
    _modes_off(exp)
    with torch.no_grad():
        logits = exp.model.eval()(data()[0])
    plain = float(nn.functional.cross_entropy(logits, data()[1]))
    assert low[0] != pytest.approx(plain, rel=1e-6)
    assert low[0] == pytest.approx(plain, rel=0.05)
