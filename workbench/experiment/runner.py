"""The runner: the only thread that touches model, optimizer and data while a run is active.

It exists while steps are being done. A pause ends it, a resume starts a new one: the state of the
training lies in `Training`, not on a stack, so a paused experiment holds no thread and can be
freed. Commands are queued and carried out between two steps; while no thread runs, the caller
carries them out itself. A second thread, the *pulse*, reads scalars ten times a second and writes
``run.json``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.experiment.events import RunStarted
from workbench.experiment.failure import failure_of
from workbench.experiment.guard import NonFiniteError
from workbench.experiment.nonfinite import nan_failure
from workbench.experiment.openmp import release_team
from workbench.experiment.rehearsal import rehearse
from workbench.records import Failure
from workbench.records.panel import Status

if TYPE_CHECKING:
    from workbench.experiment.checkpoint import CheckpointWriter
    from workbench.experiment.training import Training

PULSE_S = 0.1

log = logging.getLogger("workbench")


@dataclass(slots=True)
class Plan:
    """Where a run ends: at a number of steps or of epochs, counted from the very first."""

    until_step: int | None = None
    until_epoch: int | None = None
    halt_at: int | None = None
    """Pause once so many steps are done (single-stepping)."""

    def reached(self, training: Training) -> bool:
        """Whether the run is over. Single steps asked for past its end make it longer."""
        if self.until_step is not None:
            over = training.step_count >= self.until_step
        else:
            over = self.until_epoch is not None and training.cursor.epoch >= self.until_epoch
        if over and self.halt_at is not None and training.step_count < self.halt_at:
            if self.until_step is not None:
                self.until_step = self.halt_at
            else:
                self.until_epoch = training.cursor.epoch + 1
            return False
        return over

    def lengthen(self, epochs: int, current: int) -> None:
        """End so many epochs later (or sooner, but not before the one under way)."""
        if self.until_epoch is not None:
            self.until_epoch = max(self.until_epoch + epochs, current + 1)

    def total_steps(self, training: Training) -> int:
        """The step at which it ends; 0 while the length of an epoch is unknown."""
        cursor = training.cursor
        if self.until_step is not None:
            return self.until_step
        if not cursor.steps_per_epoch or self.until_epoch is None:
            return 0
        epochs = self.until_epoch - cursor.epoch
        return training.step_count - cursor.index + epochs * cursor.steps_per_epoch


class Runner:
    """Runs one `Training` to the end of a plan, and carries out commands between steps."""

    def __init__(
        self, training: Training, checkpoints: CheckpointWriter, beat: Callable[[], None]
    ) -> None:
        self.training = training
        self.plan = Plan()
        self.error: BaseException | None = None
        """The exception of a run somebody waits for; its traceback holds tensors."""
        self._checkpoints = checkpoints
        self._beat = beat
        self._gate = threading.RLock()
        self._commands: deque[Callable[[], None]] = deque()
        self._halt: Literal["", "pause", "stop"] = ""
        self._keep_error = False
        self._rehearsal = False
        self._active = False
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._over.set()

    @property
    def active(self) -> bool:
        """Whether the thread is doing steps."""
        return self._active

    @property
    def ending(self) -> bool:
        """Whether the thread was asked to pause or stop, or does single steps or a rehearsal."""
        halting = bool(self._halt) or self.plan.halt_at is not None
        return self._active and (halting or self._rehearsal)

    @property
    def rehearsing(self) -> bool:
        """Whether the thread computes a step that is not applied."""
        return self._active and self._rehearsal

    def go_on(self) -> bool:
        """Forget a pause that has not happened yet; False where nothing runs any more."""
        if self._active and self._halt == "pause":
            self._halt = ""
        return self._active

    def start(self, context: Context, *, keep_error: bool = False) -> None:
        """Go on with `plan` on a new thread, whose prints go where ``context`` says.

        Raises:
            RuntimeError: it runs already.
        """
        with self._gate:
            if self._active:
                raise RuntimeError("this experiment is training already; pause or stop it first")
            self._active, self._halt = True, ""
            self._keep_error, self.error = keep_error, None
            step = self.training.step_count
            self.training.board.change("training", "training", step)
            self.training.board.emit(RunStarted(step))
            self._begin(context, self._attempt)

    def rehearse(self, context: Context) -> None:
        """Compute a step for the probes that wait, on a new thread, and undo it; status stays."""
        with self._gate:
            if self._active:
                return
            self._active, self._halt, self._rehearsal = True, "", True
            self._begin(context, self._rehearse)

    def _begin(self, context: Context, work: Callable[[], None]) -> None:
        release_team()
        self._over, before = threading.Event(), self._over
        self._thread = threading.Thread(
            target=context.run,
            args=(self._work, work, before, self._over),
            name="workbench-runner",
            daemon=True,
        )
        self._thread.start()

    def submit(self, command: Callable[[], None]) -> None:
        """Carry out ``command`` at the next step boundary; at once where nothing runs."""
        with self._gate:
            if self._active:
                self._commands.append(command)
            else:
                command()

    def halt(self, how: Literal["pause", "stop"]) -> None:
        """Pause or stop at the next step boundary; nothing happens where nothing runs."""
        with self._gate:
            if self._active and self._halt != "stop":
                self._halt = how

    def abandon(self) -> None:
        """`halt` for a finalizer: it may run on any thread, inside any lock, and so takes none."""
        self._halt = "stop"

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no thread of this runner is left; False if ``timeout`` seconds passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        thread: threading.Thread | None = None
        while self._thread is not thread:  # a step asked for at the very end begins a new thread
            thread, over = self._thread, self._over
            if thread is None or thread is threading.current_thread():
                return True
            # an interrupt inside Thread.join marks a live thread as ended (bpo-45274): wait first
            if not over.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                return False
            thread.join()
        return True

    # -- the thread -------------------------------------------------------------------------

    def _work(
        self, work: Callable[[], None], before: threading.Event, over: threading.Event
    ) -> None:
        before.wait()
        ended = threading.Event()
        pulse = threading.Thread(
            target=_pulse, args=(ended, self._beat), name="workbench-pulse", daemon=True
        )
        pulse.start()
        try:
            work()
        finally:
            ended.set()
            pulse.join()
            _quietly(self._beat)
            over.set()

    def _attempt(self) -> None:
        """Do steps until something ends them."""
        training = self.training
        try:
            training.begin()
            status = self._do_steps()
            training.end()
        except BaseException as error:  # noqa: BLE001 - user code may raise SystemExit as well
            _quietly(training.end)
            self._failed(error)
            return
        if status != "paused":
            _quietly(training.cursor.release)
            self._checkpoints.offer(training, final=True)
            self._checkpoints.join()
        self._end(status, "; ".join(filter(None, self._last_words(status))))

    def _rehearse(self) -> None:
        """Compute a step for the probes that wait; the experiment is what it was before."""
        training, board = self.training, self.training.board
        status, message, step = board.status, board.message, training.step_count
        board.say(f"step {step + 1:,} is computed for a capture and not applied", step)
        try:
            rehearse(training)
        except BaseException as error:  # noqa: BLE001 - as in a run, user code may raise anything
            first = str(error).partition("\n")[0]
            message = f"the step for a capture raised {type(error).__name__}: {first}"
            training.drop_probes()
        self._end(status, message, board.failure)

    def _last_words(self, status: Status) -> tuple[str, str]:
        """How it ended, and why there is no checkpoint where there is none."""
        problem, notes = self._checkpoints.problem, self.training.board.notes
        if problem and problem not in notes:
            notes.append(problem)
        return _sentence(status, self.training), problem if status != "paused" else ""

    def _do_steps(self) -> Status:
        training, plan = self.training, self.plan
        while True:
            if self._commands:
                self._carry_out()
            if self._halt:
                return "paused" if self._halt == "pause" else "stopped"
            if plan.reached(training):
                return "finished"
            if plan.halt_at is not None and training.step_count >= plan.halt_at:
                return "paused"
            epoch = training.cursor.epoch
            training.advance()
            if training.cursor.epoch != epoch:
                self._checkpoints.offer(training)

    def _carry_out(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _failed(self, error: BaseException) -> None:
        """Turn what was raised into the experiment's failure; the run has ended."""
        training = self.training
        if self._keep_error:
            self.error = error
        step = training.step_count + 1
        if isinstance(error, NonFiniteError):
            status, failure = "nan", self._described(error)
            text = f"step {step:,}: {error}; paused, step not applied"
            error.add_note(f"{failure.title}. {failure.subtitle}")
        else:
            status = "exception"
            failure = self._described(error)
            text = f"step {step:,}: {type(error).__name__}; run stopped, nothing lost"
        self._end(status, text, failure)

    def _described(self, error: BaseException) -> Failure:
        training = self.training
        step = training.step_count + 1
        try:
            if isinstance(error, NonFiniteError):
                return nan_failure(training, error)
            return failure_of(error, step=step, what=_doing(training))
        except Exception:
            log.exception("the failure of step %d could not be looked into", step)
            nan = isinstance(error, NonFiniteError)
            return Failure(
                kind="nan" if nan else "exception",
                title=type(error).__name__,
                subtitle=f"Step {step:,} was not applied.",
                message=str(error) or type(error).__name__,
                step=step,
            )

    def _end(self, status: Status, message: str, failure: Failure | None = None) -> None:
        training = self.training
        _quietly(training.scalars.flush)
        with self._gate:
            self._active = self._rehearsal = False
            training.board.change(status, message, training.step_count, failure)
            while self._commands:
                self._after_the_end(self._commands.popleft())

    def _after_the_end(self, command: Callable[[], None]) -> None:
        """Carry out a command that came too late for a step; its fault is said, not raised."""
        try:
            command()
        except Exception as error:
            log.exception("a command failed after the run had ended")
            self.training.board.say(f"{type(error).__name__}: {error}", self.training.step_count)


def _pulse(ended: threading.Event, beat: Callable[[], None]) -> None:
    while not ended.wait(PULSE_S):
        _quietly(beat)


def _quietly(action: Callable[[], object]) -> None:
    """Do what may fail (after a CUDA assert everything does) without leaving a run half ended."""
    try:
        action()
    except Exception:
        log.exception(
            "%s failed while a run was under way", getattr(action, "__qualname__", action)
        )


def _doing(training: Training) -> str:
    if training.validating:
        return "while validating"
    if training.cursor.fetching:
        batch, epoch = training.cursor.index + 1, training.cursor.epoch + 1
        return f"while the data was fetched for batch {batch:,} of epoch {epoch:,}"
    return ""


def _sentence(status: Status, training: Training) -> str:
    step, epochs = training.step_count, training.cursor.epoch
    if status == "finished":
        return f"finished: {step:,} step{_s(step)}, {epochs:,} epoch{_s(epochs)}"
    return f"step {step:,}: {status}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
