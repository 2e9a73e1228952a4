"""Assembly of the parts: the only module that knows every tool.

Importing this module (``wb.Experiment`` does) registers what every new experiment gets: a
TensorBoard writer, a place in the hub, a panel as its display, and the first captures.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from workbench.experiment import Experiment
from workbench.experiment.runtime.openmp import release_team
from workbench.experiment.services import Services
from workbench.panel import redefined_classes
from workbench.panel.channel.hub import hub
from workbench.panel.reruns import follow_cells
from workbench.records.source import shell

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.experiment.failure.out_of_memory import MemoryTool
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.report.events import Event
    from workbench.experiment.runtime.remote import RemoteSession
    from workbench.experiment.training import Training

__all__ = ["SERVICES", "Experiment"]


def _stream_to_tensorboard(experiment: Experiment) -> None:
    from workbench.metrics import attach

    attach(experiment)


def _log_memory(experiment: Experiment) -> None:
    from workbench.metrics import memory

    memory.attach(experiment)


def _memory_tool() -> MemoryTool:
    from workbench.memory.simulated_gpu.out_of_memory import OutOfMemoryTool

    return OutOfMemoryTool()


def _send_to_ranks(training: Training, plan: Plan, folder: Path) -> RemoteSession:
    from workbench.dynamo.listen.rank_reports import companions
    from workbench.parallel.session.mirror import send

    return send(training, plan, folder, companions(training))


def _publish(experiment: Experiment) -> None:
    hub().listen()
    hub().add(experiment)


def _follow_cells() -> None:
    """After each cell, free the cores of its OpenMP threads and find classes it redefined."""
    here = shell()
    if here is not None:
        here.events.register("post_run_cell", _after_cell)


def _after_cell(_result: object = None) -> None:
    release_team()
    redefined_classes.check()


def _pause_what_its_cell_left(experiment: Experiment) -> None:
    """Pause what the same cell of this notebook had left training when it ran before."""
    cells = _cells()
    if cells is not None:
        cells.made(experiment)


@cache
def _cells() -> Any:
    here = shell()
    return None if here is None else follow_cells(here)


def _display(experiment: Experiment, **options: Any) -> Any:
    from workbench.panel.view import display_bundle

    return display_bundle(experiment, **options)


def _capture_first_step(experiment: Experiment) -> None:
    """Capture graph and memory of the first step without a request: the step runs anyway.

    Ranks that were already running are not called back for it.
    """
    import weakref

    from workbench.experiment.report.events import ModelSwapped, RunStarted

    this = weakref.ref(experiment)

    def on_event(event: Event) -> None:
        live = this()
        if live is None:
            return
        begun = isinstance(event, RunStarted) and not event.found
        fresh = begun and not live.captures.infos()
        if fresh or isinstance(event, ModelSwapped):
            from workbench.graph import GraphProbe
            from workbench.memory import MemoryProbe

            live.capture(GraphProbe())
            live.capture(MemoryProbe())

    experiment.subscribe(on_event)


def _keep_compiled_insides(experiment: Experiment) -> None:
    """Keep what a step compiles without being captured, so that later captures can open it too.

    A run announces that it compiles after the compiler is imported and before the run begins.
    """
    from workbench.experiment.report.events import StatusChanged

    def on_event(event: Event) -> None:
        if isinstance(event, StatusChanged):
            from workbench.graph.capture.compiled_regions import watch_compiler

            watch_compiler()

    experiment.subscribe(on_event)


def _record_compilations(experiment: Experiment) -> None:
    """Keep what torch reports while it compiles, for `workbench.compile_report`."""
    from workbench.dynamo import watch

    watch(experiment)


def _cut_events(folder: Path, step: int) -> object:
    from workbench.metrics.continued_events import cut_events

    return cut_events(folder, step)


def _is_on_ranks(run: Path) -> bool:
    if not (run / "parallel").is_dir():
        return False
    from workbench.parallel.attach import is_on_ranks

    return is_on_ranks(run)


SERVICES = Services(
    on_new=(
        _stream_to_tensorboard,
        _log_memory,
        _publish,
        _capture_first_step,
        _keep_compiled_insides,
        _record_compilations,
        _pause_what_its_cell_left,
    ),
    display=_display,
    send=_send_to_ranks,
    cut_events=_cut_events,
    is_on_ranks=_is_on_ranks,
    memory_tool=_memory_tool,
)
"""What every new experiment gets, unless others are provided."""

_follow_cells()
_cells()
