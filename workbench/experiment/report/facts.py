"""Description of what will run, in a few labelled lines; and the content of ``run.json``."""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Any

import torch

import workbench
from workbench.experiment.recipe.optimizers import describe_optimizer
from workbench.records import Fact
from workbench.records.source import shell

if TYPE_CHECKING:
    from workbench.experiment.runtime.runner import Runner
    from workbench.experiment.training import Training

_MOST_CELL_CHARACTERS = 500_000


def model_facts(training: Training) -> tuple[str, str]:
    """``EarlyExitCNN, 8.88 M parameters`` and ``102 MiB before the first batch``."""
    parameters = list(training.model.parameters())
    count = sum(p.numel() for p in parameters)
    held = sum(t.nbytes for t in (*parameters, *training.model.buffers()))
    name = type(training.model).__name__
    return f"{name}, {amount(count)} parameters", f"{_binary(held)} before the first batch"


def facts(training: Training, model: str, memory: str) -> tuple[Fact, ...]:
    """The rows of "What will run"."""
    rows = {
        "Model": model,
        "Data": _data(training),
        "Steps": _steps(training),
        "Loss": _loss(training),
        "Optimizer": describe_optimizer(training.optimizer),
        "Memory": memory,
    }
    if schedule := training.schedule.describe():
        rows["Schedule"] = schedule
    if order := training.cursor.source.order:
        rows["Order"] = order
    if training.scaler is not None:
        rows["Gradient scale"] = str(training.scaler)
    if training.gpu is not None:
        rows["Card"] = f"simulated: {training.gpu.limit}; exp.card = None ends it"
    return tuple(Fact(label=label, value=value) for label, value in rows.items())


def amount(count: int) -> str:
    """``8.88 M``: a count in three digits."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def run_facts(runner: Runner, created_at: float) -> dict[str, Any]:
    """Return the content of ``run.json``; ``created_at``: creation of the experiment, Unix time."""
    training = runner.training
    return {
        "name": training.name,
        "status": training.board.status,
        "model": type(training.model).__name__,
        "modes": training.modes,
        "step": training.step_count,
        "epoch": runner.epoch,
        "best_accuracy": training.best_accuracy,
        "seed": training.seed,
        "card": None if training.gpu is None else str(training.gpu.limit),
        "versions": versions(),
        "process": {"host": platform.node(), "pid": os.getpid()},
        "created_at": created_at,
        "updated_at": time.time(),
        "cells": cells(),
    }


def versions() -> dict[str, str]:
    """Versions of the software that it ran with."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "workbench": workbench.__version__,
    }


def cells() -> list[str]:
    """Sources of the notebook cells run so far in this kernel, the newest if there are many."""
    here = shell()
    found = [] if here is None else [str(cell) for cell in here.user_ns.get("In", [])[1:]]
    kept: list[str] = []
    room = _MOST_CELL_CHARACTERS
    for cell in reversed(found):
        room -= len(cell)
        if room < 0:
            break
        kept.append(cell)
    return kept[::-1]


def _data(training: Training) -> str:
    train, val = training.cursor.source, training.val
    parts = [f"{_count(train.num_samples)} train"]
    if val is not None:
        parts.append(f"{_count(val.num_samples)} val")
    return ", ".join([train.name, *parts])


def _steps(training: Training) -> str:
    per_epoch = training.cursor.steps_per_epoch
    steps = f"{_count(per_epoch)} per epoch" if per_epoch else "as many as the loader gives"
    size = training.cursor.source.batch_size
    return f"{steps}, batch {size}" if size else steps


def _loss(training: Training) -> str:
    loss = training.loss
    if loss.function is None:
        return "the one that fits the first batch"
    return f"{loss.name}, the sum of a batch" if loss.sums else loss.name


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _binary(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= 0.9765 * size:  # 1,000 of the unit below
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
