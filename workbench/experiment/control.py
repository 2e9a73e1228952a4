"""Control of an experiment: run, pause, resume, step, stop, wait, and captures of a step.

Everything here returns at once unless stated otherwise: the runner's thread does the work, and what
is requested while a run is in progress is carried out at the next step boundary.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Never, SupportsIndex

from torch import nn

from workbench.experiment.failure.failure import without_own_frames
from workbench.experiment.failure.remedies import Tried
from workbench.experiment.loop.probe import CaptureHandle, Probing, StepProbe
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.recipe.arguments import refuse_unknown, whole
from workbench.experiment.recipe.hot_swap import renew_classes
from workbench.experiment.run import Run, RunError
from workbench.experiment.state import compile_settings
from workbench.experiment.state.thread_state import ThreadState
from workbench.experiment.state.user_code import callers_level
from workbench.experiment.views import Delegates

if TYPE_CHECKING:
    from workbench.experiment.report.run_directory import RunFile
    from workbench.experiment.runtime.remote import Stretch
    from workbench.records import Remedy


log = logging.getLogger("workbench")


class Control(Delegates):
    """Methods that control a run; status, position and settings are in the base classes."""

    _context: contextvars.Context
    _run_file: RunFile

    def run(
        self,
        epochs: int | None = None,
        *,
        steps: int | None = None,
        wait: bool = False,
        **unknown: Never,
    ) -> Run:
        """Train in the background, from the current position.

        Args:
            epochs: number of further epochs (an epoch that has begun counts as one); by default the
                attribute `epochs`.
            steps: number of further steps, as an alternative to epochs.
            wait: whether to return only when the run is over. An exception in user code is then
                raised here. Interrupting the kernel pauses the run cleanly.
            **unknown: refused.

        Raises:
            TypeError: an argument is unknown; the message names the nearest valid one.
            RuntimeError: the experiment is already training, or is closed.
            ValueError: a count is not a positive whole number, or both counts are given.
        """
        refuse_unknown(unknown, self.run, "run")
        self._refuse_if_closed()
        if epochs is not None and steps is not None:
            raise ValueError("give epochs or steps, not both")
        self._end_trials()
        if self._runner.ending:
            self._await_end()
        if self._runner.active:
            total = f" of {self.total_steps:,}" if self.total_steps else ""
            raise RuntimeError(
                f"{self.name} is training already (step {self.step_count:,}{total}); pause or stop "
                f"it first, or wait for it with run.wait()"
            )

        def plan() -> Plan:
            if epochs is not None:
                self.epochs = epochs
            return self._new_plan(steps)

        try:
            self._start(plan, keep_error=wait)
        except KeyboardInterrupt:
            if wait:
                self._runner.join()
            raise
        if wait:
            self._wait_and_raise()
        return Run(self)

    def pause(self, *, why: str = "") -> None:
        """Pause at the next step boundary; returns at once.

        Args:
            why: reason that is shown in the status line.
        """
        self._runner.halt("pause", why)

    def resume(self) -> Run:
        """Continue a run that was paused.

        Raises:
            RuntimeError: there is nothing to continue, or the experiment is closed.
        """
        self._refuse_if_closed()
        self._end_trials()
        begin = self._starter(lambda: replace(self._runner.plan, halt_at=None))

        def anew() -> None:
            if self.status == "paused":
                begin()

        if self._runner.go_on(anew):
            return Run(self)
        if self.status not in ("paused", "exception", "nan"):
            raise RuntimeError(f"{self.name} is {self.status}, not paused; start it with run()")
        begin()
        return Run(self)

    def stop(self) -> None:
        """End the run at the next step boundary; returns at once. `run` continues from there."""
        self._runner.halt("stop")
        self._runner.submit(self._stop_paused)

    def step(self, count: int = 1) -> Run:
        """Do ``count`` steps in the background, then pause.

        If called again while these steps are in progress, that many more steps are done.

        Raises:
            RuntimeError: the experiment is training (pause it first), or is closed.
        """
        self._refuse_if_closed()
        steps = whole(count, "count")
        self._end_trials()

        def plan() -> Plan:
            is_over = self.status in ("idle", "finished", "stopped")
            before = self._new_plan(None) if is_over else self._runner.plan
            return replace(before, halt_at=self.step_count + steps)

        begin = self._starter(plan)
        if not self._runner.step_on(steps, begin):
            begin()
        return Run(self)

    def resume_from_failure(
        self, modes: str | None = None, learning_rate: float | None = None
    ) -> Run:
        """Continue after an exception or a non-finite loss, from the last good step.

        The failed batch is replayed with the current code of the model's classes: if a cell that
        defines one of them was run again, the model takes the new class. A batch whose loss was not
        finite is skipped instead, unless ``modes`` changes: with the same weights it would fail
        again.

        Args:
            modes: change to these modes first.
            learning_rate: change to this learning rate first.

        Raises:
            RuntimeError: there is no failure, or the experiment is closed.
        """
        self._refuse_if_closed()
        if self.failure is None:
            raise RuntimeError(f"{self.name} is {self.status}; there is no failure to resume from")
        self._end_trials()
        was_nan, before = self.status == "nan", self.modes
        if modes is not None:
            self.modes = modes
        if learning_rate is not None:
            self.learning_rate = learning_rate
        renewed = renew_classes(self.model)
        if renewed:
            self._training.code_changed()
        if was_nan and self.modes == before and not renewed and self._training.origin.has_failed:
            self._training.cursor.skip()
        return self.resume()

    def swap_in_newer_model(self) -> None:
        """Swap in what `newer_model` describes, as its code does; call `resume_from_failure` next.

        Raises:
            RuntimeError: there is no newer model, or the user has to say how to build it.
            Exception: whatever building it raised.
        """
        self._refuse_if_closed()
        found = self._training.newer_model()
        if found is None or found.model is None:
            raise RuntimeError(
                found.told.text
                if found is not None
                else f"{self.name} has no newer model: run the cell that defines its class again"
            )
        self._end_trials()
        model = found.model
        self.model = model if isinstance(model, nn.Module) else model()

    def apply_remedy(self, remedy: SupportsIndex | str | Remedy = 0) -> None:
        """Make the change of one of the failure's remedies, as its code does; call `resume` next.

        Each remedy was tried separately, on the GPU that refused the step. If they are still being
        tried, this method waits until that is done.

        Args:
            remedy: one of ``exp.failure.remedies``, its index there or its name; the first is the
                cheapest that fits.

        Raises:
            TypeError: the argument is none of these.
            ValueError: there is no such remedy, the run did not fit with it, or `card` has changed
                since.
            RuntimeError: the experiment is closed.
        """
        self._refuse_if_closed()
        if self._runner.rehearsing and not self._training.tried.remedies:
            self._await_end()
        tried = Tried() if self.failure is None else self._training.tried
        tried.chosen(remedy, self.card).make(self)

    def when_free(self, action: Callable[[], object], *, ended: bool = False) -> None:
        """Call ``action`` once nothing is computed alongside a run; at once if nothing is.

        For callers that must not block: `run`, `resume` and `step` would wait for a capture of a
        run that is over, or for a prediction. Trials of remedies are ended first. An exception that
        ``action`` raises later is shown in the status line.

        Args:
            action: what is to be done.
            ended: whether to wait, as `run` does, also for the end of a run that was asked to pause
                or to stop, or that does single steps. A later `pause` or `stop` cancels the action.
        """
        if self._runner.rehearsing:
            self._runner.cut_short()
            self._runner.submit(action)
        elif ended and self._runner.ending:
            self._runner.afterwards(action)
        else:
            action()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no step is in progress: the run is finished, stopped, paused or failed.

        This also waits for a capture that is computed alongside a run, for trials of remedies for a
        step that ran out of memory, and until the logged scalars are in the event file; if the disk
        does not take them within seconds, a warning says so.

        Raises:
            TimeoutError: work is still in progress after ``timeout`` seconds.
            RuntimeError: called on the training thread itself, from a callback of a step.
            RunError: user code raised, or the loss became non-finite. The text is the user's own
                traceback.
            KeyboardInterrupt: the kernel was interrupted; the run is paused.
        """
        self._await_end(timeout)
        self._flush_metrics()
        failure = self.failure
        if failure is not None:
            newer = self.newer_model
            raise RunError(
                f"{failure.title}\n{failure.message}\n{failure.traceback}".rstrip()
                + (f"\n{newer.text} {newer.code}".rstrip() if newer else "")
            )

    def capture(self, probe: StepProbe) -> CaptureHandle:
        """Attach ``probe`` to the next step that runs.

        Only one probe of a kind inspects a step: a second one shares the record of the first. If
        nothing is training, `compute_captures` or the handle's ``wait`` has that step computed.

        Raises:
            RuntimeError: the experiment is closed.
        """
        this = weakref.ref(self)

        def run_one_step() -> bool:
            experiment = this()
            if experiment is None:
                return False
            experiment._runner.refuse_inside()
            if experiment._runner.active:
                return False
            experiment.compute_captures()
            experiment._await_end()  # so that `exp.run()` may follow at once
            return True

        handle = CaptureHandle(run_one_step)
        self._submit(lambda: self._training.add_probe(Probing(probe, handle)))
        return handle

    def compute_captures(self) -> None:
        """Have a step computed, in the background, for the captures that are waiting.

        A run in progress captures its next step by itself. A run that is paused (or has not begun)
        does its next step and pauses. A run that is over stays over: the step that would come next
        is computed, and everything in it is undone.
        """
        if self._runner.active:
            self._runner.submit(self._compute_late_captures)
        elif self.status in ("finished", "stopped"):
            self._refuse_if_closed()
            asked_from = ThreadState.current(self._training.device)
            self._runner.rehearse(self._context_of_run(), asked_from)
        else:
            self.step(1)

    def follow_workers(self, stretch: Stretch, plan: Plan, *, and_pause: bool) -> None:
        """Follow steps that other processes are already computing.

        Args:
            stretch: the parallel session that computes them.
            plan: where the run ends.
            and_pause: whether the run is to be paused where it is found, once it is back in this
                process.
        """
        if plan.until_epoch is not None:
            plan.from_epoch = plan.until_epoch - self.epochs
        self._start(lambda: plan, given=stretch)
        if and_pause:
            self.pause()

    # -- inside -----------------------------------------------------------------------------

    def _await_end(self, timeout: float | None = None) -> None:
        """Wait as `wait` does, whatever became of the run."""
        self._runner.refuse_inside()
        try:
            ended = self._runner.join(timeout)
        except KeyboardInterrupt:
            self.pause()
            self._runner.join()
            raise
        if not ended:
            aside = "computes a capture, or tries what would help,"
            work = aside if self._runner.rehearsing else "trains"
            raise TimeoutError(f"{self.name} still {work} after {timeout} s")

    def _flush_metrics(self) -> None:
        """Wait until everything logged has been written; otherwise warn of it in the caller."""
        try:
            done = self.scalars.flush_sinks()
        except Exception:
            # after a CUDA assert nothing can be read any more; the run's own failure reports it
            log.exception("what %s logged last could not be read", self.name)
            return
        if not done:
            warnings.warn(
                f"the event file in {self.path} does not hold all that {self.name} has logged yet: "
                "the disk is slow, full or gone. What waits is written once the disk takes it",
                RuntimeWarning,
                stacklevel=callers_level(),
            )

    def _end_trials(self) -> None:
        """Wait for what is computed alongside a run; end trials of remedies, as the user chose."""
        if self._runner.rehearsing:
            self._runner.cut_short()
            self._await_end()

    def _compute_late_captures(self) -> None:
        if not self._runner.active and self._training.probes:
            self.compute_captures()  # the last step had ended before they could be attached

    def _planned(self) -> tuple[int, int, int]:
        """`Plan.length` of the run in progress, or else of the next one."""
        is_over = self.status in ("idle", "finished", "stopped")
        plan = self._new_plan(None) if is_over else self._runner.plan
        return plan.length(self._training)

    def _new_plan(self, steps: int | None) -> Plan:
        if steps is not None:
            return Plan(until_step=self.step_count + whole(steps, "steps"))
        begun = self._training.cursor.epoch
        return Plan(until_epoch=begun + self.epochs, from_epoch=begun)

    def _start(
        self,
        make_plan: Callable[[], Plan],
        *,
        given: Stretch | None = None,
        keep_error: bool = False,
    ) -> None:
        self._refuse_if_closed()
        self._starter(make_plan, given=given, keep_error=keep_error)()

    def _starter(
        self,
        make_plan: Callable[[], Plan],
        *,
        given: Stretch | None = None,
        keep_error: bool = False,
    ) -> Callable[[], None]:
        """Return a function that starts a run on any thread, with the calling thread's settings."""
        context = self._context_of_run()
        asked_from = ThreadState.current(self._training.device)

        def start() -> None:
            self._refuse_if_closed()
            try:
                self._runner.start(
                    context, make_plan, given=given, keep_error=keep_error, asked_from=asked_from
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
        self._await_end()
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
        remedies = (
            [] if self.failure is None else [one for one in self.failure.remedies if one.fits]
        )
        if remedies:
            lines = [f"{one.name}:\n    {one.code}".replace("\n", "\n    ") for one in remedies]
            error.add_note("It fits, as was tried, with any of these, then exp.resume():")
            error.add_note("\n".join(f"  {line}" for line in lines))

    def _stop_paused(self) -> None:
        if self.status in ("paused", "exception", "nan"):
            self._training.cursor.release()
            self._training.board.change(
                "stopped", f"step {self.step_count:,}: stopped", self.step_count
            )
            self._run_file.update(self._runner)
