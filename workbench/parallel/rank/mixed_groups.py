"""An optimizer's parameter groups while it steps: shards in some, whole parameters in others.

Under ``fsdp`` some parameters stay whole on every rank (`workbench.parallel.checks.parameter_use`).
Most optimizers of torch process all parameters of a group in one call where they can (``foreach``,
the default on a GPU, and ``fused``), and torch accepts no list in which one tensor is sharded over
ranks and another is not. The update of a parameter does not depend on which others are in its
group, so a group of both kinds is split in two for the time of a step.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor


@contextmanager
def kinds_apart(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Split each group of ``optimizer`` that has both shards and whole parameters, while inside.

    What a step writes into a group (a count, an average) is in the group afterwards.
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    parts = [_parts(group) for group in groups]
    if all(len(those) == 1 for those in parts):
        yield
        return
    optimizer.param_groups = [part for those in parts for part in those]
    try:
        yield
    finally:
        optimizer.param_groups = groups
        for group, those in zip(groups, parts, strict=True):
            if len(those) > 1:
                group.update({**those[0], "params": group["params"]})


def _parts(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return ``group`` itself if its parameters are of one kind; else two with its settings."""
    shards = [one for one in group["params"] if isinstance(one, DTensor)]
    whole = [one for one in group["params"] if not isinstance(one, DTensor)]
    if not (shards and whole):
        return [group]
    return [{**group, "params": shards}, {**group, "params": whole}]
