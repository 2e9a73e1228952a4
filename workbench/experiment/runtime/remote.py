"""Steps that are computed outside of this process, as the runner sees them.

An experiment knows nothing of ranks; `workbench.parallel` does, and is one of the experiment's
`workbench.experiment.services`. Under a mode that has steps computed in other processes
(`workbench.modes.layout.mode`) the runner sends its training there and follows it: position,
scalars and learning rate are updated as they are reported, weights and moments are returned at the
end of the parallel session. A session ends with the run, and whenever something is requested that
needs the training itself: a pause, other modes, a capture, a new model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workbench.experiment.failure.failure import Fault, remote_failure
from workbench.experiment.loop.guard import rehearse
from workbench.modes.effects.step_times import StepTimings

if TYPE_CHECKING:
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.training import Training
    from workbench.modes import ModeSet
    from workbench.records import Failure

LOOK_S = 0.05
"""Seconds between two checks of what was reported."""


class ElsewhereError(RuntimeError):
    """Remote steps have failed; the training is back with the last state that was kept."""

    def __init__(self, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        """What was raised there; None if something was ended from outside."""

    def failure(self, step: int) -> Failure:
        """Return the failure, once the training is back; ``step`` is the next step, from 1."""
        return remote_failure(self.fault, str(self), step=step)


class Stretch(Protocol):
    """A parallel session: some steps of a training, computed in other processes."""

    def follow(self) -> bool:
        """Take over what was reported since the last call; return False once the session is over.

        Raises:
            NonFiniteError: the step after the last one was refused.
            ElsewhereError: the session failed.
        """
        ...

    def settle(self, plan: Plan) -> None:
        """Pass on what was changed in this process: where the run ends, the learning rate."""
        ...

    def call_home(self) -> None:
        """Request its end at the next step boundary; idempotent."""
        ...

    def come_home(self) -> None:
        """Take over its last state and release its processes, by force if they still run."""
        ...

    def clear(self) -> None:
        """Remove what is kept of it on disk, if the training has been returned."""
        ...


class Elsewhere(Protocol):
    """Computes steps outside of this process."""

    def __call__(self, training: Training, plan: Plan, folder: Path) -> Stretch:
        """Send ``training`` away, to continue until ``plan`` is fulfilled; files are in ``folder``.

        Raises:
            Exception: it cannot be sent; it stays here as it was.
        """
        ...


def send(training: Training, plan: Plan, folder: Path) -> Stretch:
    """Have the next steps computed by what is provided for it.

    Raises:
        RuntimeError: nothing is provided.
        Exception: ``training`` cannot be sent.
    """
    if training.services.send is None:
        raise RuntimeError(
            f"nothing here computes steps under {training.modes}: make the experiment with "
            "wb.Experiment"
        )
    return training.services.send(training, plan, folder)


def follow(stretch: Stretch, plan: Plan, wanted: Callable[[], bool]) -> None:
    """Follow ``stretch`` until it is over, and return the training to this process.

    Args:
        stretch: the session, which has begun.
        plan: where the run ends; it may change meanwhile.
        wanted: called repeatedly; whether the training is needed in this process.

    Raises:
        NonFiniteError, ElsewhereError: as `Stretch.follow`; the training is back.
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
    """Do one step in this process, as if no layout was on.

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
    """Compute the next step in this process for the probes that wait, and undo it.

    Raises:
        Exception: whatever the step raises.
    """
    with _without_layout(training):
        training.random.save()
        rehearse(training)


@contextmanager
def _without_layout(training: Training) -> Generator[ModeSet]:
    """Context whose steps are computed by this process alone; yields the modes that they have."""
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
