"""Who trains the models of this process: experiments, and `wb.Modes` that a report was asked of."""

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
_modes: weakref.WeakKeyDictionary[Modes, str] = weakref.WeakKeyDictionary()


def id_of(modes: Modes) -> str:
    """What the compilations of the models of ``modes`` go by from now on."""
    known = _modes.get(modes)
    if known is None:
        known = _modes[modes] = f"modes-{next(_numbers)}"
    return known


def owners() -> Iterator[tuple[str, nn.Module]]:
    """Id of every owner with each model of its."""
    for experiment in experiments():
        yield experiment.id, experiment.model
    for modes, own in list(_modes.items()):
        for model in modes.models:
            yield own, model
