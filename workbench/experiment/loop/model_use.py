"""One training at a time for each tensor: two that share one would undo each other's steps.

A cell that is run again creates a second experiment with the same model, while ``Out[n]`` or
another name keeps the first one, which may still train. Code that is about to work on a model
checks here what else works on it: what ends soon is waited for, and everything else is refused.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from workbench.experiment.runtime.runner import Runner
    from workbench.experiment.training import Training

_runners: weakref.WeakSet[Runner] = weakref.WeakSet()
_list = threading.Lock()
beginning = threading.Lock()
"""Held while a caller checks and then begins its own work: of two that begin at once, one is
first."""


class InUse(NamedTuple):
    """Work in progress on tensors that are shared with us."""

    runner: Runner
    over: threading.Event
    """Set when it has ended."""
    name: str
    """Name of the first parameter or buffer that is shared."""

    def is_at_work(self) -> bool:
        """Whether it continues, and was not requested to end."""
        return self.runner.active and not self.runner.ending and not self.over.is_set()

    def refusal(self, own: str) -> str:
        """Why the experiment ``own`` cannot use its model now, in one sentence."""
        other = self.runner.training.name
        return (
            f"{own} cannot use its model now: {other} is training it ({self.name}); pause or stop "
            f"{other} first, in its panel or by workbench.experiment.experiments(), or give one of "
            "them a copy, copy.deepcopy(model)"
        )


def register(runner: Runner) -> None:
    """Add ``runner`` to those that may be working on a model."""
    with _list:
        _runners.add(runner)


def others_at_work(runner: Runner) -> list[InUse]:
    """Return the current work of others on tensors of the training of ``runner``."""
    with _list:
        active = [one for one in _runners if one is not runner and one.active]
    if not active:
        return []
    mine = _tensors(runner.training)
    found: list[InUse] = []
    for one in active:
        over, theirs = one.at_work_until, _tensors(one.training)
        shared = next((name for key, name in mine.items() if key in theirs), None)
        if over is not None and shared is not None:
            found.append(InUse(one, over, shared))
    return found


def at_work_on(model: nn.Module) -> list[str]:
    """Return the names of the experiments that train tensors of a model at the moment."""
    with _list:
        active = [one for one in _runners if one.active]
    mine = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return [one.training.name for one in active if not mine.isdisjoint(_tensors(one.training))]


def _tensors(training: Training) -> dict[int, str]:
    """Names of the tensors that a step writes to, by id; valid while the training has them."""
    model = training.model
    found = {
        id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
    extra = {id(p): "a parameter of the optimizer" for p in tuple(training.parameters)}
    return {**extra, **found}
