"""The runner: the only thread that touches model, optimizer and data while a run is active.

It exists while steps are being done. A pause ends it, a resume starts a new one: the state of the
training is stored in `Training`, not on a stack, so a paused experiment holds no thread and can be
freed. What is requested meanwhile waits for the next step boundary
(`workbench.experiment.runtime.command_thread`).
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from workbench.experiment.failure.failure import failure_of
from workbench.experiment.failure.out_of_memory import Trials, remedied, survive
from workbench.experiment.failure.remedies import Tried
from workbench.experiment.loop.first_nonfinite_module import nan_failure
from workbench.experiment.loop.model_use import InUse, beginning, others_at_work, register
from workbench.experiment.loop.step_guard import NonFiniteError
from workbench.experiment.loop.step_undo import rehearse
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.report.events import RunStarted
from workbench.experiment.runtime import at_exit, remote
from workbench.experiment.runtime.command_thread import Worker, quietly
from workbench.experiment.runtime.remote import RemoteError, RemoteSession
from workbench.experiment.state.thread_state import ThreadState
from workbench.processes import interrupts_deferred
from workbench.records import Failure
from workbench.records.panel import Status
from workbench.trust import error_message

if TYPE_CHECKING:
    from workbench.experiment.checkpoint.folder import Checkpoint
    from workbench.experiment.runtime.checkpoint_writer import CheckpointWriter
    from workbench.experiment.training import Training

_OUT_OF_MEMORY = "step {step:,}: out of memory; paused, step not applied, nothing lost"
_AFTER_NON_FINITE = (
    "exp.failure says what was found about it. exp.resume_from_failure() leaves this batch out and "
    "goes on; with learning_rate= or modes= it changes that first."
)
_BEGUN_ANEW = (
    "The order is the loader's own, so going on begins a new pass over it and leaves out as many "
    "batches as this epoch has trained on, which may be others. Samples that are given as arrays "
    "or as a Dataset go on where they were."
)

_NOTHING_SET = ThreadState()
_LOOK_S = 0.05
"""Seconds between two checks of a run that is waited for."""

log = logging.getLogger("workbench")


class Runner(Worker):
    """Runs one `Training` to the end of a plan, and carries out commands between steps."""

    def __init__(
        self, training: Training, checkpoints: CheckpointWriter, beat: Callable[[], None]
    ) -> None:
        super().__init__(beat, lambda text: training.board.say(text, training.step_count))
        self.training = training
        self.plan = Plan()
        self.error: BaseException | None = None
        """The exception of a run that a caller waits for; its traceback holds tensors."""
        self.given: RemoteSession | None = None
        """A remote session that already runs: it is followed, not started."""
        self._kept: RemoteSession | None = None
        """A remote session whose files are kept until the last checkpoint is written."""
        self._checkpoints = checkpoints
        self._keep_error = False
        self._trials_cancelled = False
        """Whether trials of remedies have to end."""
        self._stopped_at_exit = False
        """Whether it was training when the program ended."""
        self._before: list[InUse] = []
        """Work of others that still use the same model when a run begins; it ends soon."""
        register(self)

    @property
    def ending(self) -> bool:
        """Whether it ends soon: on request, or because it does single steps or a rehearsal."""
        with self._gate:
            halting = bool(self.halted) or self.plan.halt_at is not None or self._is_over
            return self._active and (halting or self._aside) and not self._goes_on

    @property
    def epoch(self) -> int:
        """The epoch in progress, from 1; the last one when the run is over, 0 before any step."""
        cursor = self.training.cursor
        under_way = cursor.index > 0 or self.training.board.status == "training"
        return min(cursor.epoch + under_way, self.plan.until_epoch or cursor.epoch + 1)

    def go_on(self, anew: Callable[[], object]) -> bool:
        """`Worker.go_on`; single steps become a run.

        Raises:
            RuntimeError: a stop was requested.
        """
        with self._gate:
            if self._active and self.halted == "stop":
                raise RuntimeError(
                    f"{self.training.name} is being stopped, not paused; start it with run()"
                )
            going = super().go_on(anew)
            if going and not self._aside:
                self.plan.halt_at = None
            return going

    def step_on(self, steps: int, anew: Callable[[], object]) -> bool:
        """Do this many single steps in addition to those in progress; False if nothing is running.

        Args:
            steps: number of steps.
            anew: does them if the end of the run was requested, or the run has reached its end.

        Raises:
            RuntimeError: it is running, and not in single steps.
        """
        with self._gate:
            if not self._is_busy():
                return False
            if self.halted or self._is_over or self._aside or not self._active:
                self._afterwards.append(anew)
            elif self.plan.halt_at is None:
                raise RuntimeError(
                    f"{self.training.name} is training; pause it before single steps"
                )
            else:
                self.plan.halt_at += steps
            return True

    def continue_from(self, plan: Plan, checkpoint: Checkpoint) -> None:
        """Continue the run of another process, which had this plan, after a checkpoint."""
        self.plan = self._checkpoints.plan = plan
        self._checkpoints.go_on_from(checkpoint, self.training)

    def wait_for_checkpoint(self) -> None:
        """Wait until the files of a checkpoint that is being written are complete."""
        self._checkpoints.join()

    def cancel_trials(self) -> None:
        """End trials of remedies, if any are in progress, at the next request for memory."""
        self._trials_cancelled = True

    def start(
        self,
        context: Context,
        make_plan: Callable[[], Plan],
        *,
        given: RemoteSession | None = None,
        keep_error: bool = False,
        caller_settings: ThreadState = _NOTHING_SET,
    ) -> None:
        """Continue to the end of a plan on a new thread, whose prints go where ``context`` says.

        Args:
            context: context of the caller.
            make_plan: returns the `plan`; called once it is certain that no other caller has begun
                a run.
            given: a remote session that already runs.
            keep_error: whether a caller waits, so that what is raised is to be raised there.
            caller_settings: settings of the caller's thread.

        Raises:
            RuntimeError: it is already running, or another experiment trains the same model, or no
                thread can be started, or the program ends.
            KeyboardInterrupt: one came meanwhile; the run has begun, or everything is as it was
                before.
        """
        at_exit.refuse_to_begin()
        board = self.training.board
        undo: Callable[[], None] | None = None
        with self._turn:
            try:
                with interrupts_deferred():
                    undo = self._take(make_plan, given)
                self._keep_error, self.error = keep_error, None
                self.training.tried = Tried()
                step = self.training.step_count
                board.change("training", "training", step)
                board.emit(RunStarted(step, found=given is not None))
                with interrupts_deferred():
                    self._begin(context, lambda: self._attempt(caller_settings))
                    undo = None
            except BaseException:  # an interrupt too: callers would wait for nothing
                if undo is not None:
                    self._finish(undo)
                raise

    def _take(
        self, make_plan: Callable[[], Plan], given: RemoteSession | None
    ) -> Callable[[], None]:
        """Become busy with a run; return what reverts that. The caller holds the turn.

        Raises:
            RuntimeError: it is already running, or another experiment trains the same model.
        """
        with beginning, self._gate:
            if self._active:
                raise RuntimeError("this experiment is training already; pause or stop it first")
            self._before = others_at_work(self)
            self._refuse_in_use(self._before)
            board, before = self.training.board, (self.plan, self.given)
            status, message, failure = board.status, board.message, board.failure
            self.plan, self.given = make_plan(), given
            self._checkpoints.plan = self.plan
            self._occupy(aside=False)

        def undo() -> None:
            self.plan, self.given = before
            board.change(status, message, self.training.step_count, failure)

        return undo

    def rehearse(self, context: Context, caller_settings: ThreadState = _NOTHING_SET) -> None:
        """Compute a step for the probes that wait, on a new thread, and undo it; status stays.

        Args:
            context: context of the caller.
            caller_settings: settings of the caller's thread.

        Raises:
            RuntimeError: no thread can be started, or the program ends.
        """
        at_exit.refuse_to_begin()
        with self._turn, interrupts_deferred():
            with beginning, self._gate:
                if self._active:
                    return
                self.refuse_in_use()
                self._occupy(aside=True)
            self._begin_or_finish(context, lambda: self._rehearse(caller_settings))

    def refuse_in_use(self) -> None:
        """Refuse to use the model while another experiment trains it.

        Raises:
            RuntimeError: another experiment does.
        """
        self._refuse_in_use(others_at_work(self))

    def _refuse_in_use(self, others: list[InUse]) -> None:
        for other in others:
            if other.is_at_work():
                raise RuntimeError(other.refusal(self.training.name))

    def request_end(self) -> None:
        """`Worker.request_end`; trials of remedies end at once."""
        self._stopped_at_exit = self._stopped_at_exit or (self.active and not self.rehearsing)
        self.cancel_trials()
        super().request_end()

    def leave(self) -> None:
        """`Worker.leave`, with a warning if that stops the training of a script."""
        training, in_a_script = self.training, not at_exit.in_a_kernel()
        super().leave()
        if self._stopped_at_exit and in_a_script and training.board.status == "stopped":
            log.warning(
                "%s was stopped at step %s because the program ended; to train to the end, let it "
                "wait: run.wait(), or exp.run(wait=True)",
                training.name,
                f"{training.step_count:,}",
            )

    def doing(self) -> str:
        """The step in progress."""
        return f"step {self.training.step_count + 1:,} of {self.training.name}"

    def _begin_or_finish(self, context: Context, work: Callable[[], None]) -> None:
        """`_begin`, and stop being busy if that fails. The caller holds the turn."""
        try:
            self._begin(context, work)
        except RuntimeError:
            self._finish()
            raise

    # -- the thread -------------------------------------------------------------------------

    def _attempt(self, caller_settings: ThreadState) -> None:
        """Do steps until something ends them."""
        training = self.training
        training.caller_settings = caller_settings
        try:
            self._wait_for_others()
            with caller_settings.entered():
                training.note(training.schedule.settle(*self.plan.length(training)))
                training.begin()
                status = self._do_steps()
                training.end()
        except BaseException as error:  # noqa: BLE001 - user code may raise SystemExit as well
            quietly(training.end)
            if at_exit.kernel_ends() and not isinstance(error, NonFiniteError):
                self._stopped_by_the_end()
            else:
                self._failed(error)
            return
        finally:
            training.caller_settings = _NOTHING_SET  # else hooks and modes of a cell would be kept
        if status == "paused":
            quietly(self._write_now)
        else:
            quietly(training.cursor.release)
            quietly(self._write_last)
        self._end(status, "; ".join(filter(None, self._end_message(status))))

    def _wait_for_others(self) -> None:
        """Wait for the end of others that used the model, where that end is requested already.

        Raises:
            RuntimeError: one of them continues after all.
        """
        before, self._before = self._before, []
        for other in before:
            while not (self.halted or other.over.wait(_LOOK_S)):
                self._refuse_in_use([other])

    def _write_now(self) -> None:
        """Write a checkpoint of the last good step, from which the run may never continue here."""
        self._checkpoints.offer(self.training, now=True)

    def _write_last(self) -> None:
        """Write the checkpoint of the run's end, and wait until its files are complete."""
        self._checkpoints.offer(self.training, final=True)
        self._checkpoints.join()
        kept, self._kept = self._kept, None
        if kept is not None and not self._checkpoints.problem:
            kept.clear()

    def _rehearse(self, caller_settings: ThreadState) -> None:
        """Compute a step for the probes that wait; the experiment is left as it was before."""
        training, board = self.training, self.training.board
        status, message, step = board.status, board.message, training.step_count
        board.say(f"step {step + 1:,} is computed for a capture and not applied", step)
        try:
            training.caller_settings = caller_settings
            with caller_settings.entered():
                rehearse(training)
        except BaseException as error:  # noqa: BLE001 - as in a run, user code may raise anything
            message = f"the step for a capture raised {_first_line(error)}"
            training.drop_probes()
        finally:
            training.caller_settings = _NOTHING_SET
        self._end(status, message, board.failure)

    def _end_message(self, status: Status) -> tuple[str, str]:
        """How it ended, and why there is no checkpoint if there is none."""
        problem, notes = self._checkpoints.problem, self.training.board.notes
        if problem and problem not in notes:
            notes.append(problem)
        why = self.why if self.halted else self.training.monitor.why
        text = ", ".join(filter(None, [_sentence(status, self.training), why]))
        return text, problem if status != "paused" else ""

    def _do_steps(self) -> Status:
        training, plan = self.training, self.plan
        if self.given is not None:
            self._follow_remote_steps()
            if plan.reached(training):
                return "finished"
        while (status := self._at_a_boundary()) is None:
            epoch = training.cursor.epoch
            if not training.modeset.is_remote:
                training.advance()
            elif training.local_steps.is_next or training.only_ends_epoch():
                remote.advance_locally(training)
            else:
                self._follow_remote_steps()
            if training.cursor.epoch != epoch:
                self._checkpoints.after_epoch(training)
            self._checkpoints.after_step(training)
        return status

    def _at_a_boundary(self) -> Status | None:
        """Carry out what was requested; return how the run ends here, or None if it continues."""
        plan, training = self.plan, self.training
        if self._commands:
            self._carry_out()
        with self._gate:  # what is requested from here on finds that the run has ended
            status: Status | None = None
            if self.halted:
                status = "paused" if self.halted == "pause" else "stopped"
            elif plan.reached(training) or training.monitor.why:
                status = "finished"
            elif plan.halt_at is not None and training.step_count >= plan.halt_at:
                status = "paused"
            self._is_over = status is not None
        return status

    def _follow_remote_steps(self) -> None:
        """Have ranks compute steps until the plan is fulfilled or the training is needed here."""
        training = self.training
        if training.probes:
            self._capture_locally()
        session, self.given = self.given, None
        if session is None:
            send = training.services.send
            if send is None:
                raise RuntimeError(
                    f"no service computes steps under {training.modes}: create the experiment "
                    "with wb.Experiment"
                )
            session = send(training, self.plan, self._checkpoints.folder / "parallel")
        training.is_remote = True
        try:
            remote.follow(session, self.plan, self._is_wanted)
        finally:
            training.is_remote = False
            if at_exit.kernel_ends():
                self._kept = session  # it is killed after seconds, with its checkpoint half written
            else:
                session.clear()

    def _is_wanted(self) -> bool:
        """Execute the commands that do not need the training here; return whether others wait."""
        return not self._carry_out_light() or bool(self.halted or self.training.monitor.why)

    def _capture_locally(self) -> None:
        """Capture a step in one process; a fault in it does not end the run."""
        training = self.training
        try:
            remote.capture_locally(training)
        except Exception as error:
            log.exception("the step for a capture failed")
            training.board.notes.append(f"the step for a capture raised {_first_line(error)}")
            training.drop_probes()

    def _stopped_by_the_end(self) -> None:
        """End a run whose step failed only because the run was to end: that is no failure."""
        with self._gate:
            self._is_over = True
        if self.training.cursor.fetching:  # nothing of a step was done
            quietly(self._write_last)
        quietly(self.training.cursor.release)
        self._end("stopped", "; ".join(filter(None, self._end_message("stopped"))))

    def _failed(self, error: BaseException) -> None:
        """Turn what was raised into the experiment's failure; the run has ended."""
        if self._keep_error:
            self.error = error
        with self._gate:
            self._is_over = True
        status: Status = "nan" if isinstance(error, NonFiniteError) else "exception"
        step = self.training.step_count + 1
        failure = _in_short(error, step)
        text = f"step {step:,}: {type(error).__name__}; run stopped, nothing lost"
        try:
            failure, text = self._described(error, step, text)
        except BaseException:  # a run that has ended is never left as if it trained
            log.exception("the failure of step %d could not be described in full", step)
        if self._is_abandoned and status != "nan":
            # as %reset does it: names that the step needs are deleted along with the experiment
            self._stopped_by_the_end()
            return
        quietly(lambda: self.training.origin.note_failure(self.training.model))
        quietly(self._write_now)
        self._end(status, text, failure)
        if failure.capture and self.halted != "stop":
            quietly(lambda: self._look_for_remedies(failure))

    def _described(self, error: BaseException, step: int, text: str) -> tuple[Failure, str]:
        """Return failure and status line for what was raised; the latter is ``text`` by default."""
        training = self.training
        failure = self._looked_into(error, step)
        if training.cursor.fetching and training.cursor.restarts:
            text = f"step {step:,}: {type(error).__name__}; run stopped, the loader begins anew"
            failure = replace(failure, subtitle=f"{failure.subtitle} {_BEGUN_ANEW}")
        if isinstance(error, NonFiniteError):
            text = f"step {step:,}: {error}; paused, step not applied"
            error.add_note(f"{failure.title}. {failure.subtitle}")
            error.add_note(_AFTER_NON_FINITE)
        elif isinstance(error, RemoteError):
            text = f"workers ended; back at step {step - 1:,}, the last state that was kept"
        if isinstance(error, torch.OutOfMemoryError):
            failure = survive(training, error, failure)
            text = _OUT_OF_MEMORY.format(step=step)
        if training.interrupted is not None:
            failure, text = training.interrupted.explain(failure, step - 1)
        return failure, text

    def _look_for_remedies(self, failure: Failure) -> None:
        """Look for remedies on a thread that begins when this one ends; the failure is reported."""
        at_exit.refuse_to_begin()
        with self._turn, interrupts_deferred():
            with self._gate:
                if self.training.board.failure is not failure:
                    return  # the user has stopped or continued meanwhile
                if self._active:
                    self._commands.append(lambda: self._look_for_remedies(failure))
                    return
                self._occupy(aside=True)
                self._trials_cancelled = False
            context = contextvars.copy_context()
            self._begin_or_finish(context, lambda: self._try_remedies(failure))

    def _try_remedies(self, failure: Failure) -> None:
        """Try what would help until the user runs, resumes or stops."""
        board, step = self.training.board, self.training.step_count

        def cancelled() -> bool:
            return bool(self.halted) or self._trials_cancelled

        def between() -> None:
            while self._commands and not cancelled():
                self._execute(self._commands.popleft())

        def say(text: str) -> None:
            board.say(text, step)

        trials = Trials(say, cancelled, between)
        found = failure
        try:
            found = remedied(self.training, failure, trials)
        except BaseException:
            log.exception("remedies could not be tried")
        if board.failure is not failure:  # it is no longer current
            self._end(board.status, board.message, board.failure)
            return
        self._end(board.status, _with_first(failure, found), found)

    def _looked_into(self, error: BaseException, step: int) -> Failure:
        training = self.training
        try:
            if isinstance(error, NonFiniteError):
                return nan_failure(training, error)
            if isinstance(error, RemoteError):
                return error.failure(step)
            return failure_of(error, step=step, what=_doing(training))
        except BaseException:
            log.exception("the failure of step %d could not be analysed", step)
            return _in_short(error, step)

    def _end(self, status: Status, message: str, failure: Failure | None = None) -> None:
        training = self.training
        quietly(training.scalars.flush)
        self._finish(lambda: training.board.change(status, message, training.step_count, failure))


def _in_short(error: BaseException, step: int) -> Failure:
    """The failure if nothing more can be found out about it."""
    return Failure(
        kind="nan" if isinstance(error, NonFiniteError) else "exception",
        title=type(error).__name__,
        subtitle=f"Step {step:,} was not applied.",
        message=error_message(error) or type(error).__name__,
        step=step,
    )


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error_message(error)}".partition("\n")[0]


def _doing(training: Training) -> str:
    if training.validating:
        return "while validating"
    if training.cursor.fetching:
        batch, epoch = training.cursor.index + 1, training.cursor.epoch + 1
        return f"while the data was fetched for batch {batch:,} of epoch {epoch:,}"
    return ""


def _with_first(failure: Failure, found: Failure) -> str:
    """The status line after remedies were tried."""
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
