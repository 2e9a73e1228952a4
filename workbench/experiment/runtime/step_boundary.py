"""The parts of the next step, provided at a moment when no step is in progress.

Tools that compute the next step in advance (`workbench.memory.prediction.predict`) need its model,
its optimizer, its loss and its batch together. While a run is active these belong to the runner's
thread, so work on them is queued like any command and done between two steps; otherwise the caller
does it at once, and what is requested of the experiment meanwhile waits as it would for a step.
Training waits too, and nothing of it may be changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from workbench.experiment.state.rng import RandomState

if TYPE_CHECKING:
    from torch import nn

    from workbench.experiment.experiment import Experiment
    from workbench.experiment.recipe.losses import Loss
    from workbench.experiment.training import Training
    from workbench.modes import ModeSet


T = TypeVar("T")

LONGEST_WAIT_S = 30.0
"""Seconds that a query of the user's waits for the step in progress to end."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NextStep:
    """Everything that `workbench.experiment.loop.step` needs: to be copied, not to be used."""

    name: str
    """Name of the experiment."""
    step: int
    """Number of the step, counting from 1."""
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    modes: ModeSet
    is_attached: bool
    """Whether the model has been handed over to its modes; otherwise it is as it was passed."""
    clip_grad_norm: float | None
    device: torch.device
    batch: Any


def between_steps(
    experiment: Experiment, work: Callable[[NextStep], T], *, wait_s: float | None = None
) -> T:
    """Return the result of ``work``, done at the next step boundary; at once if nothing trains.

    Random states that it changes are restored.

    Args:
        experiment: the experiment whose next step it is.
        work: what is done with the next step.
        wait_s: seconds within which the step in progress must end; None: however long it takes.

    Raises:
        TimeoutError: it did not, and ``work`` will not be done.
        RuntimeError: the experiment is closed, or this is called on the training thread itself
            (from a callback of a step), which would wait for itself; or another experiment trains
            the model.
        Exception: whatever ``work`` raises, or fetching the batch does; the run continues.
    """
    return at_step_boundary(experiment, lambda training: _done(training, work), wait_s=wait_s)


def at_step_boundary(
    experiment: Experiment, work: Callable[[Training], T], *, wait_s: float | None = None
) -> T:
    """Return the result of ``work`` on the training itself, done at the next step boundary.

    In a function of `Experiment.on` that is now, unless ranks compute the steps.

    Raises:
        TimeoutError, RuntimeError, Exception: as `between_steps`.
    """
    refuse_if_closed(experiment)
    training = experiment._training  # pyright: ignore[reportPrivateUsage] - the same package
    runner = experiment._runner  # pyright: ignore[reportPrivateUsage] - the same package
    if runner.is_current and training.in_callback and not training.is_remote:
        return work(training)  # its function was called between two steps
    runner.refuse_inside()
    if not runner.active:
        runner.refuse_in_use()
    result: list[T] = []
    problem: list[BaseException] = []
    begun, done = threading.Event(), threading.Event()
    turn = threading.Lock()  # taken once: by the work, or by a caller that waited too long for it

    def command() -> None:
        if not turn.acquire(blocking=False):
            return
        begun.set()
        try:
            result.append(work(training))
        except BaseException as error:  # noqa: BLE001 - the caller's fault, not the run's
            problem.append(error)
        finally:
            done.set()

    runner.attend(command)
    if not begun.wait(wait_s) and turn.acquire(blocking=False):
        raise TimeoutError(
            f"the step in progress takes longer than {wait_s:g} s: call it again when it has ended"
        )
    done.wait()
    if problem:
        raise problem[0]
    return result[0]


def refuse_if_closed(experiment: Experiment) -> None:
    """Refuse to begin anything for an experiment that no longer trains.

    Raises:
        RuntimeError: it is closed.
    """
    experiment._settings.refuse_if_closed()  # pyright: ignore[reportPrivateUsage] - same package


def _done(training: Training, work: Callable[[NextStep], T]) -> T:
    outside = RandomState(training.device)
    outside.save()
    try:
        with _settled_modes(training):
            return work(_next_step(training))
    finally:
        outside.restore()


@contextmanager
def _settled_modes(training: Training) -> Generator[None]:
    """Context with the next step's modes attached, or with none if they come with that step."""
    leaving = training.attached
    if leaving is None or leaving is training.modeset:
        yield
        return
    leaving.detach(training.model)
    try:
        yield
    finally:
        leaving.attach(training.model)


def _next_step(training: Training) -> NextStep:
    return NextStep(
        name=training.name,
        step=training.step_count + 1,
        model=training.model,
        optimizer=training.optimizer,
        loss=training.loss,
        modes=training.modeset,
        is_attached=training.attached is training.modeset,
        clip_grad_norm=training.clip_grad_norm,
        device=training.device,
        batch=training.preview(),
    )


# A whole training, provided at a step boundary to be copied as it is.


def copied(experiment: Experiment, copy: Callable[[Training], None]) -> None:
    """Have ``copy`` record the training, without its modes attached; it then continues as before.

    Random states are those of the run while ``copy`` works.

    Raises:
        RuntimeError: the experiment is closed, or this is called on the training thread itself.
        Exception: whatever ``copy`` raises; the experiment continues.
    """

    def work(training: Training) -> None:
        outside, kept = RandomState(training.device), training.random.state_dict()
        outside.save()
        attached = training.attached
        if attached is not None:
            attached.detach(training.model)
        try:
            if not training.seeded:
                torch.manual_seed(training.seed)
            elif training.board.status != "training":
                training.random.restore()
            copy(training)
        finally:
            if attached is not None:
                attached.attach(training.model)
            training.random.load_state_dict(kept)
            outside.restore()

    at_step_boundary(experiment, work)
