"""Faults that ranks are given: each is called in a rank's process before its program begins.

`tests.fork_server.PLANT` names one. They are faults that trainers over ranks are
known to have had, put where this one guards against them.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.experiment.loop.validation import Tally
from workbench.experiment.training import Training
from workbench.modes import ModeSet
from workbench.parallel.data import rank_batches
from workbench.parallel.rank import rank, step
from workbench.parallel.rank.rank import Rank
from workbench.parallel.rank.step import RankGuard
from workbench.trust import Seal


def _nothing(*_arguments: Any, **_options: Any) -> None:
    pass


def _times(factor: Callable[[], float]) -> None:
    """The loss whose gradient is taken, so many times."""
    made = ModeSet.__init__

    def planted(self: ModeSet, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        backward = self.backward
        self.backward = lambda loss: backward(loss * factor())

    ModeSet.__init__ = planted


def ranks_are_weighed_wrongly() -> None:
    """The first rank counts for more than it has, as where means of unequal parts are averaged."""
    _times(lambda: 0.8 if dist.get_rank() else 1.2)


def gradients_are_summed() -> None:
    """Twice as large on two ranks (pytorch#162338), which Adam hides."""
    _times(lambda: float(dist.get_world_size()))


def loss_is_told_wrongly() -> None:
    """What is told of a step is a little more than the loss was."""
    step = rank.rank_step

    def told(*arguments: Any, **options: Any) -> Any:
        done = step(*arguments, **options)
        return done._replace(loss=done.loss * (1 + 1e-5))

    rank.rank_step = told


def rows_are_left_out() -> None:
    """The second rank begins one row late."""
    bounds = rank_batches.RankSource._bounds

    def late(self: rank_batches.RankSource, rows: int) -> tuple[int, int]:
        first, last = bounds(self, rows)
        return (first + bool(first) if last - first > 1 else first), last

    rank_batches.RankSource._bounds = late


def rows_are_seen_twice() -> None:
    """Both ranks have the same half."""
    bounds = rank_batches.RankSource._bounds

    def same(self: rank_batches.RankSource, rows: int) -> tuple[int, int]:
        self._rank = 0
        return bounds(self, rows)

    rank_batches.RankSource._bounds = same


def first_batch_again() -> None:
    """A stay begins with the batch that came before it."""
    load = rank.load

    def behind(training: Training, folder: Path, seal: Seal) -> None:
        load(training, folder, seal)
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
    """What was registered on a module is not called in a step."""
    run = Rank.run

    def bare(self: Rank) -> None:
        for module in self.training.model.modules():
            module._forward_hooks.clear()
        run(self)

    Rank.run = bare


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

    nn.utils.clip_grad_norm_ = clip


def non_finite_is_applied() -> None:
    """A batch that is not finite is trained on."""
    step.math = types.SimpleNamespace(isfinite=lambda _value: True, nan=math.nan, hypot=math.hypot)
    RankGuard._flag_gradients = _nothing


def validation_of_one_rank() -> None:
    """Every rank validates its own share of the batches, and nobody adds them up."""
    Tally.pool = _nothing
