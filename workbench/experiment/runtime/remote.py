"""Steps that are computed by other processes, as the runner sees them.

This package does not import `workbench.parallel`, which starts ranks: sending a training to them is
one of the experiment's `workbench.experiment.services`. Under a mode that has steps computed by
other processes (`workbench.modes.layout.mode`) the runner sends its training there and follows it:
position, scalars and learning rate are updated as they are reported, weights and moments are
returned at the end of the parallel session. A session ends with the run, and whenever something is
requested that needs the training itself: a pause, other modes, a capture, a new model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workbench.experiment.failure.failure import Fault, remote_failure
from workbench.experiment.loop.step_undo import rehearse
from workbench.modes.effects.step_times import StepTimings

if TYPE_CHECKING:
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.training import Training
    from workbench.modes import ModeSet
    from workbench.records import Failure

LOOK_S = 0.05
"""Seconds between two checks of what was reported."""


class RemoteError(RuntimeError):
    """Remote steps have failed; the training is back with the last state that was kept."""

    def __init__(self, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        """What was raised in a rank; None if a process was ended from outside."""

    def failure(self, step: int) -> Failure:
        """Return the failure, once the training is back; ``step`` is the next step, from 1."""
        return remote_failure(self.fault, str(self), step=step)


class RemoteSession(Protocol):
    """A parallel session: some steps of a training, computed in other processes."""

    def follow(self) -> bool:
        """Take over what was reported since the last call; return False once the session is over.

        Raises:
            NonFiniteError: the step after the last one was refused.
            RemoteError: the session failed.
        """
        ...

    def settle(self, plan: Plan) -> None:
        """Pass on what was changed in this process: where the run ends, the learning rate."""
        ...

    def recall(self) -> None:
        """Request its end at the next step boundary; idempotent."""
        ...

    def bring_back(self) -> None:
        """Load its last state and release its processes, by force if they still run."""
        ...

    def clear(self) -> None:
        """Remove its files from the disk, if the training is back."""
        ...


class SendToRanks(Protocol):
    """Has steps computed by other processes."""

    def __call__(self, training: Training, plan: Plan, folder: Path) -> RemoteSession:
        """Have ``training`` continue in other processes until ``plan`` is fulfilled.

        Args:
            training: what is sent; in this process it is left unchanged.
            plan: where the run ends.
            folder: where the files of the session are.

        Raises:
            Exception: it cannot be sent; it is in this process, as it was before.
        """
        ...


def follow(session: RemoteSession, plan: Plan, wanted: Callable[[], bool]) -> None:
    """Follow ``session`` until it is over, and return the training to this process.

    Args:
        session: the session, which has begun.
        plan: where the run ends; it may change meanwhile.
        wanted: called repeatedly; whether the training is needed in this process.

    Raises:
        NonFiniteError, RemoteError: as `RemoteSession.follow`; the training is back.
    """
    try:
        while session.follow():
            is_wanted = wanted()
            session.settle(plan)
            if is_wanted:
                session.recall()
            time.sleep(LOOK_S)
    finally:
        session.bring_back()


def advance_locally(training: Training) -> None:
    """Do one step in this process, as without a layout.

    Raises:
        Exception: whatever the step raises.
    """
    modeset, training.staying_modes = training.modeset, training.modes
    try:
        with _without_layout(training) as alone:
            try:
                training.local_steps.before(training)
                training.advance()
            finally:
                modeset.load_state_dict(alone.state_dict())
    finally:
        training.staying_modes = None
        training.local_steps.after()


def capture_locally(training: Training) -> None:
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
    training.timings = StepTimings()  # a single local step is no measurement of either
    training.modeset = alone
    try:
        yield alone
    finally:
        training.detach_modes()
        training.modeset, training.timings = modeset, timings
