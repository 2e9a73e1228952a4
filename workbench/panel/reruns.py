"""Cells that run again: what such a cell had left training is paused, as no name refers to it.

``exp = wb.Experiment(...); exp.run()`` in a cell that is run twice leaves two trainings: the name
refers to the new one, and the output history of the kernel (``Out``) keeps the old one alive, which
uses half of the machine unnoticed. So once an experiment of the second execution has taken a name,
the one of the first execution that had this name is paused, and its panel says why. It is kept
until the cell runs once more, so that *Resume* undoes the pause.

An experiment that is also held by another name, or in a list or a dictionary of the notebook, is
considered wanted: it keeps training. Cells are distinguished by the id that the notebook gives
them; a console has no such id.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.experiment import Experiment
from workbench.experiment.report.events import RunStarted
from workbench.experiment.run import Run

if TYPE_CHECKING:
    from workbench.experiment.report.events import Event

WHY = "because its cell ran again"
_HISTORY = frozenset({"In", "Out"})
"""Names under which IPython keeps inputs and outputs of cells."""
_COLLECTIONS = (list, tuple, set, frozenset)


@dataclass
class _Made:
    """An experiment that a cell has created."""

    ref: weakref.ref[Experiment]
    names: set[str] = field(default_factory=set[str])
    """Names that referred to it when the cell ended."""


class Reruns:
    """Follows the cells of one kernel.

    Args:
        namespace: the notebook's names and their values.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._cell: str | None = None
        """The id of the running cell, if it has one."""
        self._made: dict[str, list[_Made]] = {}
        """Experiments created by the latest execution of each cell."""
        self._before: list[_Made] = []
        """Experiments created by the previous execution of the running cell."""
        self._paused: dict[str, list[Experiment]] = {}
        """Experiments that were paused, by cell: held, so that they can be resumed."""

    def begins(self, cell: str | None) -> None:
        """Record that a cell begins to run."""
        self._cell, self._before = cell, []
        if cell is not None:
            self._before = self._made.get(cell, [])
            self._made[cell] = []
            # what was paused is released; what a user has resumed may have no other reference
            kept = [one for one in self._paused.pop(cell, []) if one.status == "training"]
            if kept:
                self._paused[cell] = kept

    def made(self, experiment: Experiment) -> None:
        """Record that the running cell has created an experiment."""
        if self._cell is None:
            return
        self._made[self._cell].append(_Made(weakref.ref(experiment)))
        this = weakref.ref(self)

        def on_event(event: Event) -> None:
            reruns = this()
            if isinstance(event, RunStarted) and reruns is not None:
                reruns.check()

        experiment.subscribe(on_event)

    def check(self) -> None:
        """Pause what the previous execution left training, if its names now refer to others."""
        cell = self._cell
        if cell is None or not self._made.get(cell):
            return
        names = {
            name: value
            for name, value in list(self._namespace.items())
            if not name.startswith("_") and name not in _HISTORY
        }
        new = [one for made in self._made[cell] if (one := made.ref()) is not None]
        for made in list(self._before):
            old = made.ref()
            if old is None or old.status != "training" or _is_held(old, names):
                continue
            if any(_stands_for(names.get(name), one) for name in made.names for one in new):
                self._before.remove(made)
                self._paused[cell] = [*self._paused.get(cell, []), old]
                old.pause(why=WHY)

    def ends(self) -> None:
        """Record that the cell has run."""
        self.check()
        cell, self._cell = self._cell, None
        if cell is None:
            return
        for made in self._made[cell]:
            one = made.ref()
            if one is not None:
                items = list(self._namespace.items())
                made.names = {name for name, value in items if _stands_for(value, one)}
        if not self._made[cell]:  # it creates none now, or failed before that: the old ones stay
            self._made[cell] = self._before
        self._before = []


def _stands_for(value: Any, experiment: Experiment) -> bool:
    if isinstance(value, Run):
        return value._experiment is experiment  # pyright: ignore[reportPrivateUsage] - a run says nothing of its experiment
    return value is experiment


def _is_held(experiment: Experiment, names: Mapping[str, Any]) -> bool:
    """Whether a name of the notebook, or a collection under such a name, refers to it."""
    return any(
        _stands_for(one, experiment) for value in names.values() for one in _with_contents(value)
    )


def _with_contents(value: Any) -> Iterator[Any]:
    yield value
    if type(value) is dict:
        yield from list(value.values())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType] - of any type
    elif type(value) in _COLLECTIONS:
        yield from list(value)


def follow_cells(shell: Any) -> Reruns:
    """Follow the cells of an IPython shell, starting with the one that is running now."""
    reruns = Reruns(shell.user_ns)
    reruns.begins(_running_cell(shell))

    def before(info: Any = None) -> None:
        reruns.begins(getattr(info, "cell_id", None) or None)

    def after(_result: object = None) -> None:
        reruns.ends()

    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
    return reruns


def _running_cell(shell: Any) -> str | None:
    """Return the id of the running cell; None if no cell runs, or it has no id."""
    kernel = getattr(shell, "kernel", None)
    try:
        found = kernel.get_parent()["metadata"]["cellId"]  # pyright: ignore[reportOptionalMemberAccess] - caught
    except (AttributeError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) and found else None
