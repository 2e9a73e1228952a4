"""Changes that may let a run fit, before any of them is tried, from the cheapest to the costliest.

Settings of the allocator cost nothing. Computing the update parameter by parameter costs a little
time. bf16 rounds. Checkpointing takes one more forward and changes no number. A smaller batch is a
different training run, and so the last resort. (What is chosen already, or has no effect on this
model, is not a candidate.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.allocator.simulator.settings import MIB
from workbench.experiment.failure.changes import Change
from workbench.memory.simulated_gpu.simulated_gpu import SimulatedGpu
from workbench.memory.simulation.rerun import Rerun
from workbench.modes.activation_checkpointing import containers
from workbench.modes.core.model_blocks import find_blocks
from workbench.records import CATEGORIES, MemoryRecord

if TYPE_CHECKING:
    from torch import nn

    from workbench.experiment.training import Training

KINDS = ("settings", "foreach", "precision", "checkpoint", "batch")
"""From the cheapest."""
SPLITS_MB = (512, 256, 128, 64, 32, 20)
"""Sizes that are tried as the size from which a block is never split."""
_MOST_CONTAINERS = 2


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A change that may help."""

    kind: str
    """One of `KINDS`."""
    name: str
    change: Change
    cost: str
    """The cost, in a sentence."""
    is_hopeless: bool = False
    """Whether a replay of the failed step with the change is refused a request as well."""


def candidates(training: Training, record: MemoryRecord) -> list[Candidate]:
    """Return all but a smaller batch: the cheapest first, and within a kind what changes least."""
    found = [*_settings(training, record)]
    if not training.validating:
        found += _foreach(training)
    found += _precision(training)
    if not training.validating:
        found += _checkpoints(training, record)
    return found


def _settings(training: Training, record: MemoryRecord) -> list[Candidate]:
    gpu = training.gpu
    if not isinstance(gpu, SimulatedGpu):
        return []
    found: list[Candidate] = []
    rerun = Rerun(record)
    if not gpu.limit.settings.expandable_segments:
        found.append(_setting(gpu, rerun, "expandable_segments:True"))
    if gpu.limit.settings.max_split_size is None:
        usable = gpu.limit.gpu.usable_bytes
        splits = [size for size in SPLITS_MB if size * MIB < usable]
        tried = [_setting(gpu, rerun, f"max_split_size_mb:{size}") for size in splits]
        found += [one for one in tried if not one.is_hopeless][:1] or tried[-1:]
    return found


def _setting(gpu: SimulatedGpu, rerun: Rerun, words: str) -> Candidate:
    limit = gpu.limit.with_settings(words)
    outcomes, _ = rerun.outcomes(limit.settings, limit.gpu)
    return Candidate(
        kind="settings",
        name=words,
        change=Change(gpu=str(limit)),
        cost="Nothing. On a GPU it is PYTORCH_CUDA_ALLOC_CONF, set before torch is imported.",
        is_hopeless=not any(outcome.fits for outcome in outcomes),
    )


def _foreach(training: Training) -> list[Candidate]:
    groups = training.optimizer.param_groups
    on_gpu = training.device.type == "cuda"
    free = on_gpu and type(training.optimizer).__module__.startswith("torch.optim.")
    if not any(
        group.get("foreach")
        or (free and "foreach" in group and group["foreach"] is None and not group.get("fused"))
        for group in groups
    ):
        return []
    return [
        Candidate(
            kind="foreach",
            name="foreach off",
            change=Change(foreach=False),
            cost="A little time in every update: parameter by parameter, the same numbers.",
        )
    ]


def _precision(training: Training) -> list[Candidate]:
    modeset = training.modeset
    if modeset["precision"].value != "fp32":
        return []
    changed = modeset.with_value("precision", "bf16")
    if changed.unavailable():
        return []
    return [
        Candidate(
            kind="precision",
            name="bf16",
            change=Change(modes=str(changed)),
            cost="Rounding: products and convolutions keep 8 bits of every number.",
        )
    ]


def _checkpoints(training: Training, record: MemoryRecord) -> list[Candidate]:
    modeset, model = training.modeset, training.model
    now = modeset["checkpoint"].value
    if now == "auto":
        return []
    paths = [] if now != "off" else heaviest(model, record)[:_MOST_CONTAINERS]
    if len(find_blocks(model)) > 0 and (len(containers(model)) != 1 or not paths):
        paths.append("auto")
    found: list[Candidate] = []
    for path in paths:
        changed = modeset.with_value("checkpoint", path)
        if changed.unavailable() or changed.refusal(model):
            continue
        what = "all blocks" if path == "auto" else path
        found.append(
            Candidate(
                kind="checkpoint",
                name=f"checkpoint {what}",
                change=Change(modes=str(changed)),
                cost=f"Time: one more forward of {what} in every step, the same numbers.",
            )
        )
    return found


def heaviest(model: nn.Module, record: MemoryRecord) -> list[str]:
    """Return paths of containers of blocks, the one with most activations at the refusal first."""
    found = [(_activations_under(record, path), path) for path, _ in containers(model)]
    return [path for held, path in sorted(found, reverse=True) if held]


def _activations_under(record: MemoryRecord, path: str) -> int:
    """Return the bytes of activations of ``path`` that were live when the request was refused."""
    inside = [
        row
        for row, name in enumerate(record.strings)
        if name == path or name.startswith(f"{path}.")
    ]
    rows = np.isin(record.block_module, inside) & (record.block_end < 0)
    rows &= record.block_category == CATEGORIES.index("activations")
    return int(record.block_bytes[rows].sum())
