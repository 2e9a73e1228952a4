"""A rank of a loop of one's own under fp16, for `tests/integration/test_modes_ranks.py`.

``python -m torch.distributed.run ... -m tests.models.modes_worker FOLDER`` writes what each rank
saw, a model laid over the ranks in each way, one after the other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn import functional as F

import workbench as wb

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
Y = torch.arange(16) % 4
OVERFLOWS = 2
"""Steps before the one in which one rank alone overflows."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.number = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return self.body(x) * self.number * factor


def laid_out(kind: str, model: Net) -> nn.Module:
    """What is to be called."""
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "flat":  # which takes no number
        model.body = FullyShardedDataParallel(model.body, device_id=torch.device("cpu"))
        return model
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return fully_shard(model, mesh=mesh, ignored_params={model.number})


def message(call: Any) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def whole(parameter: torch.Tensor) -> list[float]:
    full: Any = getattr(parameter, "full_tensor", lambda: parameter)()
    return full.detach().flatten().tolist()


def train(kind: str) -> dict[str, Any]:
    rank, model, modes = dist.get_rank(), Net(), wb.Modes("fp16")
    called = laid_out(kind, model)
    modes.prepare(called)
    optimizer = torch.optim.SGD(called.parameters(), lr=0.1)
    skipped: list[bool] = []
    refused = ""
    for number in range(4):
        optimizer.zero_grad()
        # beyond what fp16 holds, in the product with the number and on this rank alone
        factor = 6e4 if rank == 1 and number == OVERFLOWS else 1.0
        for rows in torch.arange(8).split(4):
            with modes.forward():
                loss = F.cross_entropy(called(X[rows + 8 * rank], factor), Y[rows + 8 * rank])
            modes.backward(loss / 2)
        if kind == "fsdp":  # which leaves it to its user
            dist.all_reduce(model.number.grad, dist.ReduceOp.AVG)
        refused = refused or message(optimizer.step)
        if number % 2:
            modes.unscale(optimizer)
        with modes.step(optimizer):
            nn.utils.clip_grad_norm_(model.body.parameters(), 10.0)
        skipped.append(modes.skipped)
    return {
        "skipped": skipped,
        "refused": refused,
        "weights": [number for p in model.parameters() for number in whole(p)],
    }


def alone() -> list[float]:
    """The same in one process: every step but the one that is skipped."""
    model, scaler = Net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(4):
        optimizer.zero_grad()
        for rows in torch.arange(16).split(4) if number != OVERFLOWS else ():
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(X[rows], 1.0), Y[rows])
            scaler.scale(loss / 4).backward()
        if number != OVERFLOWS:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.body.parameters(), 10.0)
            scaler.step(optimizer)
            scaler.update()
    return [number for p in model.parameters() for number in whole(p)]


def main(folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found: dict[str, Any] = {kind: train(kind) for kind in ("ddp", "fsdp")}
    found["flat"] = message(lambda: train("flat"))
    found["alone"] = alone()
    (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
