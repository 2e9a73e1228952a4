"""Validation by all ranks together: each evaluates its share of the batches, all have the sum.

What a model keeps in Python (a tensor of its last batch, say) is each rank's own, and the first
rank's comes home. Where that differs, the first rank's model is the one that is validated, on every
batch; the others take part, for ``fsdp`` asks them to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from workbench.experiment.data import DataError, DataSource
from workbench.experiment.validation import Tally, Validation, evaluate
from workbench.modes.layout import reshard
from workbench.parallel.batches import RankBatches
from workbench.parallel.object_state import differing
from workbench.parallel.sentences import listed

if TYPE_CHECKING:
    from workbench.experiment.training import Training


def validate_together(training: Training, source: DataSource) -> Validation:
    """`workbench.experiment.validation.validate` over `RankBatches`; the same on every rank.

    Raises:
        DataError: the source gave no batch.
        Exception: whatever the user's code raised.
    """
    tally, nobodys = Tally(training), Tally(training)
    if isinstance(source, RankBatches):
        source.is_of_first = bool(kept := _keeps_apart(training))
        if kept:
            training.note(
                f"{listed(kept, 4)} {'are' if len(kept) > 1 else 'is'} not the same on all ranks: "
                "the first rank's model, which comes home, is validated on all batches"
            )
    with training.train_mode.evaluating(training.optimizer), torch.no_grad():
        for part in source.batches(0):
            evaluate(training, part.batch, tally if part.num_samples else nobodys)
        # a layer that has merged its weights for it takes them apart as it leaves: in the shards
        reshard(training.model)
        tally.pool(_summed, _largest, _gathered)
        if tally.num_samples == 0:
            raise DataError(
                f"val gave no batch ({source.name}); give at least one, or leave val out"
            )
        return tally.result()


def _keeps_apart(training: Training) -> list[str]:
    """What the model keeps that is not the same on all ranks; every rank calls it."""
    if training.object_state is None:
        return []
    _, digests = training.object_state.changes()
    return [name for name in differing(_gathered(digests)) if name.startswith("model")]


def on_all_ranks(facts: Sequence[bool]) -> list[bool]:
    """Which of these facts hold on all ranks; every rank calls it with as many."""
    found = torch.tensor(facts, dtype=torch.int64, device="cpu")
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return [bool(one) for one in found.tolist()]


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


def _largest(number: int) -> int:
    found = torch.tensor(number, device="cpu")
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def _gathered(own: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found
