"""What DDP and FSDP2 keep of a model, in one process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from workbench.torch_private import distributed


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    if before is None:
        del os.environ["GLOO_SOCKET_IFNAME"]


def test_a_plain_model_has_nothing_of_either() -> None:
    model = nn.Linear(2, 1)
    assert distributed.sharded_together(model) == []
    assert list(distributed.sharded_parameters(model)) == []
    assert distributed.gathered_parameters(model) == {}


def test_ddp_leaves_out_what_it_is_told_and_logs_its_buckets(one_rank: None) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    distributed.ignore_in_ddp(model, ["1.num_batches_tracked"])
    ddp = nn.parallel.DistributedDataParallel(model)
    assert "1.num_batches_tracked" in ddp.parameters_to_ignore
    ddp(torch.randn(4, 2)).sum().backward()
    figures = distributed.ddp_figures(ddp)
    total = sum(one.nbytes for one in model.parameters())
    assert sum(map(int, str(figures["bucket_sizes"]).split(","))) == total


def test_fsdp_keeps_shards_and_what_it_gathers(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    fully_shard(model[0], mesh=init_device_mesh("cpu", (1,)), reshard_after_forward=False)
    assert len(distributed.sharded_together(model[0])) == 2
    assert distributed.sharded_together(model) == []
    assert len(list(distributed.sharded_parameters(model))) == 2
    model(torch.randn(4, 2))
    gathered = distributed.gathered_parameters(model)
    assert {tuple(one.shape) for one in gathered.values()} == {(3, 2), (3,)}
