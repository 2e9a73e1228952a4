"""Owners of the models of this process: what trains each of them.

Owners are experiments, `wb.Modes` for which a report was requested, and a rank
(`workbench.dynamo.listen.rank_reports`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

from workbench.experiment import experiments

if TYPE_CHECKING:
    from torch import nn

    from workbench.modes import Modes

_numbers = count(1)
_models: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
_modes: weakref.WeakKeyDictionary[Modes, str] = weakref.WeakKeyDictionary()


def id_of(modes: Modes) -> str:
    """Return the owner id of the compilations of the models of ``modes`` from now on."""
    known = _modes.get(modes)
    if known is None:
        known = _modes[modes] = f"modes-{next(_numbers)}"
    return known


def own(model: nn.Module, owner: str) -> None:
    """Attribute the compilations of ``model`` to ``owner``, while the model is alive."""
    _models[model] = owner


def owners() -> Iterator[tuple[str, nn.Module]]:
    """Yield the id of every owner with each of its models."""
    for experiment in experiments():
        yield experiment.id, experiment.model
    for modes, own_id in list(_modes.items()):
        for model in modes.models:
            yield own_id, model
    for model, owner in list(_models.items()):
        yield owner, model
