"""A class that a cell has defined anew while its model trains: the run goes on with the old one.

Nothing of a run changes by it, as in any loop of one's own. But who edits `forward`, runs its cell
and resumes takes the new code for the one that trains; so the experiment notes that it does not.
After a failure that is not so: *Resume* takes the new methods
(`workbench.experiment.recipe.hot_swap`).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from workbench.experiment.experiment import experiments
from workbench.experiment.newer_model import written_anew

if TYPE_CHECKING:
    from workbench.experiment import Experiment

_said: weakref.WeakKeyDictionary[Experiment, str] = weakref.WeakKeyDictionary()
"""The note of this kind that an experiment has."""


def look() -> None:
    """After a cell: note it where it is so by now, and take the note back where it is no more."""
    for experiment in experiments():
        text, before = _told(experiment), _said.get(experiment, "")
        if text == before:
            continue
        _said[experiment] = text
        if before in experiment.notes:
            experiment.notes.remove(before)
        if text:
            experiment.notes.append(text)
            experiment.say(text)


def _told(experiment: Experiment) -> str:
    if experiment.status not in ("training", "paused"):
        return ""
    names = written_anew(experiment.model)
    if not names:
        return ""
    model = type(experiment.model).__name__
    return (
        f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} defined anew by a cell; "
        f"{experiment.name} trains on with the code of before. exp.model = {model}(...) swaps a "
        "new one in at the next step"
    )
