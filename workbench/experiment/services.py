"""What the packages above provide to an experiment: the one place where they register.

An experiment imports none of them; it holds the `Services` of its process at the time it was
created. Unless others were provided, these are Workbench's own (`workbench.panel.assembly`), so an
experiment that is created without ``wb`` has everything too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.failure.out_of_memory import MemoryTool
    from workbench.experiment.runtime.remote import SendToRanks

_ASSEMBLY = "workbench.panel.assembly"
"""Has Workbench's own as ``SERVICES``. Imported by name: it is above, and imports this package."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """What an experiment uses of other packages; the default is an experiment by itself."""

    on_new: tuple[Callable[[Experiment], None], ...] = ()
    """Called with every new experiment, in this order: writers, the hub, the first captures."""
    display: Callable[..., Any] | None = None
    """``display(experiment, **options)`` returns the MIME bundle of its display."""
    send: SendToRanks | None = None
    """Has steps of parallel modes computed by worker processes."""
    cut_events: Callable[[Path, int], object] | None = None
    """Removes from a run directory what was logged after a step."""
    is_on_ranks: Callable[[Path], bool] | None = None
    """Whether the training of a run directory is on ranks, alive or not, that left their kernel."""
    memory_tool: Callable[[], MemoryTool] | None = None
    """Makes what simulates GPUs and explains a shortage; called when it is first needed."""


_provided: Services | None = None


def provide(services: Services | None) -> None:
    """Have every experiment that is created from now on use ``services``; None: Workbench's own."""
    global _provided  # noqa: PLW0603 - they are the process's
    _provided = services


def provided() -> Services:
    """Return the services of this process."""
    own: Services = import_module(_ASSEMBLY).SERVICES if _provided is None else _provided
    return own


@contextmanager
def only(services: Services | None) -> Generator[None]:
    """Have experiments that are created in this block use ``services`` alone."""
    before = _provided
    provide(services)
    try:
        yield
    finally:
        provide(before)
