"""What is made, frozen or unfrozen while ranks train is so from that very step on, and later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.parallel.support import CLASSES, losses, made
from workbench.experiment import Experiment
from workbench.experiment.loop import local_steps

AWAY, BACK, END = 3, 9, 12
"""Steps after which ranks take over, it comes back, and the run ends."""

pytestmark = pytest.mark.usefixtures("forked_ranks")


class Unfreezes(nn.Module):
    """Thaws its body, or freezes it, in the forward of one step."""

    def __init__(self, at: int, *, frozen: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, CLASSES)
        self.calls, self.at = 0, at
        self.body.requires_grad_(not frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            if self.calls == self.at:
                self.body.requires_grad_(not self.body.weight.requires_grad)
        return self.head(self.body(x).relu())


def trained(
    runs: Path, modes: str, at: int, *, frozen: bool, hook: bool
) -> tuple[list[float], list[torch.Tensor], list[bool], list[str]]:
    """Losses, weights, flags and notes of a run that is on ranks for some of its steps."""

    def model() -> nn.Module:
        return Unfreezes(-1 if hook else at, frozen=frozen)

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    torch.manual_seed(0)
    net: Any = model()
    adam = optimizer(net.parameters())
    experiment = made(runs, lambda: net, optimizer=adam)
    if hook:
        updates = 0

        def flip(*_: Any) -> None:
            nonlocal updates
            updates += 1
            if updates == at - 1:
                net.body.requires_grad_(not net.body.weight.requires_grad)

        adam.register_step_post_hook(flip)
    experiment.run(steps=AWAY, wait=True)
    experiment.modes = modes
    experiment.run(steps=BACK - AWAY, wait=True)
    experiment.modes = ""
    flags = [one.requires_grad for one in net.parameters()]
    experiment.run(steps=END - BACK, wait=True)
    weights = [one.detach().clone() for one in net.parameters()]
    return losses(experiment).tolist(), weights, flags, list(experiment.notes)


@pytest.mark.parametrize(
    ("modes", "at", "frozen", "hook"),
    [
        pytest.param("ddp:2", 6, True, False, id="unfrozen by a forward under ddp"),
        pytest.param("fsdp:2", 6, True, False, id="unfrozen by a forward under fsdp"),
        pytest.param("fsdp:2", 6, False, False, id="frozen by a forward"),
        pytest.param("fsdp:2", AWAY + 1, True, False, id="by the first forward on ranks"),
        pytest.param("fsdp:2", 7, True, True, id="by a hook of the optimizer"),
        pytest.param("ddp:2", BACK + 1, False, True, id="by a hook of the last step on ranks"),
    ],
)
def test_ranks_go_by_parameters_that_change(
    tmp_path: Path, modes: str, at: int, frozen: bool, hook: bool
) -> None:
    right = trained(tmp_path / "here", "", at, frozen=frozen, hook=hook)
    found = trained(tmp_path / "there", modes, at, frozen=frozen, hook=hook)
    assert found[0] == pytest.approx(right[0], abs=2e-6)
    for mine, theirs in zip(found[1], right[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6)
    assert found[2] == right[2]
    said = [note for note in found[3] if "is computed in one process" in note]
    assert len(said) == (at <= BACK)


class TakesTurns(Unfreezes):
    """Freezes its body in one step and thaws it in the next, in all of them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.at = self.calls + 1
        return super().forward(x)


def test_ranks_that_would_do_nothing_but_start_leave_it_to_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_steps, "MOST", 2)

    def run(runs: Path, modes: str) -> Experiment:
        torch.manual_seed(0)
        experiment = made(runs, lambda: TakesTurns(0, frozen=False), modes=modes)
        experiment.run(steps=8, wait=True)
        return experiment

    alone, ranks = run(tmp_path / "here", ""), run(tmp_path / "there", "ddp:2")
    for mine, theirs in zip(ranks.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6)
    assert sum("from here on all are computed in one process" in one for one in ranks.notes) == 1
    assert ranks.modes == "ddp:2"
    assert len(list((tmp_path / "there").glob("*/parallel/*"))) == 2, "starts of ranks"
    ranks.modes = ""
    ranks.run(steps=2, wait=True)
    assert not ranks._training.local_steps.are_all


class Grows(nn.Module):
    """Makes a second head in the forward of one step, which joins the optimizer's group."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, CLASSES)
        self.more: nn.Module | None = None
        self.groups: list[dict[str, Any]] = []
        self.calls, self.at = 0, at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            if self.calls == self.at:
                with torch.random.fork_rng([]):
                    torch.manual_seed(4)
                    self.more = nn.Linear(32, CLASSES)
                self.groups[0]["params"].extend(self.more.parameters())
        h = self.body(x).relu()
        return self.head(h) if self.more is None else self.head(h) + self.more(h)


@pytest.mark.parametrize(("modes", "at"), [("ddp:2", 6), ("fsdp:2", AWAY + 1)])
def test_ranks_start_anew_with_a_layer_that_a_forward_makes(
    tmp_path: Path, modes: str, at: int
) -> None:
    def run(runs: Path, modes: str) -> tuple[list[float], list[torch.Tensor]]:
        torch.manual_seed(0)
        net: Any = Grows(at)
        adam = torch.optim.Adam(net.parameters(), lr=0.01)
        net.groups = adam.param_groups
        experiment = made(runs, lambda: net, optimizer=adam)
        experiment.run(steps=AWAY, wait=True)
        experiment.modes = modes
        experiment.run(steps=BACK - AWAY, wait=True)
        experiment.modes = ""
        experiment.run(steps=END - BACK, wait=True)
        assert net.calls == END
        return losses(experiment).tolist(), [one.detach().clone() for one in net.parameters()]

    right, found = run(tmp_path / "here", ""), run(tmp_path / "there", modes)
    assert found[0] == pytest.approx(right[0], abs=2e-6)
    assert len(found[1]) == len(right[1]) == 6
    for mine, theirs in zip(found[1], right[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6)
