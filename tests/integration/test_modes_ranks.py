"""fp16 in a loop of one's own whose model lies over ranks: gloo, two ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.integration.ranks import seen_by_ranks

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this build of torch has no torch.distributed"
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every rank saw."""
    folder = tmp_path_factory.mktemp("ranks")
    return seen_by_ranks(2, "tests.models.modes_worker", folder=folder)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_skip_together_and_train_as_one_process(
    ranks: list[dict[str, Any]], kind: str
) -> None:
    for rank in ranks:
        assert rank[kind]["skipped"] == [False, False, True, False]
        assert rank[kind]["weights"] == ranks[0][kind]["weights"]
        assert rank[kind]["weights"] == pytest.approx(rank["alone"], abs=1e-4)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_takes_no_step_on_scaled_gradients(ranks: list[dict[str, Any]], kind: str) -> None:
    for rank in ranks:
        assert rank[kind]["refused"].startswith("SGD.step() was given gradients that are multiplie")


def test_where_an_overflow_is_not_seen_by_all_ranks_fp16_is_refused(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        assert "ranks would skip different updates; shard the model by torch" in rank["flat"]
