"""Control of an `Experiment`: run, pause, resume, step, stop, wait, and captures of a step.

Everything here returns at once unless stated otherwise: the runner's thread does the work, and what
is requested while a run is in progress is carried out at the next step boundary. Arguments, and
what is raised, are described where a user finds them, in `workbench.experiment.experiment`.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex

from torch import nn

from workbench.experiment.failure.failure import without_own_frames
from workbench.experiment.failure.remedies import Tried
from workbench.experiment.loop.probe import CaptureHandle, Probing, StepProbe
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.recipe.arguments import whole
from workbench.experiment.recipe.current_classes import renew_classes
from workbench.experiment.report.events import EpochDone, Event, Resumed, StepDone, Validated
from workbench.experiment.report.logged_values import handler
from workbench.experiment.report.run_lock import RunLock
from workbench.experiment.runtime import resume
from workbench.experiment.runtime.command_thread import quietly
from workbench.experiment.runtime.weights import LoadedWeights, Which, weights_into
from workbench.experiment.state import compile_settings
from workbench.experiment.state.thread_state import ThreadState
from workbench.experiment.state.user_code import callers_level
from workbench.modes import ModeSet, find_modes

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.experiment.report.run_directory import RunFile, RunFolder
    from workbench.experiment.runtime.remote import RemoteSession
    from workbench.experiment.runtime.runner import Runner
    from workbench.experiment.settings import Settings
    from workbench.experiment.training import Training
    from workbench.records import Remedy
    from workbench.records.panel import Status

log = logging.getLogger("workbench")

_EVENTS: dict[str, type[Event]] = {
    "step": StepDone,
    "epoch": EpochDone,
    "validated": Validated,
}


class RunError(RuntimeError):
    """A run ended with an exception in user code or a non-finite loss."""


class Control:
    """Methods that control the run of a training."""

    def __init__(
        self,
        training: Training,
        runner: Runner,
        settings: Settings,
        run_file: RunFile,
        run_folder: RunFolder,
    ) -> None:
        self._training = training
        self._run_folder = run_folder
        self._runner = runner
        self._settings = settings
        self._run_file = run_file
        self._context = contextvars.copy_context()
        """Context of the cell that last called a method of the experiment."""

    @property
    def _name(self) -> str:
        return self._training.name

    @property
    def _status(self) -> Status:
        return self._training.board.status

    def run(self, epochs: int | None, steps: int | None, *, wait: bool) -> None:
        """Train in the background, from the current position."""
        self._settings.refuse_if_closed()
        if epochs is not None and steps is not None:
            raise ValueError("give epochs or steps, not both")
        self._end_trials()
        if self._runner.ending:
            self.await_end()
        if self._runner.active:
            step, total = self._training.step_count, self._runner.plan.total_steps(self._training)
            of = f" of {total:,}" if total else ""
            raise RuntimeError(
                f"{self._name} is training already (step {step:,}{of}); pause or stop it first, or "
                f"wait for it with run.wait()"
            )

        def plan() -> Plan:
            if epochs is not None:
                self._settings.set_epochs(epochs)
            self._training.monitor.begin()
            return self._settings.next_plan(steps)

        try:
            self._start(plan, keep_error=wait)
        except KeyboardInterrupt:
            if wait:
                self._runner.join()
            raise
        if wait:
            self._wait_and_raise()

    def pause(self, why: str = "") -> None:
        """Pause at the next step boundary."""
        self._runner.halt("pause", why)

    def resume(self) -> None:
        """Continue a run that was paused."""
        self._settings.refuse_if_closed()
        self._end_trials()
        begin = self._starter(lambda: replace(self._runner.plan, halt_at=None))

        def restart() -> None:
            if self._status == "paused":
                begin()

        if self._runner.go_on(restart):
            return
        if self._status not in ("paused", "exception", "nan"):
            raise RuntimeError(f"{self._name} is {self._status}, not paused; start it with run()")
        begin()

    def stop(self) -> None:
        """End the run at the next step boundary."""
        self._runner.halt("stop")
        self._runner.submit(self._stop_paused)

    def close(self) -> None:
        """End the run and wait for it; all that was measured is on disk afterwards."""
        self._runner.halt("stop")
        self.await_end()
        if self._status == "paused":
            self._stop_paused()
        self._training.cursor.release(for_good=True)
        self._training.detach_modes()
        self._training.foreign_steps.close()
        self._run_file.update(self._runner)
        quietly(self._training.scalars.flush)
        self._runner.wait_for_checkpoint()
        self._run_folder.unlock()

    def step(self, count: int) -> None:
        """Do ``count`` steps in the background, then pause."""
        self._settings.refuse_if_closed()
        steps = whole(count, "count")
        self._end_trials()

        def plan() -> Plan:
            is_over = self._status in ("idle", "finished", "stopped")
            if is_over:
                self._training.monitor.begin()
            before = self._settings.next_plan() if is_over else self._runner.plan
            return replace(before, halt_at=self._training.step_count + steps)

        begin = self._starter(plan)
        if not self._runner.step_on(steps, begin):
            begin()

    def resume_from_failure(self, modes: str | None, learning_rate: float | None) -> None:
        """Continue after an exception or a non-finite loss, from the last good step."""
        self._settings.refuse_if_closed()
        training, was_nan = self._training, self._status == "nan"
        if training.board.failure is None:
            raise RuntimeError(
                f"{self._name} is {self._status}; there is no failure to resume from"
            )
        self._end_trials()
        before = training.modes
        if modes is not None:
            self._settings.set_modes(modes)
        if learning_rate is not None:
            self._settings.set_learning_rate(learning_rate)
        renewed = renew_classes(training.model)
        if renewed:
            training.code_changed()
        if was_nan and training.modes == before and not renewed and training.origin.has_failed:
            training.cursor.skip()
        self.resume()

    def resume_from(self, source: Path, which: int | str, *, trust: bool, fork: bool) -> None:
        """Continue a run from one of its checkpoints."""
        self._settings.refuse_if_closed()
        training = self._training
        self._end_trials()
        if self._runner.active or training.seeded:
            raise RuntimeError(
                f"{self._name} has trained already, and a checkpoint would replace what it has "
                "learned: run the cell that creates the experiment again, then resume_from"
            )
        self._runner.refuse_in_use()
        lock = None if fork else RunLock(resume.run_of(source))
        try:
            self._alone(lambda: self._load(source, which, lock, trust=trust))
        except BaseException:
            if lock is not None and not training.seeded:
                lock.release()
            raise

    def load_weights(
        self, source: Path, which: Which, *, strict: bool, averaged: bool
    ) -> LoadedWeights:
        """Load the weights of a run on disk, and nothing else of it."""
        self._settings.refuse_if_closed()
        training, found = self._training, list[LoadedWeights]()
        self._end_trials()
        if self._runner.active:
            raise RuntimeError(f"{self._name} is training; pause it before weights are loaded")
        self._runner.refuse_in_use()
        optimizer: Any = training.optimizer
        is_switched = training.seeded and callable(getattr(optimizer, "eval", None))

        def load() -> None:
            if is_switched:  # what is loaded is what it evaluates: it trains other weights
                optimizer.eval()
            try:
                model = training.model
                found.append(weights_into(model, source, which, strict=strict, averaged=averaged))
            finally:
                if is_switched:
                    optimizer.train()

        self._alone(load)
        step, text = training.step_count, f"weights of {source.name}, step {found[0].step:,}"
        training.board.mark(step, text)
        training.board.say(f"step {step:,}: {text}, loaded", step)
        return found[0]

    def _alone(self, work: Callable[[], None]) -> None:
        """Do work that takes long on this thread; nobody else begins with the training meanwhile.

        Raises:
            RuntimeError: another thread has begun a run at this moment.
        """
        here, done = threading.current_thread(), False

        def mine() -> None:
            nonlocal done
            if threading.current_thread() is here:  # else it was queued behind that run
                work()
                done = True

        self._runner.attend(mine)
        if not done:
            raise RuntimeError(f"{self._name} is training already; pause or stop it first")

    def _load(self, source: Path, which: int | str, lock: RunLock | None, *, trust: bool) -> None:
        """Read and compare everything, then change the training, then the disk."""
        training, board = self._training, self._training.board
        folder = resume.run_of(source)
        checkpoint, damaged = resume.find(source, which)
        newest, _ = resume.find(folder)
        if lock is not None and checkpoint.serial != newest.serial:
            raise resume.ResumeError(
                f"{folder} has a newer checkpoint, of step {newest.step:,}, which would be lost: "
                "resume_from(..., fork=True) continues from the older one in a run of its own"
            )
        is_on_ranks = training.services.is_on_ranks
        if lock is not None and is_on_ranks is not None and is_on_ranks(folder):
            raise resume.ResumeError(
                f"the training of {folder.name} is on ranks, past the checkpoint of step "
                f"{checkpoint.step:,}: wb.attach({str(folder)!r}) takes it up where they are, or "
                "where they died; resume_from(..., fork=True) continues from this checkpoint in a "
                "run of its own"
            )
        points, problems = resume.read_history(folder, checkpoint)
        loaded = resume.Loaded(training, checkpoint, trust=trust)
        try:
            self._take_modes(loaded.modes)
            loaded.take()
            if lock is None:
                resume.copy_history(folder, self._run_folder.path, checkpoint)
            else:
                cut = training.services.cut_events
                if cut is not None:
                    cut(folder, checkpoint.step)
                resume.remove_after(folder, checkpoint, damaged)
        except BaseException as error:
            self._settings.closed = True  # it has a part of the state: nothing goes on from there
            error.add_note(
                f"{self._name} has taken over a part of the checkpoint, and is closed: create the "
                f"experiment again. {folder} can still be resumed"
            )
            raise
        for name, steps, values in points:
            training.scalars.remember(name, steps, values)
        for problem in problems:
            training.note(problem)
        for one in damaged:
            training.note(
                f"{one.path.name}, of step {one.step:,}, is damaged and was set aside: the run "
                f"continues from step {checkpoint.step:,}"
            )
        if lock is None:
            self._run_folder.lineage = {"forked_from": str(folder), "forked_at": checkpoint.step}
        else:
            self._run_folder.move(folder, lock)
            self._run_file.continues()
            training.name = folder.name
        self._runner.continue_from(loaded.plan, checkpoint)
        text = f"step {checkpoint.step:,}: resumed from {checkpoint.path.name}"
        is_over = loaded.plan.reached(training) or bool(training.monitor.why)
        status: Status = "finished" if is_over else "paused"
        board.emit(Resumed(checkpoint.step, self._run_folder.path))
        board.change(status, text, checkpoint.step)
        self._run_file.update(self._runner)

    def _take_modes(self, text: str) -> None:
        """Continue under the modes of a run, unless others were chosen or cannot run here."""
        training = self._training
        if text == training.modes:
            return
        chosen = training.modes
        if chosen != str(ModeSet.parse("", training.device)):
            training.note(f"the run was under {text}, and continues under {chosen}, as was given")
            return
        try:
            training.modeset = find_modes(text, training.device, training.model)
            training.note_modes()
        except ValueError as error:
            training.note(f"the run was under {text}, and continues under {chosen}: {error}")

    def swap_in_newer_model(self) -> None:
        """Swap in the model that the code builds now, as the note on it says."""
        self._settings.refuse_if_closed()
        found = self._training.newer_model()
        if found is None or found.model is None:
            raise RuntimeError(
                found.note.text
                if found is not None
                else f"{self._name} has no newer model: run the cell that defines its class again"
            )
        self._end_trials()
        model = found.model
        self._settings.set_model(model if isinstance(model, nn.Module) else model())

    def apply_remedy(self, remedy: SupportsIndex | str | Remedy) -> None:
        """Make the change of one of the failure's remedies, as its code does."""
        self._settings.refuse_if_closed()
        training = self._training
        if self._runner.rehearsing and not training.tried.remedies:
            self.await_end()
        tried = Tried() if training.board.failure is None else training.tried
        gpu = None if training.gpu is None else str(training.gpu.limit)
        tried.chosen(remedy, gpu).make(self._settings, training.optimizer)

    def when_free(self, action: Callable[[], object], *, ended: bool) -> None:
        """Call ``action`` once nothing is computed alongside a run; at once if nothing is."""
        if self._runner.rehearsing:
            self._runner.cancel_trials()
            self._runner.submit(action)
        elif ended and self._runner.ending:
            self._runner.afterwards(action)
        else:
            action()

    def on(self, event: str, function: Callable[[Any], object]) -> Callable[[], None]:
        """Call ``function`` with every such event."""
        if event not in _EVENTS:
            raise ValueError(f"exp.on({event!r}, ...); valid: {', '.join(map(repr, _EVENTS))}")
        if not callable(function):
            raise TypeError(
                f"exp.on({event!r}, ...) was given a {type(function).__name__}; give a function of "
                "one argument, the event"
            )
        kind = _EVENTS[event]
        observer = handler(self._training, kind, event, function)
        return self._training.board.subscribe(observer, every_step=kind is StepDone)

    def wait(self, timeout: float | None) -> None:
        """Wait until no step is in progress and what was logged is in the event file."""
        self.await_end(timeout)
        self._flush_metrics()
        failure = self._training.board.failure
        if failure is not None:
            found = self._training.newer_model()
            newer = "" if found is None else f"\n{found.note.text} {found.note.code}".rstrip()
            raise RunError(
                f"{failure.title}\n{failure.message}\n{failure.traceback}".rstrip() + newer
            )

    def await_end(self, timeout: float | None = None) -> None:
        """Wait as `wait` does, whatever became of the run."""
        self._runner.refuse_inside()
        try:
            ended = self._runner.join(timeout)
        except KeyboardInterrupt:
            self.pause()
            self._runner.join()
            raise
        if not ended:
            aside = "computes a capture, or tries remedies,"
            work = aside if self._runner.rehearsing else "trains"
            raise TimeoutError(f"{self._name} still {work} after {timeout} s")

    def capture(self, probe: StepProbe) -> CaptureHandle:
        """Attach ``probe`` to the next step that runs."""
        this = weakref.ref(self)  # a handle keeps no experiment alive

        def run_one_step() -> bool:
            control = this()
            if control is None:
                return False
            control._runner.refuse_inside()
            if control._runner.active:
                return False
            control.compute_captures()
            control.await_end()  # so that `exp.run()` may follow at once
            return True

        handle = CaptureHandle(run_one_step)
        self._settings.submit(lambda: self._training.add_probe(Probing(probe, handle)))
        return handle

    def compute_captures(self) -> None:
        """Have a step computed, in the background, for the captures that are waiting."""
        if self._runner.active:
            self._runner.submit(self._compute_late_captures)
        elif self._status in ("finished", "stopped"):
            self._settings.refuse_if_closed()
            caller_settings = ThreadState.current(self._training.device)
            self._runner.rehearse(self._context_of_run(), caller_settings)
        else:
            self.step(1)

    def follow_workers(self, session: RemoteSession, plan: Plan, *, and_pause: bool) -> None:
        """Follow steps that other processes are already computing."""
        if plan.until_epoch is not None:
            plan.from_epoch = plan.until_epoch - self._settings.epochs
        self._start(lambda: plan, given=session)
        if and_pause:
            self.pause()

    # -- inside -----------------------------------------------------------------------------

    def _flush_metrics(self) -> None:
        """Wait until everything logged has been written; otherwise warn of it in the caller."""
        try:
            done = self._training.scalars.flush_sinks()
        except Exception:
            # after a CUDA assert nothing can be read any more; the run's own failure reports it
            log.exception("what %s logged last could not be read", self._name)
            return
        if not done:
            warnings.warn(
                f"the event file in {self._run_file.folder} does not hold all that {self._name} "
                "has logged so far: the disk is slow, full or unavailable. The rest is written as "
                "soon as the disk accepts it",
                RuntimeWarning,
                stacklevel=callers_level(),
            )

    def _end_trials(self) -> None:
        """Wait for what is computed alongside a run; end trials of remedies, as the user chose."""
        if self._runner.rehearsing:
            self._runner.cancel_trials()
            self.await_end()

    def _compute_late_captures(self) -> None:
        if not self._runner.active and self._training.probes:
            self.compute_captures()  # the last step had ended before they could be attached

    def _start(
        self,
        make_plan: Callable[[], Plan],
        *,
        given: RemoteSession | None = None,
        keep_error: bool = False,
    ) -> None:
        self._settings.refuse_if_closed()
        self._starter(make_plan, given=given, keep_error=keep_error)()

    def _starter(
        self,
        make_plan: Callable[[], Plan],
        *,
        given: RemoteSession | None = None,
        keep_error: bool = False,
    ) -> Callable[[], None]:
        """Return a function that starts a run on any thread, with the calling thread's settings."""
        context = self._context_of_run()
        caller_settings = ThreadState.current(self._training.device)

        def start() -> None:
            self._settings.refuse_if_closed()
            try:
                self._runner.start(
                    context,
                    make_plan,
                    given=given,
                    keep_error=keep_error,
                    caller_settings=caller_settings,
                )
            except KeyboardInterrupt:
                self.pause()  # if it has begun
                raise

        return start

    def _context_of_run(self) -> contextvars.Context:
        """Context of a run: prints go to the current or last cell, and its settings apply."""
        if threading.current_thread() is threading.main_thread():
            self._context = contextvars.copy_context()
            return self._context.copy()
        context = self._context.copy()
        compile_settings.apply(context)
        return context

    def _wait_and_raise(self) -> None:
        self.await_end()
        self._flush_metrics()
        error, self._runner.error = self._runner.error, None
        if error is not None:
            self._note_remedies(error)
            try:
                raise without_own_frames(error)
            finally:
                del error  # a frame that holds its own exception would keep the step's tensors

    def _note_remedies(self, error: BaseException) -> None:
        """Add the remedies that were found to the error itself, as notes."""
        failure = self._training.board.failure
        remedies = [] if failure is None else [one for one in failure.remedies if one.fits]
        if remedies:
            lines = [f"{one.name}:\n    {one.code}".replace("\n", "\n    ") for one in remedies]
            error.add_note("It fits with any of these, each was tried; then exp.resume():")
            error.add_note("\n".join(f"  {line}" for line in lines))

    def _stop_paused(self) -> None:
        if self._status in ("paused", "exception", "nan"):
            step = self._training.step_count
            self._training.cursor.release()
            self._training.board.change("stopped", f"step {step:,}: stopped", step)
            self._run_file.update(self._runner)
