"""Hooks and settings of the user's hold on ranks, and what hooks keep comes back."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.integration.parallel.support import Net, losses, made, rows
from workbench.experiment import Experiment

STEPS = 6

pytestmark = pytest.mark.usefixtures("forked_ranks")


class Told(Net):
    """Its buffer has what a rank's process goes by; ``scale`` is an attribute of a parameter."""

    def __init__(self) -> None:
        super().__init__(1)
        self.register_buffer("facts", torch.zeros(8))
        self.head.weight.scale = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.facts.copy_(_facts())
        return super().forward(x) * self.head.weight.scale


def _facts() -> torch.Tensor:
    return torch.tensor(
        [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            {"highest": 0, "high": 1, "medium": 2}[torch.get_float32_matmul_precision()],
            torch.is_anomaly_enabled(),
            torch.get_num_threads(),
            float(os.environ.get("SET_IN_A_CELL", "0")),
            torch.backends.mha.get_fastpath_enabled(),
            torch.is_autocast_enabled("cpu"),
        ],
        dtype=torch.float32,
    )


@pytest.fixture
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SET_IN_A_CELL", "7")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("high")
    torch.autograd.set_detect_anomaly(True)
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.autograd.set_detect_anomaly(False)
    torch.backends.mha.set_fastpath_enabled(True)


class Hooked:
    """A training with hooks of every kind, as a plain loop or as an experiment."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Told()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.average = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
        )
        self.norms: list[float] = []
        self.stepped = 0
        model, average = self.model, self.average
        mask = torch.ones(5, 32)
        mask[0] = 0
        model.head.weight.register_hook(lambda gradient: gradient * mask)
        # neither linear: of a rank's rows they give another gradient than of the whole batch
        model.stem.weight.register_hook(lambda gradient: gradient.clamp(-0.002, 0.002))
        model.stem.bias.register_hook(lambda gradient: gradient / (gradient.norm() + 1e-3))

        def by_hand(parameter: nn.Parameter) -> None:
            """A step in backward, with decay by the parameter's own size."""
            assert parameter.grad is not None
            parameter.data.sub_(parameter.grad, alpha=0.1 / (1 + float(parameter.norm())))
            parameter.grad = None
            self.norms.append(float(parameter.norm()))

        model.head.bias.register_post_accumulate_grad_hook(by_hand)

        def after(*_: Any) -> None:
            self.stepped += 1
            average.update_parameters(model)

        self.optimizer.register_step_post_hook(after)

    def weights(self) -> torch.Tensor:
        modules = (self.model, self.average)
        return torch.cat([p.detach().flatten() for one in modules for p in one.parameters()])


def plain() -> Hooked:
    """The judge: a plain loop over the same batches."""
    hooked = Hooked()
    inputs, targets = rows()
    for at in range(0, 16 * STEPS, 16):
        hooked.optimizer.zero_grad()
        F.cross_entropy(hooked.model(inputs[at : at + 16]), targets[at : at + 16]).backward()
        hooked.optimizer.step()
    return hooked


@pytest.mark.usefixtures("_settings")
@pytest.mark.parametrize("layout", ["ddp:2", "fsdp:2"])
def test_hooks_and_settings_hold_as_in_one_process(layout: str, tmp_path: Path) -> None:
    wanted, hooked = plain(), Hooked()
    experiment = Experiment(
        hooked.model,
        rows(),
        optimizer=hooked.optimizer,
        batch_size=16,
        shuffle=False,
        device="cpu",
        runs=tmp_path / "runs",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for modes, steps in (("", 1), (layout, STEPS - 2), ("", 1)):
            experiment.modes = modes
            experiment.run(steps=steps, wait=True)
            if modes:
                facts = hooked.model.facts.tolist()
    assert facts == [1, 1, 1, 1, 1, 7, 0, 0]
    assert torch.allclose(hooked.weights(), wanted.weights(), atol=1e-6)
    assert int(hooked.average.n_averaged) == hooked.stepped == STEPS
    assert hooked.norms == pytest.approx(wanted.norms, abs=1e-6)
    assert len(losses(experiment)) == STEPS
    experiment.close()


class Apart:
    """A hook that goes by the rank it is on."""

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (1 + int(os.environ.get("RANK", "0")))


def test_a_hook_by_which_ranks_would_diverge_is_reported(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs")
    experiment.model.head.weight.register_hook(Apart())
    experiment.modes = "ddp:2"
    with pytest.raises(Exception, match=r"a hook on head\.weight has made something else of the"):
        experiment.run(steps=2, wait=True)
    experiment.close()
