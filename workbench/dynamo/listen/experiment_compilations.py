"""Attribution of compilations to one experiment, and to the modes under which it trained.

The recorder listens from the creation of the first experiment, as long as one is alive. So the
report of an experiment covers all of its compilations, including those before a report was
requested. The report of a `wb.Modes` begins when it is first requested.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.dynamo.listen.model_owners import id_of
from workbench.dynamo.listen.rank_reports import compilations_of_ranks, ranks_wrote
from workbench.dynamo.listen.recompile_limits import REASON, Limit, limit_of, limits_in
from workbench.dynamo.listen.recorder import Compilation, listen, recorder, unlisten
from workbench.experiment import Experiment
from workbench.experiment.report.events import EpochDone, Event, ModesChanged, StatusChanged
from workbench.modes import Modes
from workbench.modes.compile.mode import regions_of
from workbench.torch_private.dynamo import num_variants, region_name

if TYPE_CHECKING:
    from torch import nn

    from workbench.dynamo.listen.graph_breaks import Break

_MOST_SWITCHES = 256


@dataclass(frozen=True)
class Switch:
    """A change of modes: from here on, steps were computed under these modes."""

    step: int
    modes: str
    compiled: bool
    number: int
    """Number of the next compilation."""
    at: float
    """Unix time."""


@dataclass
class Watch:
    """State of the recorder for one experiment."""

    first: int
    """Number of the first compilation after the experiment was created."""
    num_before: int = 0
    """Number of graphs of its regions that were already compiled when this began."""
    switches: list[Switch] = field(default_factory=list[Switch])
    limits: list[Limit] = field(default_factory=list[Limit])
    """Code of its regions that is no longer compiled in this process, in order."""
    of_ranks: list[Limit] = field(default_factory=list[Limit])
    """The same for the ranks that were started last."""
    read: tuple[str, int] = ("", 0)
    """The file of ranks that `of_ranks` was read from, and its time stamp."""

    def switched(self, step: int, modes: str, *, compiled: bool) -> None:
        """Record a change of modes; of very many, the oldest except the first are dropped."""
        self.switches.append(Switch(step, modes, compiled, recorder().count, time.time()))
        if len(self.switches) > _MOST_SWITCHES:
            del self.switches[1]


_of_modes: weakref.WeakKeyDictionary[Modes, Watch] = weakref.WeakKeyDictionary()
_watches: weakref.WeakKeyDictionary[Experiment, Watch] = weakref.WeakKeyDictionary()


def watch(experiment: Experiment) -> Watch:
    """Listen while ``experiment`` is alive, from now on; returns the existing watch, if any."""
    known = _watches.get(experiment)
    if known is not None:
        return known
    listening = listen()
    weakref.finalize(experiment, unlisten).atexit = False
    made = _watches[experiment] = Watch(listening.count, _num_compiled(experiment.model))
    modeset = experiment.modeset
    made.switched(experiment.step_count, str(modeset), compiled=modeset.compiled)
    this = weakref.ref(experiment)

    def on_event(event: Event) -> None:
        live = this()
        if live is None:
            return
        if isinstance(event, ModesChanged):
            made.switched(event.step, event.after, compiled=live.modeset.compiled)
        if isinstance(event, (ModesChanged, EpochDone, StatusChanged)) and _ranks_compiled(made):
            _read_ranks(live, made)

    def on_break(compilation: Compilation, broken: Break) -> None:
        live, region = this(), compilation.region
        if broken.reason != REASON or live is None or region is None or region.owner != live.id:
            return
        limit = limit_of(compilation, broken)
        made.limits = [*made.limits, limit]
        _note(live, limit)

    listening.on_break.append(on_break)
    weakref.finalize(experiment, listening.on_break.remove, on_break).atexit = False
    experiment.subscribe(on_event)
    return made


def limits_of(experiment: Experiment) -> list[Limit]:
    """Return the code that ``experiment`` trains and that reached Dynamo's recompile limit.

    This is called each time a panel is drawn; it costs next to nothing if there is none. The
    reports of ranks are read again if they have changed.
    """
    modeset = experiment.modeset
    made = _watches.get(experiment)
    if made is None or not modeset.compiled:
        return []
    if modeset.is_remote:
        _read_ranks(experiment, made)
        return made.of_ranks
    if not made.limits:
        return []
    regions = set(map(region_name, experiment.model.modules()))
    return [limit for limit in made.limits if limit.region in regions]


def _ranks_compiled(made: Watch) -> bool:
    """Whether ranks may have reported something since they were last checked."""
    return any(switch.compiled for switch in made.switches[-2:])


def _read_ranks(experiment: Experiment, made: Watch) -> None:
    folder = experiment.path / "parallel"
    wrote = ranks_wrote(folder)
    if wrote == made.read:
        return
    made.read = wrote
    made.of_ranks = limits_in(compilations_of_ranks(folder, newest=True))
    for limit in made.of_ranks:
        _note(experiment, limit)


def _note(experiment: Experiment, limit: Limit) -> None:
    if limit.sentence not in experiment.notes:
        experiment.notes.append(limit.sentence)


def is_watched(experiment: Experiment) -> bool:
    """Whether the recorder has listened to what it compiled."""
    return experiment in _watches


def compilations_of(experiment: Experiment) -> list[Compilation]:
    """Return what was compiled of its model since it was created, by ranks too, oldest first."""
    here = _owned(watch(experiment).first, experiment.id)
    ranks = compilations_of_ranks(experiment.path / "parallel")
    return sorted([*here, *ranks], key=lambda one: one.started)


def watch_modes(modes: Modes) -> Watch:
    """Listen while ``modes`` is alive, from now on; returns the existing watch, if any."""
    known = _of_modes.get(modes)
    if known is None:
        before = sum(map(_num_compiled, modes.models))
        known = _of_modes[modes] = Watch(listen().count, before)
        weakref.finalize(modes, unlisten).atexit = False
        id_of(modes)
    return known


def compilations_of_modes(modes: Modes) -> list[Compilation]:
    """Return what was compiled of its models since `watch_modes`, oldest first."""
    return _owned(watch_modes(modes).first, id_of(modes))


def _num_compiled(model: nn.Module) -> int:
    """Return how many graphs of the regions of ``model`` this process compiled, at least."""
    return sum(map(num_variants, regions_of(model)))


def _owned(first: int, own: str) -> list[Compilation]:
    kept = recorder().compilations(first)
    return [one for one in kept if one.region is not None and one.region.owner == own]
