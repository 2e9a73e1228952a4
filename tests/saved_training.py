"""What a training is at a moment: copied from the live one, or read from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from workbench.experiment.checkpoint import folder as checkpoints
from workbench.experiment.training import Training


def snapshot(training: Training) -> dict[str, Any]:
    """Everything that a step may change, copied."""
    scheduler: Any = training.schedule.scheduler
    state = {
        "model": training.model.state_dict(),
        "loss": None if training.loss.module is None else training.loss.module.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "scheduler": scheduler.state_dict() if hasattr(scheduler, "state_dict") else None,
        "modes": {"text": training.modes, "state": training.modeset.state_dict()},
        "step": training.step_count,
        "epoch": training.cursor.epoch,
        "batch": training.cursor.index,
        "samples": training.cursor.samples_seen,
        "torch_rng": torch.get_rng_state(),
    }
    return cast("dict[str, Any]", _copied(state))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        items = [_copied(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value


def last_checkpoint(run: Path) -> dict[str, Any]:
    """The newest checkpoint of a run: its tensors by name, and the rest."""
    (newest, *_) = checkpoints.found_in(run / "checkpoints")
    tensors = {
        name: torch.empty(entry.size, dtype=entry.dtype) for name, entry in newest.table.items()
    }
    newest.load(tensors)
    return {"tensors": tensors, **newest.read()}


def part(found: dict[str, Any], name: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint below a name: ``model``, ``loss``, ``evaluated``."""
    prefix = f"{name}."
    return {
        full.removeprefix(prefix): tensor
        for full, tensor in found["tensors"].items()
        if full.startswith(prefix)
    }
