"""`Experiment`: a model, its data and its optimizer, trained in the background.

A cell creates it, displays it, runs it and goes on working; everything a panel or a subscriber
needs is an attribute here. The work is done elsewhere: `workbench.experiment.training` holds the
state, `step` is a step, `runner` the thread.
"""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from workbench.experiment.checkpoint import CheckpointWriter
from workbench.experiment.data import data_source
from workbench.experiment.events import Closed, Observer
from workbench.experiment.facts import facts, model_facts
from workbench.experiment.failure import without_own_frames
from workbench.experiment.losses import Loss
from workbench.experiment.optimizers import Schedule, make_optimizer
from workbench.experiment.probe import StepProbe
from workbench.experiment.probing import CaptureHandle, Probing
from workbench.experiment.renew import renew_classes
from workbench.experiment.run import Run
from workbench.experiment.rundir import RunFolder, remove_if_empty, slug
from workbench.experiment.runfile import RunFile
from workbench.experiment.runner import Plan, Runner
from workbench.experiment.setup import check_model, find_device, find_modes, move, positive, whole
from workbench.experiment.training import Training
from workbench.experiment.views import Delegates

if TYPE_CHECKING:
    from workbench.records import Fact

_live: weakref.WeakSet[Experiment] = weakref.WeakSet()

assembly_hooks: list[Callable[[Experiment], None]] = []
"""Called with every new experiment, at the end of its construction."""


def experiments() -> list[Experiment]:
    """Every live experiment of this process, oldest first."""
    return sorted(_live, key=lambda experiment: experiment.created_at)


