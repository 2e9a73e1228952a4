"""Validation by all ranks together: each evaluates its share of the batches, all get the sum.

This holds where batches leave no trace. But a model may change by what it evaluates (a count of
calls, a centre that follows each batch, a list), and after a share of the batches it would not be
what one process has: neither the model that comes back, nor the one that is trained further.
Nothing is assumed about a model from its names. So the first batch that a rank validates is
evaluated once before as a check: everything that the training keeps is compared with what it was,
and the batch is undone. Where anything has changed on any rank, or random numbers were drawn, every
rank evaluates all batches, as one process does, and replicas stay the same. What changes only with
a later batch is detected at the end: that is too late for this validation, and a note says so.

Two kinds of models are validated by every rank in any case: those whose steps cannot be divided
(`workbench.parallel.checks.batch_sums`), and those that keep something in Python that is not the
same on all ranks (a tensor of its last batch, say). Of these the first rank's model counts, which
is the one that comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.distributed as dist

from workbench.experiment.data.data import DataError, DataSource, copied
from workbench.experiment.loop.step_undo import forward_undone
from workbench.experiment.loop.validation import Tally, Validation, evaluate
from workbench.experiment.state.host_random import HostRandom
from workbench.experiment.state.rng import TorchState
from workbench.modes.layout.layout import reshard
from workbench.parallel.checks.batch_sums import ParameterValues
from workbench.parallel.checks.replicas import Checksum, checksums, of_all_ranks
from workbench.parallel.data.rank_batches import Part, RankBatches
from workbench.parallel.sentences import listed
from workbench.parallel.transfer.object_state import differing

if TYPE_CHECKING:
    from workbench.experiment.training import Training


def validate_together(training: Training, source: DataSource) -> Validation:
    """Run `workbench.experiment.loop.validation.validate` on `RankBatches`; the same on all ranks.

    Raises:
        DataError: the source yielded no batch.
        Exception: whatever the user's code raised.
    """
    batches = cast("RankBatches", source)
    tally, nobodys = Tally(training), Tally(training)
    with training.train_mode.evaluating(training.optimizer), torch.no_grad():
        parts, before = _begun(training, batches)
        for part in parts:
            counts = part.num_samples or batches.is_undivided
            evaluate(training, part.batch, tally if counts else nobodys)
        # a layer that merged its weights for evaluation splits them after it: in the shards
        reshard(training.model)
        if not batches.is_undivided:
            tally.pool(_summed, _largest, of_all_ranks)
        if tally.num_samples == 0:
            raise DataError(
                f"val gave no batch ({source.name}); give at least one, or leave val out"
            )
        found = tally.result()
        if before is None:
            return _first_ranks(found)
        if changed := before.changed(training):
            batches.undivided()
            training.note(f"{_changes(changed)}, and did not with the first one: {_TOO_LATE}")
        return found


def _begun(training: Training, source: RankBatches) -> tuple[Iterable[Part], _Kept | None]:
    """Return what this rank evaluates, and, for a share of the batches, what was kept before."""
    if source.is_undivided or dist.get_world_size() == 1:
        return source.batches(0), None
    before = _Kept.of(training)
    apart = [name for name in differing(of_all_ranks(before.objects)) if name.startswith("model")]
    if training.undivided or apart:
        source.undivided()
        if apart:
            training.note(
                f"{listed(apart, 4)} {'are' if len(apart) > 1 else 'is'} not the same on all "
                "ranks: the first rank's model, which comes back, is validated on all batches"
            )
        return source.batches(0), None
    generators = source.drawn_from.state()
    parts = source.batches(0)
    if source.leaves_no_trace:
        return parts, before
    first = next(parts, None)
    if changed := _changed_by(training, first, before):
        source.undivided()
        training.note(f"{_changes(changed)}: {_ALL}")
        source.drawn_from.go_to(generators)
        return source.batches(0), None
    source.leaves_no_trace = True
    return chain([] if first is None else [first], parts), before


def _changed_by(training: Training, part: Part | None, before: _Kept) -> list[str]:
    """Return what evaluating this rank's part changes, on any rank; it is undone."""
    objects: Any = training.object_state
    weights = ParameterValues(training.model)
    generators = TorchState(training.device), HostRandom()
    for one in generators:
        one.save()
    try:
        with nullcontext() if objects is None else objects.undone(), forward_undone(training):
            if part is not None:
                evaluate(training, copied(part.batch), Tally(training))
            drew = any(one.moved() for one in generators)
            changed = before.changed(training, [_GENERATORS] if drew else [])
    finally:
        weights.restore()
        for one in generators:
            one.restore()
    if changed and (stays := before.changed(training)):
        training.note(
            f"{listed(stays, 4)} could not be put back after a batch was looked at before the "
            "first validation: it has seen one batch more than in one process"
        )
    return changed


class _Kept(NamedTuple):
    """What a training keeps at one moment, for comparison."""

    objects: dict[str, bytes]
    """A digest of what its objects hold differently than when ranks began, by the path to it."""
    tensors: dict[str, Checksum]
    """Checksums of parameters and buffers."""

    @classmethod
    def of(cls, training: Training) -> _Kept:
        model = training.model
        reshard(model)
        objects: Any = training.object_state
        digests = {} if objects is None else objects.changes()[1]
        tensors = (*model.named_parameters(), *model.named_buffers())
        return cls(digests, checksums((f"model.{name}", one) for name, one in tensors))

    def changed(self, training: Training, beside: Iterable[str] = ()) -> list[str]:
        """Return what is no longer the same, on any rank; every rank must call it.

        Args:
            training: the training of this rank.
            beside: what else has changed on it.
        """
        now = _Kept.of(training)
        own = [name for pair in zip(self, now, strict=True) for name in differing(pair)]
        own += beside
        return list(dict.fromkeys(chain.from_iterable(of_all_ranks(own))))


_GENERATORS = "the state of a generator of random numbers"
_ALL = (
    "every rank validates on all batches, as one process does, and validations get no faster by "
    "ranks"
)
_TOO_LATE = (
    "ranks had a share of the batches each, so it is not what one process has. From the next "
    f"validation on {_ALL}"
)


def _changes(names: Sequence[str]) -> str:
    verb = "change" if len(names) > 1 else "changes"
    return f"{listed(names, 4)} {verb} while batches are validated"


def on_all_ranks(facts: Sequence[bool]) -> list[bool]:
    """Return which of these facts hold on all ranks; every rank must call it with as many."""
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


def _first_ranks(found: Validation) -> Validation:
    """Return what the first rank has found."""
    shared = [found]
    dist.broadcast_object_list(shared, 0)
    return shared[0]
