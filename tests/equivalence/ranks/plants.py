"""Faults that ranks are given: each is called in a rank's process before its program begins.

`tests.equivalence.ranks.fork_server.PLANT` names one. They are faults that trainers over ranks are
known to have had, put where this one guards against them.
"""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.experiment.training import Training
from workbench.experiment.validation import Tally
from workbench.parallel import batches, payload, rank, step
from workbench.parallel.rank import Rank
from workbench.parallel.step import RankGuard


def _nothing(*_arguments: Any, **_options: Any) -> None:
    pass


def means_are_averaged() -> None:
    """Every rank counts alike, however many samples or labels it has."""
    step.averaged_over = lambda *_arguments: 1.0


def gradients_are_summed() -> None:
    """Twice as large on two ranks (pytorch#162338), which Adam hides."""
    mean = step._mean

    def summed(*arguments: Any) -> tuple[float, float]:
        value, factor = mean(*arguments)
        return value, factor * dist.get_world_size()

    step._mean = summed


def loss_of_one_rank() -> None:
    """What is told of a step is rank 0's own loss."""
    mean = step._mean

    def own(loss: Any, sums: list[float], weight: float) -> tuple[float, float]:
        value, factor = mean(loss, sums, weight)
        return value * (1 + 1e-3), factor

    step._mean = own


def rows_are_left_out() -> None:
    """The second rank begins one row late."""
    bounds = batches.RankSource._bounds

    def late(self: batches.RankSource, rows: int) -> tuple[int, int]:
        first, last = bounds(self, rows)
        return (first + bool(first) if last - first > 1 else first), last

    batches.RankSource._bounds = late


def rows_are_seen_twice() -> None:
    """Both ranks have the same half."""
    bounds = batches.RankSource._bounds

    def same(self: batches.RankSource, rows: int) -> tuple[int, int]:
        self._rank = 0
        return bounds(self, rows)

    batches.RankSource._bounds = same


def first_batch_again() -> None:
    """A stay begins with the batch that came before it."""
    load = rank.load

    def behind(training: Training, folder: Path) -> None:
        load(training, folder)
        position = training.cursor.position()
        training.cursor.go_to({**position, "index": max(0, position["index"] - 1)})

    rank.load = behind


def rate_is_shifted() -> None:
    """The schedule has one step more with every stay."""
    begin = Rank._begin

    def shifted(self: Rank) -> None:
        begin(self)
        scheduler: Any = self.training.schedule.scheduler
        scheduler.step()

    Rank._begin = shifted


def module_hooks_are_lost() -> None:
    """What was registered on a module does not arrive."""
    unpack = payload.unpack

    def bare(*arguments: Any) -> Training:
        training = unpack(*arguments)
        for module in training.model.modules():
            module._forward_hooks.clear()
        return training

    payload.unpack = bare


def stays_in_eval_mode() -> None:
    """After a validation the model is not set to train again."""
    end = Training.end_epoch

    def ended(self: Training) -> None:
        end(self)
        self.model.eval()
        self.train_mode._modules = []

    Training.end_epoch = ended


def buffers_of_the_wrong_rank() -> None:
    """The last rank's running statistics come home."""

    def same(training: Training) -> None:
        for buffer in training.model.buffers():
            dist.broadcast(buffer, dist.get_world_size() - 1)

    rank._same_buffers = same


def clipped_by_the_shard() -> None:
    """Every rank clips by the norm of what it holds (as DeepSpeed and Lightning had it)."""

    def clip(parameters: Any, most: float, **_options: Any) -> torch.Tensor:
        own = [
            p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
            for p in parameters
            if p.grad is not None
        ]
        norm = torch.linalg.vector_norm(torch.stack([one.norm() for one in own]))
        for one in own:
            one.mul_((most / (norm + 1e-6)).clamp(max=1.0))
        return norm

    step.nn = types.SimpleNamespace(
        Module=nn.Module, utils=types.SimpleNamespace(clip_grad_norm_=clip)
    )


def non_finite_is_applied() -> None:
    """A batch that is not finite is trained on."""
    step.math = types.SimpleNamespace(isfinite=lambda _value: True, nan=math.nan, hypot=math.hypot)
    RankGuard._flag_gradients = _nothing


def validation_of_one_rank() -> None:
    """Every rank validates its own share of the batches, and nobody adds them up."""
    Tally.pool = _nothing