class Experiment(Delegates):
    """Trains a classifier in the background and lets you look at it.

    Args:
        model: any `torch.nn.Module` that returns logits ``[batch, classes]`` (or an object with
            ``.logits``).
        train: a `Dataset`, a `DataLoader`, a pair of arrays or tensors, or a Hugging Face dataset.
        val: the same, evaluated after every epoch; or None.
        loss: a function ``(logits, labels) -> scalar``, ``"cross_entropy"``, ``"bce"``, or None:
            cross entropy, or binary cross entropy for one logit or multi-label targets.
        optimizer: an instance, a callable that takes the parameters, a name, or None (AdamW).
        lr: learning rate of an optimizer given by name; that optimizer's default otherwise.
        scheduler: an ``lr_scheduler``, or a callable that takes the optimizer
            (`workbench.experiment.optimizers.Schedule` says when it steps).
        modes: ``"compile+bf16"``; may be changed at any time.
        name: of the experiment and its run directory; the model's class name by default.
        runs: folder of all run directories.
        device: ``"auto"``, ``"cpu"``, ``"cuda:0"``, ...
        seed: torch is seeded with it right before the first step; the order of samples depends on
            it alone.
        batch_size: where the data does not say so itself.
        epochs: length of the next run.
        shuffle: whether samples come in a new order every epoch, where that is ours to choose.
        clip_grad_norm: clip the gradients' total norm to this before every update.

    Raises:
        TypeError, ValueError: something given cannot be used; one sentence says what and why.
    """

    displayer: ClassVar[Callable[..., Any] | None] = None
    """``displayer(experiment, **options)`` gives the mime bundle of its display."""

    def __init__(
        self,
        model: nn.Module,
        train: Any,
        val: Any = None,
        *,
        loss: Any = None,
        optimizer: Any = None,
        lr: float | None = None,
        scheduler: Any = None,
        modes: str = "",
        name: str | None = None,
        runs: str | Path = "runs",
        device: str | torch.device = "auto",
        seed: int = 0,
        batch_size: int = 64,
        epochs: int = 1,
        shuffle: bool = True,
        clip_grad_norm: float | None = None,
    ) -> None:
        check_model(model)
        size, place = whole(batch_size, "batch_size"), find_device(device)
        sources = [
            None
            if data is None
            else data_source(data, batch_size=size, seed=seed, shuffle=mixed, what=what)
            for data, mixed, what in ((train, shuffle, "train"), (val, False, "val"))
        ]
        if sources[0] is None:
            raise ValueError("train is None; give a Dataset, a DataLoader or a pair of arrays")
        modeset = find_modes(modes, place)
        loss_of_batch = Loss(loss)
        loss_of_batch.to(place)
        made = make_optimizer(optimizer, move(model, place), lr=lr)
        self.id = uuid.uuid4().hex[:8]
        self.created_at = time.time()
        self._epochs = whole(epochs, "epochs")
        self._training = Training(
            name=name or type(model).__name__,
            model=model,
            train=sources[0],
            val=sources[1],
            loss=loss_of_batch,
            optimizer=made,
            schedule=Schedule(scheduler, made),
            modeset=modeset,
            seed=seed,
            clip_grad_norm=clip_grad_norm
            if clip_grad_norm is None
            else positive(clip_grad_norm, "clip_grad_norm"),
        )
        self._open_folder(runs)
        self._settle()

    def _open_folder(self, runs: str | Path) -> None:
        training = self._training
        self._folder = RunFolder(runs, training.name)
        if self._folder.problem:
            training.board.notes.append(self._folder.problem)
            warnings.warn(self._folder.problem, RuntimeWarning, stacklevel=3)
        else:
            number = self._folder.path.name.removeprefix(slug(training.name))
            training.name += number  # "name" is taken: this one is "name-2", here as on disk
        training.board.notes += [source.note for source in (training.cursor.source,) if source.note]
        if training.board.notes:
            training.board.message = training.board.notes[0]

    def _settle(self) -> None:
        folder, this = self._folder, weakref.ref(self)
        self._run_file = run_file = RunFile(folder)
        checkpoints = CheckpointWriter(folder.path)
        scalars, flow = self._training.scalars, self._training.measures.flow

        def beat() -> None:
            scalars.flush()
            flow.flush()
            experiment = this()
            if experiment is not None:
                run_file.update(experiment)

        self._runner = Runner(self._training, checkpoints, beat)
        self._context = contextvars.copy_context()
        self._facts: tuple[Any, str, str] = (None, "", "")
        self._closed = False
        self.dropped_points = 0
        self._collected = weakref.finalize(self, _collected, self._runner, folder.path)
        self._collected.atexit = False
        _live.add(self)
        for hook in tuple(assembly_hooks):
            hook(self)

    # -- running ----------------------------------------------------------------------------

    def run(
        self, epochs: int | None = None, *, steps: int | None = None, wait: bool = False
    ) -> Run:
        """Train in the background, from where it is.

        Args:
            epochs: how many more (an epoch that was begun counts as one); `epochs` by default.
            steps: how many more steps, instead.
            wait: return when the run is over. An exception in user code is then raised here. An
                interrupt of the kernel pauses the run cleanly.

        Raises:
            RuntimeError: it is training already.
            ValueError: a count is no positive whole number, or both are given.
        """
        if epochs is not None and steps is not None:
            raise ValueError("give epochs or steps, not both")
        if self._runner.ending:
            self.wait()
        if self._runner.active:
            total = f" of {self.total_steps:,}" if self.total_steps else ""
            raise RuntimeError(
                f"{self.name} is training already (step {self.step_count:,}{total}); pause or stop "
                f"it first, or wait for it with run.wait()"
            )
        if epochs is not None:
            self.epochs = epochs
        self._runner.plan = self._new_plan(steps)
        self._start(keep_error=wait)
        if wait:
            self._wait_and_raise()
        return Run(self)

    def pause(self) -> None:
        """Pause at the next step boundary; returns at once."""
        self._runner.halt("pause")

    def resume(self) -> Run:
        """Go on with a run that was paused.

        Raises:
            RuntimeError: there is nothing to go on with.
        """
        if self._runner.active:
            self._runner.submit(self._go_on)
            return Run(self)
        if self.status not in ("paused", "exception", "nan"):
            raise RuntimeError(f"{self.name} is {self.status}, not paused; start it with run()")
        self._runner.plan.halt_at = None
        self._start()
        return Run(self)

    def stop(self) -> None:
        """End the run at the next step boundary; returns at once. `run` goes on from there."""
        self._runner.halt("stop")
        self._runner.submit(self._stop_paused)

    def step(self, count: int = 1) -> Run:
        """Do ``count`` steps in the background and pause.

        Asked for again while the steps are being done, so many more are done.

        Raises:
            RuntimeError: it is training; pause it first.
        """
        steps = whole(count, "count")
        if self._runner.rehearsing:
            self.wait()
        if self._runner.active:
            if self._runner.plan.halt_at is None:
                raise RuntimeError(f"{self.name} is training; pause it before single steps")
            self._runner.submit(lambda: self._step_on(steps))
            return Run(self)
        if self.status in ("idle", "finished", "stopped"):
            self._runner.plan = self._new_plan(None)
        self._runner.plan.halt_at = self.step_count + steps
        self._start()
        return Run(self)

    def resume_from_failure(
        self, modes: str | None = None, learning_rate: float | None = None
    ) -> Run:
        """Go on after an exception or a non-finite loss, from the last good step.

        The failed batch is replayed with the current code of the model's classes: where a cell that
        defines one was run again, the model takes the new class. A batch whose loss was not finite
        is left out instead, unless ``modes`` changes: with equal weights it would fail again.

        Args:
            modes: change to these first.
            learning_rate: change to this first.

        Raises:
            RuntimeError: nothing has failed.
        """
        if self.failure is None:
            raise RuntimeError(f"{self.name} is {self.status}; there is no failure to resume from")
        was_nan, before = self.status == "nan", self.modes
        if modes is not None:
            self.modes = modes
        if learning_rate is not None:
            self.learning_rate = learning_rate
        renewed = renew_classes(self.model)
        if renewed:
            self._training.code_changed()
        if was_nan and self.modes == before and not renewed:
            self._training.cursor.skip()
        return self.resume()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no step is being done. An interrupt pauses the run first.

        Raises:
            TimeoutError: it still trains after ``timeout`` seconds.
        """
        try:
            ended = self._runner.join(timeout)
        except KeyboardInterrupt:
            self.pause()
            self._runner.join()
            raise
        if not ended:
            raise TimeoutError(f"{self.name} still trains after {timeout} s")

    def close(self) -> None:
        """Stop, let go of worker processes, leave the model as it was given and every panel.

        What was measured stays readable, here and on disk; to train on, make a new experiment.
        """
        self._runner.halt("stop")
        self.wait()
        if self.status == "paused":
            self._stop_paused()
        self._training.cursor.release()
        self._training.detach_modes()
        self._run_file.update(self)
        self._folder.remove_if_empty()
        if not self._closed:
            self._closed = True
            self._training.board.emit(Closed(self.step_count))
        _live.discard(self)

    def capture(self, probe: StepProbe) -> CaptureHandle:
        """Let ``probe`` ride along with the next step that runs.

        One probe of a kind looks at a step: a second one shares the first one's record. Where
        nothing trains, `compute_captures` or the handle's ``wait`` has that step computed.
        """
        this = weakref.ref(self)

        def run_one_step() -> bool:
            experiment = this()
            if experiment is None or experiment._runner.active:
                return False
            experiment.compute_captures()
            experiment.wait()  # so that `exp.run()` may follow at once
            return True

        handle = CaptureHandle(run_one_step)
        self._runner.submit(lambda: self._training.add_probe(Probing(probe, handle)))
        return handle

    def compute_captures(self) -> None:
        """Have a step computed, in the background, for the captures that wait for one.

        A run that is under way captures its next step by itself. A paused one (or one that has not
        begun) does its next step and pauses. One that is over stays over: the step that would come
        next is computed, and everything in it is undone.
        """
        if self._runner.active:
            self._runner.submit(self._compute_late_captures)
        elif self.status in ("finished", "stopped"):
            self._refuse_if_closed()
            self._runner.rehearse(self._context.copy())
        else:
            self.step(1)

    def subscribe(self, observer: Observer, *, every_step: bool = False) -> Callable[[], None]:
        """Hand every event to ``observer``, on the training thread; returns what ends it."""
        return self._training.board.subscribe(observer, every_step=every_step)

    # -- inside -----------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._runner.go_on() and self.status == "paused":
            self.resume()  # the pause was over before this could be carried out

    def _step_on(self, steps: int) -> None:
        plan = self._runner.plan
        if not self._runner.active:  # the last step was over before this could be carried out
            self.step(steps)
        elif plan.halt_at is not None:
            plan.halt_at += steps

    def _compute_late_captures(self) -> None:
        if not self._runner.active and self._training.probes:
            self.compute_captures()  # the last step was over before they could ride along

    def _new_plan(self, steps: int | None) -> Plan:
        if steps is not None:
            return Plan(until_step=self.step_count + whole(steps, "steps"))
        return Plan(until_epoch=self._training.cursor.epoch + self.epochs)

    def _start(self, *, keep_error: bool = False) -> None:
        self._refuse_if_closed()
        if threading.current_thread() is threading.main_thread():
            self._context = contextvars.copy_context()  # prints land in the cell that is running
        self._runner.start(self._context.copy(), keep_error=keep_error)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError(
                f"{self.name} is closed; make a new Experiment to train its model on"
            )

    def _wait_and_raise(self) -> None:
        self.wait()
        error, self._runner.error = self._runner.error, None
        if error is not None:
            try:
                raise without_own_frames(error)
            finally:
                del error  # a frame that holds its own exception would keep the step's tensors

    def _stop_paused(self) -> None:
        if self.status in ("paused", "exception", "nan"):
            self._training.cursor.release()
            self._training.board.change(
                "stopped", f"step {self.step_count:,}: stopped", self.step_count
            )
            self._run_file.update(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        displayer = type(self).displayer
        return displayer(self, **options) if displayer else {"text/plain": self.summary()}

    def facts(self) -> tuple[Fact, ...]:
        """What will run, in a few labelled lines."""
        if self._facts[0] is not self._training.guard:
            self._facts = (self._training.guard, *model_facts(self._training))
        return facts(self._training, *self._facts[1:])


def _collected(runner: Runner, folder: Path) -> None:
    """The last reference to an experiment is gone: its run ends, an empty folder goes."""
    runner.abandon()
    remove_if_empty(folder)
