"""Notice of a class that a cell redefined while its model trains: the run keeps the old code.

As in any training loop, redefining a class changes nothing in a run. But a user who edits
`forward`, runs its cell and resumes may think that the new code is training; so a note on the
experiment says that it is not. After a failure this does not apply: *Resume* uses the new methods
(`workbench.experiment.recipe.current_classes`).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from workbench.experiment.experiment import experiments
from workbench.experiment.newer_model import redefined

if TYPE_CHECKING:
    from workbench.experiment import Experiment

_notes: weakref.WeakKeyDictionary[Experiment, str] = weakref.WeakKeyDictionary()
"""The current note of this kind of each experiment."""


def check() -> None:
    """After each cell, add the note where it applies, and remove it where it no longer does."""
    for experiment in experiments():
        text, before = _note(experiment), _notes.get(experiment, "")
        if text == before:
            continue
        _notes[experiment] = text
        if before in experiment.notes:
            experiment.notes.remove(before)
        if text:
            experiment.notes.append(text)
            experiment.say(text)


def _note(experiment: Experiment) -> str:
    if experiment.status not in ("training", "paused"):
        return ""
    names = redefined(experiment.model)
    if not names:
        return ""
    model = type(experiment.model).__name__
    return (
        f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} redefined by a cell; "
        f"{experiment.name} still trains with the old code. exp.model = {model}(...) swaps a "
        "new one in at the next step"
    )
