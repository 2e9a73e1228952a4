"""What a parallel session opens to others, and models and runs that once went wrong in silence."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from tests.integration.parallel.support import Net, losses, made, rows
from tests.integration.parallel.test_experiment import ranks_of, under_way
from tests.processes import children_of
from workbench.experiment import RunError
from workbench.parallel.attach import attach
from workbench.parallel.transfer.job_pickle import PackingError
from workbench.trust import Seal


class Scaled(nn.Module):
    """A loss with a temperature that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits * self.scale, targets)


class Counting(Net):
    """Has buffers of types that gloo does not send."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int16))
        self.register_buffer("phase", torch.ones(3, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return super().forward(x)


class Experts(nn.Module):
    """Each sample goes to one of two experts; one that has none is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 2)
        self.experts = nn.ModuleList(nn.Linear(16, 5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(1)
        best = weights.argmax(1)
        out = torch.zeros(len(x), 5)
        for at, expert in enumerate(self.experts):
            mine = torch.where(best == at)[0]
            if mine.numel() == 0:
                continue
            out = out.index_add(0, mine, expert(x[mine]) * weights[mine, at, None])
        return out


class Sometimes:
    """Validation data that cannot be read the first time."""

    def __init__(self) -> None:
        self.asked = 0
        self.inputs, self.targets = rows()

    def __len__(self) -> int:
        return 16

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.asked += 1
        if self.asked == 1:
            raise OSError("not mounted yet")
        return self.inputs[at], self.targets[at]


def test_nothing_listens_but_on_loopback(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, modes="fsdp:2")
    run = under_way(experiment)
    session = max((experiment.path / "parallel").iterdir(), key=lambda path: int(path.name))
    launcher = psutil.Process(Seal.unchecked().read_json(session / "launcher.json", "")["pid"])
    processes = [launcher, *children_of(launcher)]
    assert {rank.pid for rank in ranks_of(experiment)} <= {process.pid for process in processes}
    listening = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) <= {"127.0.0.1", "::1"}
    run.stop()
    experiment.wait(120)


@pytest.mark.usefixtures("forked_ranks")
def test_parameters_beside_the_model_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    loss, model = Scaled(), Net()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    experiment = made(tmp_path, lambda: model, loss=loss, optimizer=optimizer, modes="ddp:2")
    with pytest.raises(PackingError, match="1 parameter that is not the model's"):
        experiment.run(steps=3, wait=True)
    assert not list((experiment.path / "parallel").glob("*"))
    experiment.modes = ""
    experiment.run(steps=3, wait=True)
    assert float(loss.scale) != 1.0


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8, sparse=True), nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(ids).mean(1))


@pytest.mark.usefixtures("forked_ranks")
def test_sparse_gradients_are_refused_by_fsdp_alone(tmp_path: Path) -> None:
    data = torch.randint(0, 20, (64, 7)), torch.randint(0, 5, (64,))
    experiment = made(tmp_path, Table, data, modes="fsdp:2")
    with pytest.raises(PackingError, match="words is an Embedding with sparse=True"):
        experiment.run(steps=3, wait=True)
    experiment.modes = "ddp:2"
    experiment.run(steps=3, wait=True)
    assert experiment.step_count == 3


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("layout", ["fsdp:2", "ddp:2"])
def test_buffers_of_any_type_come_back(tmp_path: Path, layout: str) -> None:
    experiment = made(tmp_path, Counting, modes=layout)
    experiment.run(steps=5, wait=True)
    assert (experiment.status, experiment.step_count) == ("finished", 5)
    assert int(experiment.model.seen) == 5


@pytest.mark.usefixtures("forked_ranks")
def test_experts_that_one_rank_leaves_out_do_not_hang(tmp_path: Path) -> None:
    given = {"batch_size": 4, "lr": 0.01}
    experiment = made(tmp_path, Experts, modes="fsdp:2", **given)
    experiment.run(steps=40, wait=True)
    stayed = made(tmp_path, Experts, **given)
    stayed.run(steps=40, wait=True)
    torch.testing.assert_close(losses(experiment), losses(stayed), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("forked_ranks")
def test_an_epoch_whose_validation_failed_in_the_kernel_is_ended_once(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, val=Sometimes())
    with pytest.raises(OSError, match="not mounted yet"):
        experiment.run(epochs=3, wait=True)
    steps = experiment.step_count
    experiment.modes = "ddp:2"
    experiment.resume()
    experiment.pause()
    experiment.wait(120)
    experiment.modes = ""
    experiment.resume().wait(120)
    assert (experiment.status, experiment.epoch) == ("finished", 3)
    assert experiment.step_count == 3 * steps, "batches were skipped"


@pytest.mark.usefixtures("forked_ranks")
def test_a_run_that_came_back_is_not_attached_to_at_an_older_state(tmp_path: Path) -> None:
    experiment = made(tmp_path, Net, modes="ddp:2")
    under_way(experiment)
    ranks_of(experiment)[1].kill()
    with pytest.raises(RunError, match="ended from outside"):
        experiment.wait(120)
    assert (experiment.path / "parallel" / "1" / "start").is_dir(), "checkpoints are kept"
    experiment.resume()
    experiment.stop()
    experiment.wait(120)
    path = experiment.path
    experiment.close()
    del experiment
    with pytest.raises(FileNotFoundError, match="is no longer on ranks"):
        attach(path)
