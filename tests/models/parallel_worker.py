"""One rank of a data-parallel job: trains two steps, captures the second, writes what it saw.

``python -m torch.distributed.run ... parallel_worker.py {ddp,ddp-unused,fsdp} OUT_FOLDER``
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.models.oracles import OwnerOracle, walk_depth_first


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, *, unused: bool) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 3)
        self.spare = nn.Linear(8, 3) if unused else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def distribute(kind: str) -> nn.Module:
    torch.manual_seed(0)
    model = Net(unused=kind == "ddp-unused")
    if kind.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(
            model, find_unused_parameters=kind == "ddp-unused"
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(kind: str, *, capture: bool) -> dict[str, object]:
    """Two steps; with ``capture`` the second is captured."""
    model = distribute(kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(dist.get_rank())
    losses: list[float] = []
    found: dict[str, object] = {}
    for step in range(3):
        x, y = torch.randn(4, 6), torch.randint(3, (4,))
        optimizer.zero_grad()
        if capture and step == 1:
            loss, found = captured_loss(model, x, y)
        else:
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return found | {"losses": losses}


def captured_loss(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, dict[str, object]]:
    oracle = OwnerOracle(model)
    with wb.graph(model):
        loss = F.cross_entropy(model(x), y)
    oracle.detach()
    record = wb.graph(loss, model=model).record
    leaves: dict[int, str] = {}  # named by their order: under FSDP2 they are not the parameters
    pending = [loss.grad_fn]
    seen = set(pending)
    while pending:
        node = pending.pop()
        if hasattr(node, "variable"):
            leaves[id(node.variable)] = f"leaf {len(leaves)}"
        makers = {maker for maker, _ in node.next_functions if maker is not None}
        pending += makers - seen
        seen |= makers
    expected = walk_depth_first(loss.grad_fn, leaves)
    # what a wrapper adds to every path says nothing about the model
    owner = {number: path.removeprefix("module.") for number, path in oracle.owner.items()}
    operations = [row for row, node in enumerate(record.nodes) if node.kind == "operation"]
    owners = {int(record.node_sequence[row]): record.nodes[row].module for row in operations}
    return loss, {
        "nodes": len(record.node_type),
        "expected_nodes": sum(expected.nodes.values()),
        "edges": len(record.edge_from),
        "expected_edges": sum(expected.edges.values()),
        "wrong_owners": {
            f"{record.nodes[row].type} {number}": [found, owner.get(number, "loss")]
            for row, (number, found) in zip(operations, owners.items(), strict=True)
            if found != owner.get(number, "loss")
        },
        "modules": sorted({module.path for module in record.modules}),
        "types": sorted({node.type for node in record.nodes}),
        "leaves": [[n.name, n.kind, n.module] for n in record.nodes if n.type == "AccumulateGrad"],
        "without_source": [
            record.nodes[row].type for row in operations if record.nodes[row].source is None
        ],
        "notes": list(record.notes),
        "saved_bytes": record.saved_bytes,
        "parameter_bytes": record.parameter_bytes,
    }


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group("gloo")
    plain = train(kind, capture=False)
    found = train(kind, capture=True)
    found["plain_losses"] = plain["losses"]
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(found, indent=1))
    dist.destroy_process_group()
    sys.stdout.flush()
    # gloo's threads may outlive the group, and an interpreter that ends under them aborts
    os._exit(0)


if __name__ == "__main__":
    main()
