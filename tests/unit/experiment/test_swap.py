"""Hot swap: what fits by name and shape carries over, with its optimizer state."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.events import Event, ModelSwapped


class Net(nn.Module):
    def __init__(self, classes: int = 3, extra: bool = False) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        if extra:
            self.middle = nn.Linear(8, 8)
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.body(x))
        return self.head(self.middle(h) if hasattr(self, "middle") else h)


def experiment(tmp_path: Path, model: nn.Module, optimizer: object) -> Experiment:
    data = torch.randn(64, 6), torch.arange(64) % 3
    exp = Experiment(model, data, optimizer=optimizer, batch_size=16, runs=tmp_path, device="cpu")
    exp.run(epochs=2, wait=True)
    return exp


def test_an_equal_model_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = torch.randn(64, 6), torch.arange(64) % 3
    losses: list[list[float]] = []
    for swapped in (False, True):
        torch.manual_seed(1)
        exp = Experiment(Net(), data, optimizer="adam", batch_size=16, runs=tmp_path, device="cpu")
        exp.run(steps=5, wait=True)
        if swapped:
            exp.model = Net()
        exp.run(steps=6, wait=True)
        losses.append(exp.scalars.since("train/loss", 0)[1].tolist())
        exp.close()
    assert losses[0] == losses[1]


def test_rows_say_what_became_of_every_parameter(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Net(extra=True), None)
    events: list[Event] = []
    exp.subscribe(events.append)
    old = exp.model.state_dict()
    new = Net(classes=5)
    exp.model = new
    outcome = {row.name: (row.outcome, row.old_shape, row.new_shape) for row in exp.carried}
    assert outcome["body.weight"] == ("carried", "8×6", "8×6")
    assert outcome["head.weight"] == ("reshaped", "3×8", "5×8")
    assert outcome["middle.bias"] == ("dropped", "8", "")
    assert torch.equal(new.body.weight, old["body.weight"])
    assert torch.equal(new.norm.running_mean, old["norm.running_mean"])
    assert exp.message == "step 8: new Net: 4 of 6 parameters carried over"
    assert [type(event) for event in events][:1] == [ModelSwapped]
    exp.model = Net(classes=5, extra=True)
    assert {row.name: row.outcome for row in exp.carried}["middle.weight"] == "new"
    exp.run(epochs=1, wait=True)
    exp.close()


def test_groups_settings_and_the_live_rate_carry_over(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(
        [{"params": model.body.parameters(), "lr": 0.1}, {"params": model.head.parameters()}],
        lr=0.2,
        momentum=0.9,
        nesterov=True,
    )
    exp = experiment(tmp_path, model, optimizer)
    exp.learning_rate = 0.05
    moment = optimizer.state[model.body.weight]["momentum_buffer"].clone()
    new = Net()
    exp.model = new
    assert exp.optimizer is not optimizer
    groups = exp.optimizer.param_groups
    assert [group["lr"] for group in groups] == [0.05, 0.1]
    assert all(group["nesterov"] for group in groups)
    assert torch.equal(exp.optimizer.state[new.body.weight]["momentum_buffer"], moment)
    assert new.norm.weight in set(groups[0]["params"])
    exp.close()


def test_a_swap_while_it_trains(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Net(), None)
    run = exp.run(epochs=100_000)
    new = Net(classes=4)
    exp.model = new
    while exp.model is not new:
        pass
    run.stop()
    run.wait(30)
    assert len(exp.carried) == 6
    exp.close()


def test_a_scheduler_goes_on_with_the_new_optimizer(tmp_path: Path) -> None:
    model = Net()
    data = torch.randn(64, 6), torch.arange(64) % 3
    exp = Experiment(
        model,
        data,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        runs=tmp_path,
        device="cpu",
    )
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == 0.5
    exp.model = Net()
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == 0.25
    exp.close()
