"""The runner: the only thread that touches model, optimizer and data while a run is active.

It exists while steps are being done. A pause ends it, a resume starts a new one: the state of the
training lies in `Training`, not on a stack, so a paused experiment holds no thread and can be
freed. Commands are queued and carried out between two steps; while no thread runs, the caller
carries them out itself. Work that takes long (`attend`) keeps the runner busy, but nobody waits for
its lock: what is asked for meanwhile is queued. A second thread, the *pulse*, reads scalars ten
times a second and writes ``run.json``.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from workbench.experiment.events import RunStarted
from workbench.experiment.failure import failure_of
from workbench.experiment.guard import NonFiniteError
from workbench.experiment.nonfinite import nan_failure
from workbench.experiment.openmp import release_team
from workbench.experiment.out_of_memory import Trials, remedied, survive
from workbench.experiment.plan import Plan
from workbench.experiment.rehearsal import rehearse
from workbench.records import Failure
from workbench.records.panel import Status

if TYPE_CHECKING:
    from workbench.experiment.checkpoint import CheckpointWriter
    from workbench.experiment.training import Training

PULSE_S = 0.1
_OUT_OF_MEMORY = "step {step:,}: out of memory; paused, step not applied, nothing lost"

log = logging.getLogger("workbench")


class _Stretch(NamedTuple):
    """Who is at the training, or was last."""

    thread: threading.Thread
    over: threading.Event
    is_ours: bool
    """Whether the thread was begun for it and ends with it; else it is a caller's."""


