"""Captures inside real data-parallel jobs: DDP and FSDP2 over gloo, on one rank and on two."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from tests.integration.ranks import seen_by_ranks

MODULES = {
    *("", "stem", "blocks", "head", "loss"),
    *(f"blocks.{block}" for block in (0, 1)),
    *(f"blocks.{block}.{part}" for block in (0, 1) for part in ("norm", "up", "down")),
}
LEAVES = {
    f"{module}.{tensor}"
    for module in ("stem", "head", *(path for path in MODULES if path.count(".") == 2))
    for tensor in ("weight", "bias")
}
OF_FSDP = {"RegisterPostBackwardFunctionBackward"}
"""What FSDP puts at the entrance of a block it shards; either module around it will do."""

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this build of torch has no torch.distributed"
)
wrapped = pytest.mark.parametrize("num_ranks", [1, 2])


@lru_cache
def run(kind: str, num_ranks: int) -> list[dict[str, Any]]:
    """What every rank saw."""
    with TemporaryDirectory() as folder:
        return seen_by_ranks(num_ranks, "tests.models.parallel_worker", kind, folder=Path(folder))


def check(found: dict[str, Any]) -> None:
    assert found["losses"] == found["plain_losses"]
    assert found["nodes"] == found["expected_nodes"]
    assert found["edges"] == found["expected_edges"]
    assert set(found["modules"]) == MODULES
    assert found["without_source"] == []
    assert found["notes"] == []
    assert {node.split()[0] for node in found["wrong_owners"]} <= OF_FSDP


@wrapped
@pytest.mark.parametrize("kind", ["ddp", "ddp-unused"])
def test_ddp_goes_by_the_models_own_names(kind: str, num_ranks: int) -> None:
    ranks = run(kind, num_ranks)
    assert len(ranks) == num_ranks
    for found in ranks:
        check(found)
        assert found["wrong_owners"] == {}
        assert {name for name, *_ in found["leaves"]} == LEAVES
        assert ("_DDPSinkBackward" in found["types"]) == (kind == "ddp-unused")


@wrapped
def test_fsdp_goes_by_the_models_own_names(num_ranks: int) -> None:
    for found in run("fsdp", num_ranks):
        check(found)
        places = {(kind, module) for _, kind, module in found["leaves"]}
        assert places == {("parameter", name.rpartition(".")[0]) for name in LEAVES}


@wrapped
def test_fsdps_gathered_parameters_keep_their_names(num_ranks: int) -> None:
    for found in run("fsdp", num_ranks):
        assert {name for name, *_ in found["leaves"]} == LEAVES
