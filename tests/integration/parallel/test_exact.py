"""A run that was on two ranks is the run that stayed: losses, weights, moments, positions.

Ranks add up in another order than one process does, so float32 losses agree to 1e-6 and not to the
bit. SGD is among the optimizers because Adam hides a gradient that is a factor too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from tests.integration.parallel.support import (
    CLASSES,
    EarlyExit,
    Net,
    Numbered,
    Tokens,
    losses,
    made,
    moments,
    prepare,
    rows,
    sentences,
)
from workbench.experiment import Experiment, Run
from workbench.parallel.exchange.files import Folder
from workbench.parallel.launch.worker_processes import Workers
from workbench.parallel.transfer.checkpoint import load

BEFORE, AWAY, AFTER = 5, 25, 35


@dataclass(frozen=True)
class Case:
    layout: str
    model: Callable[[], nn.Module] = Net
    data: Callable[[], Any] = rows
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def experiment(self, runs: Path) -> Experiment:
        return made(runs, self.model, self.data(), **self.settings)


def one_cycle(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=60)


def at_once(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=True)


def fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, fused=True)


def shuffled() -> DataLoader[Any]:
    return DataLoader(Numbered(), batch_size=16, shuffle=True)


def nine() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = rows()
    return inputs[:10], targets[:10]


class Learned(Net):
    """Has numbers for parameters: a temperature, and one that no step reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.spare = (nn.Parameter(torch.tensor(value)) for value in (1.0, 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.temperature


class Aside(Net):
    """Holds a weight in a list too, so that every rank keeps it whole."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [self.head.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 0.01 * self.held[0].sum()


class Normed(Net):
    """Computes weights of other parameters in every step."""

    def __init__(self) -> None:
        super().__init__()
        parametrizations.weight_norm(self.stem)
        for block in self.blocks:
            parametrizations.spectral_norm(block.up)


class Bags(nn.Module):
    """Its table has sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(20, 16, sparse=True), nn.Linear(16, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids))


def bags() -> tuple[torch.Tensor, torch.Tensor]:
    return sentences()[0], rows()[1]


CASES = {
    "ddp, SGD": Case("ddp:2"),
    "fsdp, SGD, validated": Case("fsdp:2", settings={"val": nine()}),
    "fsdp, AdamW, clipped, a rate that changes": Case(
        "fsdp:2", settings={"optimizer": "adamw", "clip_grad_norm": 0.5, "scheduler": one_cycle}
    ),
    "hsdp of two replicas": Case("fsdp:2,hsdp=2", settings={"optimizer": "adamw"}),
    "fsdp, blocks stay whole, a DataLoader": Case(
        "fsdp:2,keep", data=shuffled, settings={"optimizer": "adamw"}
    ),
    "ddp, parameters no step has reached": Case(
        "ddp:2", EarlyExit, settings={"optimizer": "adamw"}
    ),
    # the keys' bias has no gradient but rounding, of which Adam makes steps as large as any
    "fsdp, tokens without a label": Case("fsdp:2", Tokens, sentences),
    "ddp, weighted classes, a batch of one": Case(
        "ddp:2",
        data=nine,
        settings={
            "batch_size": 3,
            "loss": nn.CrossEntropyLoss(weight=torch.arange(1.0, CLASSES + 1)),
        },
    ),
    "fsdp, a sum for a loss": Case(
        "fsdp:2", settings={"loss": nn.CrossEntropyLoss(reduction="sum"), "lr": 1e-3}
    ),
    "fsdp, a learned temperature, clipped": Case(
        "fsdp:2", Learned, settings={"optimizer": "adamw", "clip_grad_norm": 0.5}
    ),
    # an update of many at once, torch's default on a GPU, takes no list of shards and others
    "fsdp, a whole weight, all updated at once": Case(
        "fsdp:2", Aside, settings={"optimizer": at_once}
    ),
    "fsdp, a whole weight, a fused update": Case("fsdp:2", Aside, settings={"optimizer": fused}),
    "ddp, sparse gradients": Case("ddp:2", Bags, bags),
    "fsdp, weights that are computed": Case("fsdp:2", Normed),
    "fsdp, checkpointed": Case("fsdp:2", settings={"modes": "checkpoint"}),
}


@pytest.fixture(scope="module")
def returned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Experiment]:
    """Every case, brought back after steps 6 to 25 on two ranks, and ten more steps here."""
    root = tmp_path_factory.mktemp("remote")
    found: dict[str, Experiment] = {}
    folders: dict[str, Folder] = {}
    for number, (name, case) in enumerate(CASES.items()):
        found[name] = case.experiment(root / "runs")
        found[name].run(steps=BEFORE, wait=True)
        folders[name] = Folder(root / f"{number:02}")
        prepare(found[name], folders[name], case.layout, AWAY)
    workers = Workers(Folder(root), 2, module="tests.integration.parallel.several")
    try:
        assert workers.wait(240) == 0, (root / "log.txt").read_text()[-5000:]
    finally:
        workers.end()
    for name, experiment in found.items():
        training = experiment._training
        load(training, folders[name].last)
        training.random.save()
        experiment.run(steps=AFTER - AWAY, wait=True)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_was_remote_is_the_run_that_stayed(
    name: str, returned: dict[str, Experiment], tmp_path: Path
) -> None:
    back, stayed = returned[name], CASES[name].experiment(tmp_path)
    stayed.run(steps=AFTER, wait=True)
    assert back.step_count == stayed.step_count == AFTER
    mine, theirs = losses(back), losses(stayed)
    remote = torch.cat([mine[:BEFORE], mine[-(AFTER - AWAY) :]])  # what ranks reported is not here
    here = torch.cat([theirs[:BEFORE], theirs[-(AFTER - AWAY) :]])
    torch.testing.assert_close(remote, here, rtol=1e-6, atol=0)
    for (path, ours), plain in zip(
        back.model.named_parameters(), stayed.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6, msg=path)
    assert dict(back.model.named_buffers()).keys() == dict(stayed.model.named_buffers()).keys()
    torch.testing.assert_close(moments(back), moments(stayed), rtol=1e-4, atol=1e-6)
    assert back.learning_rate == stayed.learning_rate
    ours, plain = back._training, stayed._training
    assert ours.cursor.position() == plain.cursor.position()
    assert torch.equal(ours.random._states[0], plain.random._states[0])


def test_validation_is_that_of_a_single_process(
    returned: dict[str, Experiment], tmp_path: Path
) -> None:
    stayed = CASES["fsdp, SGD, validated"].experiment(tmp_path)
    stayed.run(steps=AFTER, wait=True)
    last = [
        Run(one).metrics["val/loss"]["value"][-1]
        for one in (stayed, returned["fsdp, SGD, validated"])
    ]
    assert last[0] == pytest.approx(last[1], rel=1e-6)
