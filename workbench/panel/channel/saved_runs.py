"""``resume_from`` and ``load_weights``: an experiment takes over what a run on disk has.

A checkpoint takes seconds to read; it is done in the background
(`workbench.panel.channel.background_work`). Nothing in it is run: what another user has pickled is
refused, and `Experiment.resume_from` is where it can be trusted.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.panel.channel.background_work import Task
from workbench.panel.channel.commands import CommandError, text_of

if TYPE_CHECKING:
    from workbench.experiment import Experiment

_turn = threading.Lock()
_GONE = "this experiment no longer exists: run its cell again"


def resume_from(experiment: Experiment, args: Mapping[str, Any]) -> Task:
    """Read the arguments of a ``resume_from`` command: ``path`` of a run; it then goes on.

    Raises:
        CommandError: the path is not a text.
    """
    path, reference = text_of(args, "path"), weakref.ref(experiment)

    def make() -> None:
        found = reference()
        if found is None:
            raise CommandError(_GONE)
        found.resume_from(path)
        if found.status == "paused":
            found.resume()

    return Task(make, _turn)


def load_weights(experiment: Experiment, args: Mapping[str, Any]) -> Task:
    """Read the arguments of a ``load_weights`` command: ``path`` of a run, ``which`` checkpoint.

    Raises:
        CommandError: an argument is not valid.
    """
    path, reference = text_of(args, "path"), weakref.ref(experiment)
    which = text_of(args, "which")
    if which not in ("last", "best"):
        raise CommandError(f"unknown checkpoint {which[:64]!r}; valid: last, best")

    def make() -> None:
        found = reference()
        if found is None:
            raise CommandError(_GONE)
        found.load_weights(path, "best" if which == "best" else "last")

    return Task(make, _turn)
