"""`torch.set_default_dtype` and `torch.set_default_device` of a cell: a plain loop's numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, StepDone

STEPS = 4


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)
    torch.set_default_device(None)


class Net(nn.Module):
    """Makes a tensor of the default type in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)) + torch.ones(5)


def rows(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 8, generator=generator, dtype=torch.float32, device="cpu")
    return inputs.to(dtype), torch.randint(0, 5, (64,), generator=generator, device="cpu")


def own_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels)


@pytest.mark.parametrize(
    ("dtype", "modes"),  # torch computes no batch norm of bfloat16 under autocast to float16
    [(torch.float64, ""), (torch.float64, "fp16"), (torch.bfloat16, "")],
)
def test_another_default_dtype_trains_as_a_plain_loop_does(
    tmp_path: Path, dtype: torch.dtype, modes: str
) -> None:
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    x, y = rows(dtype)
    model = Net()
    plain = copy.deepcopy(model)

    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=bool(modes))
    losses: list[float] = []
    for at in range(STEPS):
        part = slice(16 * at, 16 * at + 16)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=bool(modes)):
            loss = own_loss(plain(x[part]), y[part])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    plain.eval()
    right = (plain(x).argmax(1) == y).sum().item() / len(y)

    exp = Experiment(
        model,
        DataLoader(TensorDataset(x, y), 16),
        (x, y),
        loss=own_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
        modes=modes,
        clip_grad_norm=1.0,
        runs=tmp_path,
    )
    reported: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepDone):
            reported.append(event.loss.item())

    exp.subscribe(listen, every_step=True)
    run = exp.run(epochs=1, wait=True)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert reported == losses
    assert run.metrics["train/loss"]["value"].tolist() == losses
    assert run.metrics["val/accuracy"]["value"].tolist() == [right]
    exp.close()


def test_the_loss_of_a_step_is_reported_in_full_where_the_model_is_double(tmp_path: Path) -> None:
    x, y = rows(torch.float64)
    exp = Experiment(nn.Linear(8, 5).double(), (x, y), batch_size=16, runs=tmp_path, device="cpu")
    reported: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepDone):
            reported.append(event.loss.item())

    exp.subscribe(listen, every_step=True)
    run = exp.run(steps=2, wait=True)
    assert reported == run.metrics["train/loss"]["value"].tolist()
    exp.close()


@pytest.mark.parametrize("modes", ["", "bf16", "checkpoint:auto"])
def test_a_default_device_is_for_what_the_user_makes(tmp_path: Path, modes: str) -> None:
    """On ``meta`` nothing has a value: what is made without a device would be seen."""

    def trained(default: str | None) -> tuple[list[torch.Tensor], dict[str, list[float]]]:
        torch.set_default_device(None)
        torch.manual_seed(0)
        blocks = (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(2))
        model = nn.Sequential(nn.Sequential(*blocks), nn.Linear(8, 5))
        exp = Experiment(
            model,
            rows(torch.float32),
            rows(torch.float32),
            loss=own_loss,
            batch_size=16,
            modes=modes,
            clip_grad_norm=1.0,
            runs=tmp_path,
            device="cpu",
        )
        torch.set_default_device(default)
        run = exp.run(epochs=1, wait=True)
        exp.modes = "fp16"
        exp.run(steps=1, wait=True)
        metrics = {
            name: run.metrics[name]["value"].tolist() for name in ("train/loss", "val/accuracy")
        }
        exp.close()
        return list(model.parameters()), metrics

    theirs, ours = trained(None), trained("meta")
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert torch.equal(a, b)