class _Long(NamedTuple):
    """A command that takes long: carried out without the lock."""

    work: Callable[[], None]

    def __call__(self) -> None:
        self.work()


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
        self._commands: deque[Callable[[], object]] = deque()
        self._halt: Literal["", "pause", "stop"] = ""
        self._keep_error = False
        self._rehearsal = False
        self._cut = False
        """Whether trials of remedies are to end."""
        self._active = False
        self._stretch: _Stretch | None = None

    @property
    def active(self) -> bool:
        """Whether the thread is doing steps."""
        return self._active

    @property
    def is_current(self) -> bool:
        """Whether the thread that does steps is the one that asks."""
        stretch = self._stretch
        here = threading.current_thread()
        return self._active and stretch is not None and stretch.thread is here

    @property
    def ending(self) -> bool:
        """Whether the thread was asked to pause or stop, or does single steps or a rehearsal."""
        halting = bool(self._halt) or self.plan.halt_at is not None
        return self._active and (halting or self._rehearsal)

    @property
    def rehearsing(self) -> bool:
        """Whether something is computed that is no step of a run: a capture, trials, `attend`."""
        return self._active and self._rehearsal

    def cut_short(self) -> None:
        """End trials of remedies, if any are under way, at the next request for memory."""
        self._cut = True

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
            self._occupy()
            self._begin(context, self._rehearse)

    def _begin(self, context: Context, work: Callable[[], None]) -> None:
        release_team()
        over, before = threading.Event(), self._stretch
        thread = threading.Thread(
            target=context.run,
            args=(self._work, work, before, over),
            name="workbench-runner",
            daemon=True,
        )
        self._stretch = _Stretch(thread, over, is_ours=True)
        thread.start()

    def submit(self, command: Callable[[], object]) -> None:
        """Carry out ``command``, which is short, at the next step boundary; else at once."""
        with self._gate:
            if self._active:
                self._commands.append(command)
            else:
                command()

    def attend(self, work: Callable[[], None]) -> None:
        """Do ``work``, which takes long, at the next step boundary; else at once, on this thread.

        The runner is busy meanwhile as in a rehearsal; what is asked of it waits in the queue, and
        who asks does not wait.
        """
        here = threading.current_thread()
        with self._gate:
            if self._active:
                self._commands.append(_Long(work))
                return
            before = mine = self._stretch
            if before is None or before.over.is_set() or before.thread is not here:
                mine = self._stretch = _Stretch(here, threading.Event(), is_ours=False)
            self._occupy()
        try:
            if before is not None and mine is not before:
                before.over.wait()
            work()
        finally:
            self._idle()
            if mine is not None and mine is not before:
                mine.over.set()

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
        last: _Stretch | None = None
        while self._stretch is not last:  # a step asked for at the very end begins a new thread
            last = self._stretch
            if last is None or last.thread is threading.current_thread():
                return True
            # an interrupt inside Thread.join marks a live thread as ended (bpo-45274): wait first
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not last.over.wait(left):
                return False
            if last.is_ours:
                last.thread.join()
        return True

    # -- the thread -------------------------------------------------------------------------

    def _work(
        self, work: Callable[[], None], before: _Stretch | None, over: threading.Event
    ) -> None:
        if before is not None:
            before.over.wait()
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
        if isinstance(error, torch.OutOfMemoryError):
            failure = survive(training, error, failure)
            text = _OUT_OF_MEMORY.format(step=step)
        self._end(status, text, failure)
        if failure.capture and self._halt != "stop":
            self._look_for_remedies(failure)

    def _look_for_remedies(self, failure: Failure) -> None:
        """On a thread that begins when this one ends; the failure is told already."""
        with self._gate:
            if self.training.board.failure is not failure:
                return  # somebody has stopped or gone on meanwhile
            if self._active:
                self._commands.append(lambda: self._look_for_remedies(failure))
            else:
                self._occupy()
                self._cut = False
                self._begin(contextvars.copy_context(), lambda: self._try_remedies(failure))

    def _try_remedies(self, failure: Failure) -> None:
        """Try what would help until somebody runs, resumes or stops."""
        board, step = self.training.board, self.training.step_count

        def cancelled() -> bool:
            return bool(self._halt) or self._cut

        def between() -> None:
            while self._commands and not cancelled():
                self._after_the_end(self._commands.popleft())

        def say(text: str) -> None:
            board.say(text, step)

        trials = Trials(say, cancelled, between)
        found = failure
        try:
            found = remedied(self.training, failure, trials)
        except BaseException:
            log.exception("remedies could not be tried")
        if board.failure is not failure:  # it is no longer so
            self._end(board.status, board.message, board.failure)
            return
        self._end(board.status, _with_first(failure, found), found)

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
            work = self._late()
        while work is not None:
            self._after_the_end(work)
            work = self._next_late()

    def _idle(self) -> None:
        """`attend` is over: what was asked for meanwhile is carried out."""
        while (work := self._next_late()) is not None:
            self._after_the_end(work)

    def _next_late(self) -> Callable[[], object] | None:
        with self._gate:
            self._active = self._rehearsal = False
            return self._late()

    def _late(self) -> Callable[[], object] | None:
        """Carry out what came too late for a step; work that takes long is given back instead.

        Held: the gate. Where there is such work, the runner is busy with it already; where one of
        the commands has begun a new run, that does the rest.
        """
        while self._commands:
            if isinstance(self._commands[0], _Long):
                if self._active:
                    return None
                self._occupy()
                return self._commands.popleft()
            self._after_the_end(self._commands.popleft())
        return None

    def _occupy(self) -> None:
        """Be busy with what is no run."""
        self._active, self._halt, self._rehearsal = True, "", True

    def _after_the_end(self, command: Callable[[], object]) -> None:
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


def _with_first(failure: Failure, found: Failure) -> str:
    """The status line once remedies were tried."""
    text = _OUT_OF_MEMORY.format(step=failure.step)
    fitting = [remedy for remedy in found.remedies if remedy.fits]
    return f"{text}. It would fit with {fitting[0].name}" if fitting else text


def _sentence(status: Status, training: Training) -> str:
    step, epochs = training.step_count, training.cursor.epoch
    if status == "finished":
        return f"finished: {step:,} step{_s(step)}, {epochs:,} epoch{_s(epochs)}"
    return f"step {step:,}: {status}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
