"""Who trains the models of this process.

Experiments do, `wb.Modes` that a report was asked of, and a rank
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
    """What the compilations of the models of ``modes`` go by from now on."""
    known = _modes.get(modes)
    if known is None:
        known = _modes[modes] = f"modes-{next(_numbers)}"
    return known


def own(model: nn.Module, owner: str) -> None:
    """Have the compilations of ``model`` go by ``owner``, while it lives."""
    _models[model] = owner


def owners() -> Iterator[tuple[str, nn.Module]]:
    """Id of every owner with each model of its."""
    for experiment in experiments():
        yield experiment.id, experiment.model
    for modes, own_id in list(_modes.items()):
        for model in modes.models:
            yield own_id, model
    for model, owner in list(_models.items()):
        yield owner, model
