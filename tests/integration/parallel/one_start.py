"""Short trainings on two ranks, and the plain loops that judge them: many in one start of ranks."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from tests.integration.parallel.support import Net, made, prepare, rows
from tests.waiting import DEADLINE_S
from workbench.experiment import Experiment
from workbench.experiment.data.sampler import EpochSampler
from workbench.parallel.exchange.files import Folder
from workbench.parallel.exchange.stream import Follower
from workbench.parallel.launch.worker_processes import Workers
from workbench.parallel.transfer.checkpoint import load

STEPS = 15
"""An epoch has 14, of which the last has 8 samples."""
BATCH = 15


def plain_function(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels)


@dataclass(frozen=True)
class Case:
    layout: str = "ddp:2"
    model: Callable[[], nn.Module] = Net
    data: Callable[[], Any] = rows
    loss: Any = plain_function
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    batch_size: int = BATCH
    of_model: bool = False
    """Whether the loss is made of the model."""
    in_order: bool = False
    """Whether its loader does not shuffle."""
    val: Callable[[], tuple[torch.Tensor, torch.Tensor]] | None = None
    """What is validated on when an epoch ends."""


class Trained(NamedTuple):
    """What two ranks have made of a case."""

    losses: list[float]
    notes: list[str]
    draws: tuple[float, ...]
    """What the generators give next in this process: Python's, NumPy's, torch's."""
    experiment: Experiment
    validations: list[float]
    """Losses."""


class Plain(NamedTuple):
    """What a plain loop has made of it."""

    losses: list[float]
    model: nn.Module
    loss: Any
    validations: list[float]


def experiment(case: Case, runs: Path) -> Experiment:
    torch.manual_seed(0)
    model = case.model()
    loss = case.loss(model) if case.of_model else copy.deepcopy(case.loss)
    seed()
    val = None if case.val is None else case.val()
    given = {"batch_size": case.batch_size, "loss": loss, "val": val, **case.settings}
    return made(runs, lambda: model, case.data(), optimizer=plain_descent, **given)


def plain_descent(parameters: Any) -> torch.optim.Optimizer:
    """Adam would hide a gradient that is a factor too large."""
    return torch.optim.SGD(parameters, lr=0.02)


def seed() -> None:
    random.seed(5)
    np.random.seed(5)


def plain_loop(case: Case) -> Plain:
    """The same training without Workbench."""
    seed()
    torch.manual_seed(0)
    model, data = case.model(), case.data()
    loss_of = case.loss(model) if case.of_model else copy.deepcopy(case.loss)
    collate = None
    if isinstance(data, DataLoader):
        collate, data = data.collate_fn, data.dataset
    else:
        data = torch.utils.data.TensorDataset(*data)
    sampler = EpochSampler(len(data), 0, shuffle=not case.in_order)
    loader = DataLoader(
        data, case.batch_size, sampler=sampler, collate_fn=collate, generator=torch.Generator()
    )
    optimizer = plain_descent(model.parameters())
    torch.manual_seed(0)
    losses: list[float] = []
    validations: list[float] = []
    epoch = 0
    while len(losses) < STEPS:
        sampler.set_epoch(epoch)
        for batch in loader:
            inputs, labels = (
                batch if isinstance(batch, list | tuple) else (batch["x"], batch["labels"])
            )
            if len(inputs) == 1:
                continue
            optimizer.zero_grad()
            output = model(inputs)
            if not isinstance(output, torch.Tensor):
                output = output["logits"] if isinstance(output, dict) else output.logits
            loss = loss_of(output, labels.clone() if isinstance(labels, torch.Tensor) else labels)
            loss.backward()
            if clip := case.settings.get("clip_grad_norm"):
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == STEPS:  # what comes after it is drawn by no one
                break
        else:
            if case.val is not None:
                validations.append(_validated(case, model, loss_of))
        epoch += 1
    return Plain(losses, model, loss_of, validations)


@torch.no_grad()
def _validated(case: Case, model: nn.Module, loss_of: Any) -> float:
    assert case.val is not None
    inputs, labels = case.val()
    found = 0.0
    model.eval()
    for x, y in zip(inputs.split(case.batch_size), labels.split(case.batch_size), strict=True):
        found += loss_of(model(x), y).item() * len(y)
    model.train()
    return found / len(labels)


def trained(cases: dict[str, Case], root: Path) -> dict[str, Trained]:
    """Every case, trained by two ranks from the first step on, and brought back."""
    found: dict[str, Experiment] = {}
    folders: dict[str, Folder] = {}
    for number, (name, case) in enumerate(cases.items()):
        found[name] = experiment(case, root / "runs")
        found[name]._training.begin()
        found[name]._training.end()
        folders[name] = Folder(root / f"{number:02}")
        prepare(found[name], folders[name], case.layout, STEPS)
    workers = Workers(Folder(root), 2, module="tests.integration.parallel.several")
    try:
        assert workers.wait(8 * DEADLINE_S) == 0, (root / "log.txt").read_text()[-5000:]
    finally:
        workers.end()
    done: dict[str, Trained] = {}
    for name, one in found.items():
        load(one._training, folders[name].last)
        here = random.random(), float(np.random.rand()), float(torch.rand(()))
        losses, notes, validations = _reported(folders[name])
        done[name] = Trained(losses, notes, here, one, validations)
    return done


def _reported(folder: Folder) -> tuple[list[float], list[str], list[float]]:
    """Losses, notes and losses of validations."""
    scalars: dict[str, list[float]] = {"train/loss": [], "val/loss": []}
    notes: list[str] = []
    for message in Follower(folder.events).new():
        notes += message.get("notes", ())
        for name, _, values in message.get("series", ()):
            scalars.setdefault(name, []).extend(values)
    return scalars["train/loss"], notes, scalars["val/loss"]
