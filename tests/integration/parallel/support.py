"""Models, data and experiments that go to worker processes and come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.waiting import wait_until
from workbench.experiment import Experiment, Run
from workbench.experiment.loop.stop_condition import Plan
from workbench.modes.layout.layout import Layout
from workbench.parallel.exchange.files import Folder, Job
from workbench.parallel.exchange.stream import Message
from workbench.parallel.session.session import Session
from workbench.parallel.transfer.checkpoint import save
from workbench.parallel.transfer.job_pickle import pack
from workbench.parallel.transfer.object_state import ObjectState

DEADLINE_S = 120.0
SAMPLES, CLASSES = 203, 5  # 203 in batches of 16: the last one has 11, which two ranks cannot halve


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, blocks: int = 3, width: int = 32) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(16, width), nn.Linear(width, CLASSES)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class EarlyExit(Net):
    """Its second and third block are reached by no batch of the first ten steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        x = self.blocks[0](self.stem(x))
        if self.calls > 10:
            x = self.blocks[1](x)
        return self.head(x)


class Tokens(nn.Module):
    """A small transformer that labels every token, some of which have no label."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(ids))).transpose(1, 2)


class Meter:
    """A hook that counts its calls: in a slot, in attributes and in an array."""

    __slots__ = ("__dict__", "seen")

    def __init__(self) -> None:
        self.seen, self.total, self.rows = 0, 0.0, np.zeros(2)

    def __call__(self, *_: Any) -> None:
        self.seen += 1
        self.total += 0.5
        self.rows += 1
        self.late = "made by a call"


class Numbered(Dataset[Any]):
    def __init__(self) -> None:
        self.inputs, self.targets = rows()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, row: int) -> Any:
        return self.inputs[row], self.targets[row]


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 16, generator=generator)
    return inputs, torch.randint(0, CLASSES, (SAMPLES,), generator=generator)


def sentences() -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels ``[203, 7]``; a third of the labels do not count."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 20, (SAMPLES, 7), generator=generator)
    labels = torch.randint(0, CLASSES, (SAMPLES, 7), generator=generator)
    labels[torch.rand(SAMPLES, 7, generator=generator) < 0.33] = -100
    return ids, labels


def made(
    runs: Path, model: Callable[[], nn.Module] = Net, data: Any = None, **settings: Any
) -> Experiment:
    torch.manual_seed(0)
    given = {"batch_size": 16, "optimizer": "sgd", "device": "cpu", "runs": runs, **settings}
    return Experiment(model(), rows() if data is None else data, **given)


def prepare(experiment: Experiment, folder: Folder, layout: str, until_step: int) -> None:
    """What `Session.send` does before it starts workers."""
    training = experiment._training
    training.random.restore()
    training.detach_modes()
    training.object_state = ObjectState.of(training)
    folder.path.mkdir(parents=True)
    pack(training, folder.payload, seal=folder.seal)
    save(training, folder.start, folder.seal)
    folder.write_job(Job(str(Layout.parse(layout)), until_step, None))


def until(step: int) -> Plan:
    return Plan(until_step=step)


def losses(experiment: Experiment) -> torch.Tensor:
    return torch.from_numpy(Run(experiment).metrics["train/loss"]["value"])


def moments(experiment: Experiment) -> dict[tuple[str, str], Any]:
    """What the optimizer keeps, by name of parameter and of moment."""
    names = {parameter: name for name, parameter in experiment.model.named_parameters()}
    state = experiment.optimizer.state
    return {
        (names[p], key): value.to_dense() if getattr(value, "is_sparse", False) else value
        for p, kept in state.items()
        for key, value in kept.items()
    }


def until_reported(session: Session, kind: str, messages: list[Message]) -> Message:
    """Read until the workers report a message of this kind; all messages are added."""
    found: list[Message] = []

    def listen() -> bool:
        for message in session.news():
            messages.append(message)
            if message["type"] == kind:
                found.append(message)
                break
        return bool(found)

    wait_until(listen, f"{kind!r} of the workers that write to {session.folder.log}")
    return found[0]
