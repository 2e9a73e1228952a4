"""Steps that are computed outside of this process, as the runner sees them.

An experiment knows nothing of ranks; `workbench.parallel` does, and `workbench.panel.assembly`
registers it here. Under a mode that has steps computed elsewhere (`workbench.modes.layout.mode`)
the runner sends its training there and follows it: position, scalars and learning rate are taken
over as they are told, weights and moments come home at the end of the stretch. A stretch ends with
the run, and whenever something is asked for that needs the training itself: a pause, other modes, a
capture, a new model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workbench.experiment.failure.failure import Fault, failure_elsewhere
from workbench.experiment.loop.guard import rehearse
from workbench.modes.effects.step_times import StepTimings

if TYPE_CHECKING:
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.training import Training
    from workbench.modes import ModeSet
    from workbench.records import Failure

LOOK_S = 0.05
"""Between two looks at what was told."""


class ElsewhereError(RuntimeError):
    """Steps elsewhere have ended badly; the training is home with the last state that was kept."""

    def __init__(self, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        """What was raised there; None where something was ended from outside."""

    def failure(self, step: int) -> Failure:
        """The experiment's failure, once the training is home; ``step`` is the next, from 1."""
        return failure_elsewhere(self.fault, str(self), step=step)


class Stretch(Protocol):
    """Some steps of a training, computed elsewhere."""

    def follow(self) -> bool:
        """Take over what was told since the last time; False once the stretch is over.

        Raises:
            NonFiniteError: the step after the last was refused.
            ElsewhereError: it ended badly.
        """
        ...

    def settle(self, plan: Plan) -> None:
        """Pass on what was changed here: where the run ends, the learning rate."""
        ...

    def call_home(self) -> None:
        """Ask for its end at the next step boundary; said twice it is meant once."""
        ...

    def come_home(self) -> None:
        """Take over its last state, and let go of its processes; by force if they still run."""
        ...

    def clear(self) -> None:
        """Remove what is kept of it on disk, if the training has come home."""
        ...


class Elsewhere(Protocol):
    """Where steps can be computed."""

    def __call__(self, training: Training, plan: Plan, folder: Path) -> Stretch:
        """Send ``training`` off, to go on until ``plan`` is fulfilled; files are in ``folder``.

        Raises:
            Exception: it cannot be sent; it is here as it was.
        """
        ...


_known: list[Elsewhere] = []


def register(elsewhere: Elsewhere) -> None:
    """Have steps of parallel modes computed by ``elsewhere``."""
    _known[:] = [elsewhere]


def send(training: Training, plan: Plan, folder: Path) -> Stretch:
    """Have the next steps computed by what was registered.

    Raises:
        RuntimeError: nothing is.
        Exception: ``training`` cannot be sent.
    """
    if not _known:
        raise RuntimeError(
            f"nothing here computes steps under {training.modes}: make the experiment with "
            "wb.Experiment"
        )
    return _known[0](training, plan, folder)


def follow(stretch: Stretch, plan: Plan, wanted: Callable[[], bool]) -> None:
    """Follow ``stretch`` until it is over, and bring the training home.

    Args:
        stretch: that was begun.
        plan: where the run ends; may change meanwhile.
        wanted: asked again and again; whether the training is wanted here.

    Raises:
        NonFiniteError, ElsewhereError: as `Stretch.follow`; the training is home.
    """
    try:
        while stretch.follow():
            home = wanted()
            stretch.settle(plan)
            if home:
                stretch.call_home()
            time.sleep(LOOK_S)
    finally:
        stretch.come_home()


def advance_at_home(training: Training) -> None:
    """Do one step here, as if no layout was on.

    Raises:
        Exception: whatever the step raises.
    """
    modeset, training.staying_modes = training.modeset, training.modes
    try:
        with _without_layout(training) as alone:
            try:
                training.at_home.before(training)
                training.advance()
            finally:
                modeset.load_state_dict(alone.state_dict())
    finally:
        training.staying_modes = None
        training.at_home.after()


def capture_at_home(training: Training) -> None:
    """Compute the next step here for the probes that wait, and undo it.

    Raises:
        Exception: whatever the step raises.
    """
    with _without_layout(training):
        training.random.save()
        rehearse(training)


@contextmanager
def _without_layout(training: Training) -> Generator[ModeSet]:
    """Steps inside are of this process alone; gives the modes that they have."""
    modeset, timings = training.modeset, training.timings
    alone = modeset.with_value("parallel", "off")
    alone.load_state_dict(modeset.state_dict())
    training.detach_modes()
    training.timings = StepTimings()  # one step of a process alone says nothing about either
    training.modeset = alone
    try:
        yield alone
    finally:
        training.detach_modes()
        training.modeset, training.timings = modeset, timings
