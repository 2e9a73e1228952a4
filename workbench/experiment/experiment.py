"""`Experiment`: a model, its data and its optimizer, trained in the background.

A cell creates it, displays it, runs it and goes on working; everything that a panel or a subscriber
needs is an attribute. This is its face: every public attribute and method, with what it takes and
raises. Three collaborators do the work: `readings` for what is read, `settings` for what is set,
`control` for its commands. `training` holds the state, `runner` is the thread.
"""

from __future__ import annotations

import difflib
import inspect
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never, SupportsIndex

import torch
from torch import nn

from workbench.experiment.control import Control
from workbench.experiment.data.data import Order, data_source
from workbench.experiment.loop.monitor import Monitor, nothing_to_go_by
from workbench.experiment.loop.weight_average import WeightAverage, averaged_state_dict
from workbench.experiment.readings import Readings
from workbench.experiment.recipe.arguments import (
    check_model,
    find_device,
    move,
    positive,
    refuse_unknown,
    uncompiled,
    whole,
)
from workbench.experiment.recipe.losses import OWN_OF_VALIDATION, Loss
from workbench.experiment.recipe.optimizers import make_optimizer
from workbench.experiment.recipe.schedules import Every, Schedule
from workbench.experiment.report.events import Closed, Observer
from workbench.experiment.report.run_directory import RunFile, RunFolder, slug
from workbench.experiment.run import Run
from workbench.experiment.runtime.checkpoint_writer import CheckpointWriter, Interval
from workbench.experiment.runtime.evaluation import evaluate, predict
from workbench.experiment.runtime.runner import Runner
from workbench.experiment.runtime.step_boundary import at_step_boundary
from workbench.experiment.runtime.weights import run_directory
from workbench.experiment.services import provided
from workbench.experiment.settings import Settings
from workbench.experiment.state import compile_settings
from workbench.experiment.training import Training
from workbench.modes import find_modes
from workbench.modes.mode_spec import with_compile

if TYPE_CHECKING:
    from workbench.experiment.failure.out_of_memory import GpuUse
    from workbench.experiment.loop.monitor import Best
    from workbench.experiment.loop.probe import CaptureHandle, StepProbe
    from workbench.experiment.loop.scalars import ScalarLog
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.loop.validation import Validation
    from workbench.experiment.report.captures import CaptureStore
    from workbench.experiment.runtime.remote import RemoteSession
    from workbench.experiment.runtime.weights import LoadedWeights
    from workbench.modes import ModeSet
    from workbench.modes.effects.step_times import StepTimings
    from workbench.records import (
        CarryRow,
        Fact,
        Failure,
        Marker,
        NewerModel,
        Remedy,
        ScheduleState,
    )
    from workbench.records.panel import Status

_live: weakref.WeakSet[Experiment] = weakref.WeakSet()


def experiments() -> list[Experiment]:
    """Return all live experiments of this process, oldest first."""
    return sorted(_live, key=lambda experiment: experiment.created_at)


class Experiment:
    """Trains a classifier in the background and lets you inspect it.

    Args:
        model: any `torch.nn.Module` that returns logits ``[batch, classes]`` (or an object with
            ``.logits``).
        train: a `Dataset`, a `DataLoader`, a pair of arrays or tensors, or a Hugging Face dataset.
        val: validation data in any of these forms, evaluated after every epoch; or None.
        loss: a function ``(logits, labels) -> scalar`` or ``-> {"loss": scalar, "aux": scalar}``,
            whose other entries are logged (``train/aux``, ``val/aux``); ``"cross_entropy"``,
            ``"bce"``; or None: cross entropy, or binary cross entropy if there is one logit or the
            labels are a row of numbers for each sample (multi-label, soft labels).
        optimizer: an instance, a callable that takes the parameters, a name (``"adamw"``,
            ``"adam"``, ``"sgd"`` with momentum 0.9, ``"rmsprop"``, ``"adagrad"``), or None (AdamW).
        lr: learning rate of an optimizer given by name; by default that optimizer's own default.
        scheduler: an ``lr_scheduler``, or a callable that takes the optimizer.
        schedule_every: ``"step"`` or ``"epoch"``: whether the scheduler steps after every step or
            every epoch. If None, its class, its functions and its length decide
            (`workbench.experiment.recipe.schedules`).
        modes: a mode string such as ``"compile+bf16"``; it can be changed at any time.
        name: name of the experiment and its run directory; by default the class name of the model.
        runs: folder that contains all run directories.
        device: ``"auto"``, ``"cpu"``, ``"cuda:0"``, ...
        seed: torch is seeded with it immediately before the first step; the order of samples
            depends on it alone.
        batch_size: number of samples in a batch, if the data does not specify it.
        epochs: length of the next run, in epochs.
        shuffle: whether samples come in a new order every epoch, if the data leaves the order open.
        order: order of the samples of a `DataLoader`: ``"workbench"``, a function of ``seed`` and
            epoch that can continue from any point, or ``"loader"``, the loader's own order with its
            sampler and its generator, as in a plain loop after ``torch.manual_seed(seed)``.
        clip_grad_norm: clip the total norm of the gradients to this value before every update.
        ema: decay of a moving average of the weights, such as 0.999, which is validated beside them
            (``val/ema_loss``, ``val/ema_accuracy``) and is in every checkpoint; None: no average.
        monitor: the metric that the best checkpoint, ``patience`` and a `ReduceLROnPlateau` of the
            same direction go by: the name of any that is logged, or a pair such as ``("val/f1",
            "max")`` where the name does not say whether more is better. If None, ``"val/accuracy"``
            or else ``"val/loss"``, and a `ReduceLROnPlateau` as its own mode says.
        patience: end a run after so many epochs in which it did not get better; None: never.
        checkpoint_every: write a checkpoint after so many steps, or after a time such as
            ``"10 min"``, in addition to the ends of epochs (at most every 30 s).

    Raises:
        TypeError, ValueError: an argument cannot be used; the message says in one sentence what and
            why.

    Of its attributes, those under "what is set" can be set at any time: the value is checked at
    once, and a `ValueError` or a `TypeError` says why it cannot be used; it applies from the next
    step boundary on, which is now if nothing is running. Setting any other one raises an
    `AttributeError`, and so does a misspelt one; a closed experiment raises a `RuntimeError`.
    """

    id: str
    """Eight hexadecimal digits, drawn for every experiment."""
    created_at: float
    """Unix time of creation, in seconds."""
    dropped_points: int
    """Number of metric points lost because the disk was slow or full."""
    _is_made = False
    """Whether the experiment is fully constructed; from then on `__setattr__` checks names."""

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
        schedule_every: Every | None = None,
        modes: str = "",
        name: str | None = None,
        runs: str | Path = "runs",
        device: str | torch.device = "auto",
        seed: int = 0,
        batch_size: int = 64,
        epochs: int = 1,
        shuffle: bool = True,
        order: Order = "workbench",
        clip_grad_norm: float | None = None,
        ema: float | None = None,
        monitor: str | tuple[str, Literal["min", "max"]] | None = None,
        patience: int | None = None,
        checkpoint_every: int | str | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, Experiment.__init__, "Experiment")
        given, model = model, uncompiled(model)
        check_model(model)
        size, place = whole(batch_size, "batch_size"), find_device(device)
        interval, followed = Interval.of(checkpoint_every), Monitor(monitor, patience)
        average = None if ema is None else WeightAverage(ema)
        if patience is not None and monitor is None and val is None:
            raise ValueError(nothing_to_go_by(patience))
        if followed.metric and val is None and followed.metric[0] in OWN_OF_VALIDATION:
            raise ValueError(f"monitor is {followed.metric[0]!r}, which takes val: give val")
        if train is None:
            raise ValueError("train is None; give a Dataset, a DataLoader or a pair of arrays")
        source = data_source(
            train, batch_size=size, seed=seed, shuffle=shuffle, what="train", order=order
        )
        held_out = None
        if val is not None:
            # if the training loader draws random numbers, a plain loop draws for both loaders in
            # turn
            own: Order = "loader" if source.draws else order
            held_out = data_source(
                val, batch_size=size, seed=seed, shuffle=False, what="val", order=own
            )
        modeset, note = find_modes(modes, place, model), ""
        if given is not model:
            modeset, note = with_compile(modeset)
        loss_of_batch = Loss(loss)
        loss_of_batch.to(place)
        made = make_optimizer(
            optimizer, move(model, place), lr=lr, of_loss=loss_of_batch.parameters()
        )
        if average is not None and callable(getattr(made, "eval", None)):
            raise ValueError(
                f"{type(made).__name__} evaluates averages of its own, and ema={ema} would average "
                "weights that it does not evaluate: leave ema out"
            )
        length = whole(epochs, "epochs")
        self._training = Training(
            name=name or type(model).__name__,
            model=model,
            train=source,
            val=held_out,
            loss=loss_of_batch,
            optimizer=made,
            schedule=Schedule(scheduler, made, schedule_every),
            modeset=modeset,
            seed=seed,
            clip_grad_norm=clip_grad_norm
            if clip_grad_norm is None
            else positive(clip_grad_norm, "clip_grad_norm"),
        )
        self._training.monitor, self._training.ema = followed, average
        self._training.note(note)
        self._training.note_modes()
        self._open_folder(runs)
        self._settle(length, interval)

    @classmethod
    def around(cls, training: Training, path: Path) -> Experiment:
        """Create an experiment from an existing training, in the run directory that it has."""
        self = cls.__new__(cls)
        self._training = training
        training.note_modes()
        self._folder = RunFolder.existing(path)
        self._settle(1, Interval())
        return self

    def _open_folder(self, runs: str | Path) -> None:
        training = self._training
        self._folder = RunFolder(runs, training.name)
        if self._folder.problem:
            training.board.notes.append(self._folder.problem)
            warnings.warn(self._folder.problem, RuntimeWarning, stacklevel=3)
        else:
            number = self._folder.path.name.removeprefix(slug(training.name))
            training.name += number  # "name" is taken: this one is "name-2", here as on disk
        training.note(training.cursor.source.note)
        if training.board.notes:
            training.board.message = training.board.notes[0]

    def _settle(self, epochs: int, interval: Interval) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.created_at = time.time()
        self.dropped_points = 0
        training, folder = self._training, self._folder
        run_file = RunFile(folder, self.created_at)
        scalars, flow = training.scalars, training.measures.flow

        def beat() -> None:
            scalars.flush()
            flow.flush()
            at_work = runner()
            if at_work is not None:
                run_file.update(at_work)

        # none of these knows the experiment: it, and a model with it, is freed when the last
        # reference is gone
        writer = CheckpointWriter(folder, interval)
        self._runner = Runner(training, writer, beat)
        self._settings = Settings(training, self._runner, epochs)
        self._readings = Readings(training, self._runner, self._settings)
        self._control = Control(training, self._runner, self._settings, run_file, folder)
        compile_settings.watch()
        # weak references: the runner holds subscribers, and one that knows the experiment would
        # keep it alive; and the runner holds `beat`, which would make a reference cycle
        runner = weakref.ref(self._runner)
        self._collected = weakref.finalize(self, _collected, runner, folder)
        self._collected.atexit = False
        self._is_made = True
        _live.add(self)
        services = training.services = provided()
        for attach in services.on_new:
            attach(self)

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_made and not name.startswith("_") and name not in self.__dict__:
            found = getattr(type(self), name, None)
            if found is None or (isinstance(found, property) and found.fset is None):
                raise AttributeError(_cannot_set(type(self), name))
        super().__setattr__(name, value)

    # -- commands ---------------------------------------------------------------------------

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
        self._control.run(epochs, steps, wait=wait)
        return Run(self)

    def pause(self, *, why: str = "") -> None:
        """Pause at the next step boundary; returns at once.

        Args:
            why: reason that is shown in the status line.
        """
        self._control.pause(why)

    def resume(self) -> Run:
        """Continue a run that was paused.

        Raises:
            RuntimeError: there is nothing to continue, or the experiment is closed.
        """
        self._control.resume()
        return Run(self)

    def stop(self) -> None:
        """End the run at the next step boundary; returns at once. `run` continues from there."""
        self._control.stop()

    def step(self, count: int = 1) -> Run:
        """Do ``count`` steps in the background, then pause.

        If called again while these steps are in progress, that many more steps are done.

        Raises:
            RuntimeError: the experiment is training (pause it first), or is closed.
        """
        self._control.step(count)
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
        self._control.resume_from_failure(modes, learning_rate)
        return Run(self)

    def resume_from(
        self,
        run: Run | str | Path,
        step: int | Literal["last", "best"] = "last",
        *,
        fork: bool = False,
        trust: bool = False,
    ) -> Run:
        """Continue a run from a checkpoint: weights, moments, random states, place in the data.

        The experiment must have been created as the run's was, and must not have trained. It takes
        over the run directory, with its curves up to the checkpoint, and the end of the run:
        `resume` continues up to there, `run` for longer. Losses and metrics are those of a run that
        was never interrupted, to the last bit.

        Args:
            run: a run directory, one of its checkpoints, or a `Run`.
            step: which checkpoint: the last one, the one with the best validation, or that of a
                step.
            fork: whether the run stays as it is, and is continued in a directory of its own.
            trust: whether objects that have to be unpickled (a schedule with functions in it) are
                loaded although another user wrote them, which runs what is in them.

        Raises:
            ResumeError: there is no whole checkpoint, or it belongs to another model, other data or
                another optimizer; the message lists what differs.
            InUseError: another process, or another experiment, trains that run.
            CheckpointError: a file of the checkpoint is damaged, or not trusted.
            RuntimeError: the experiment has trained already, or is closed.
        """
        path = run_directory(run)
        self._control.resume_from(path, step, trust=trust, fork=fork)
        return Run(self)

    def load_weights(
        self,
        run: Run | str | Path,
        step: int | Literal["last", "best"] = "last",
        *,
        strict: bool = True,
        averaged: bool = False,
    ) -> LoadedWeights:
        """Load the weights of a run on disk into the model; optimizer and position stay.

        `workbench.experiment.runtime.weights.load_weights` describes what fits, for any model.

        Args:
            run: a run, its directory, or a checkpoint in it.
            step: ``"last"``, ``"best"`` (by the metric that the run goes by), or the number of a
                step that has a checkpoint.
            strict: whether a checkpoint without some of the model's tensors is refused.
            averaged: whether the moving averages of the weights are loaded (`ema`).

        Returns:
            What became of every parameter and buffer.

        Raises:
            ResumeError: there is no such checkpoint, or it does not have all of the weights.
            CheckpointError: a file of the checkpoint is damaged.
            RuntimeError: the experiment is training, or is closed.
        """
        path = run_directory(run)
        return self._control.load_weights(path, step, strict=strict, averaged=averaged)

    def swap_in_newer_model(self) -> None:
        """Swap in what `newer_model` describes, as its code does; call `resume_from_failure` next.

        Raises:
            RuntimeError: there is no newer model, or the user has to say how to build it.
            Exception: whatever building it raised.
        """
        self._control.swap_in_newer_model()

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
        self._control.apply_remedy(remedy)

    def when_free(self, action: Callable[[], object], *, ended: bool = False) -> None:
        """Call ``action`` once nothing is computed alongside a run; at once if nothing is.

        For callers that must not block: `run`, `resume` and `step` would wait for a capture of a
        run that is over, or for a prediction. Trials of remedies are ended first. An exception that
        ``action`` raises later is shown in the status line.

        Args:
            action: what is to be done.
            ended: whether to wait, as `run` does, also for the end of a run that is about to pause
                or to stop, or that does single steps. A later `pause` or `stop` cancels the action.
        """
        self._control.when_free(action, ended=ended)

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
        self._control.wait(timeout)

    def capture(self, probe: StepProbe) -> CaptureHandle:
        """Attach ``probe`` to the next step that runs.

        Only one probe of a kind inspects a step: a second one shares the record of the first. If
        nothing is training, `compute_captures` or the handle's ``wait`` has that step computed.

        Raises:
            RuntimeError: the experiment is closed.
        """
        return self._control.capture(probe)

    def compute_captures(self) -> None:
        """Have a step computed, in the background, for the captures that are waiting.

        A run in progress captures its next step by itself. A run that is paused (or has not begun)
        does its next step and pauses. A run that is over stays over: the step that would come next
        is computed, and everything in it is undone.
        """
        self._control.compute_captures()

    def follow_workers(self, session: RemoteSession, plan: Plan, *, and_pause: bool) -> None:
        """Follow steps that other processes are already computing.

        Args:
            session: the parallel session that computes them.
            plan: where the run ends.
            and_pause: whether the run is to be paused where it is found, once it is back in this
                process.
        """
        self._control.follow_workers(session, plan, and_pause=and_pause)

    def predict(self, inputs: Any) -> torch.Tensor:
        """Return logits of ``inputs``, on the CPU: in eval mode, without gradients, at any time.

        The training is not affected (`workbench.experiment.runtime.evaluation`), so there is no
        need to call ``exp.model.eval()``.

        Args:
            inputs: a tensor or an array ``[samples, ...]``, or anything else that the model takes.

        Raises:
            DataError: the inputs are not valid, or the model returns no logits.
            RuntimeError: the experiment is closed, or this is called on the training thread.
        """
        return predict(self, inputs)

    def evaluate(self, data: Any) -> Validation:
        """Compute loss, accuracy and confusion matrix over ``data`` as validation does; not logged.

        Args:
            data: anything that ``val`` may be.

        Raises:
            DataError: the data is not valid, or empty.
            RuntimeError: the experiment is closed, or this is called on the training thread.
        """
        return evaluate(self, data)

    def subscribe(self, observer: Observer, *, every_step: bool = False) -> Callable[[], None]:
        """Pass every event to ``observer``, on the training thread.

        Returns:
            A function that unsubscribes the observer.
        """
        return self._training.board.subscribe(observer, every_step=every_step)

    def on(
        self, event: Literal["step", "epoch", "validated"], function: Callable[[Any], object]
    ) -> Callable[[], None]:
        """Call ``function`` with every such event, on the training thread.

        Args:
            event: ``"step"``: after every step, with its ``step``, ``loss`` (a detached tensor),
                ``seconds`` and ``num_samples``; ``"validated"``: after every validation, with
                ``step``, ``epoch``, ``loss``, ``accuracy`` and ``confusion``, before a schedule
                steps that goes by it; ``"epoch"``: when an epoch is over, with ``step`` and
                ``epoch``.
            function: may log, pause, stop and set what can be set, which applies from the next step
                on. If it raises, the run goes on, and a note says so.

        Returns:
            A function that ends it.

        Raises:
            ValueError: there is no such event.
            TypeError: ``function`` cannot be called.
        """
        return self._control.on(event, function)

    def log(self, name: str, value: Any) -> None:
        """Log a value of your own at the current step, beside those of the run.

        In a forward, a loss or a hook the current step is the one that is computed: it is logged
        once the step has succeeded. Elsewhere it is `step_count`. On ranks a model does not have
        the experiment, and logs nothing.

        Args:
            name: its name, such as ``"val/f1"``.
            value: a number or a tensor with one element: a curve, in `run.metrics` and TensorBoard;
                it is not read from a GPU here. A dict: every entry under ``name/key``. A str: a
                text (Markdown). A matplotlib figure, a PIL image, or an array or tensor ``[height,
                width]``, ``[height, width, 3 or 4]`` or ``[1, 3 or 4, height, width]`` of uint8 or
                of floats in 0..1: an image. Texts and images are in TensorBoard.

        Raises:
            TypeError, ValueError: the name is one of the run's own, or the value cannot be logged;
                the message says why.
            RuntimeError: the experiment is closed.
        """
        self._settings.refuse_if_closed()
        self._training.logged.add(name, value)

    def close(self) -> None:
        """Stop, release worker processes, detach the modes from the model and leave every panel.

        What was measured remains readable, here and on disk; all of it has been written to disk
        when this method returns. To continue training, create a new experiment.
        """
        self._control.close()
        if not self._settings.closed:
            self._settings.closed = True
            self._training.board.emit(Closed(self.step_count))
        self._folder.remove_if_empty()
        _live.discard(self)

    # -- what is set ------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The model; assigning another one is a hot swap (`carried` lists what was kept)."""
        return self._training.model

    @model.setter
    def model(self, value: nn.Module) -> None:
        self._settings.set_model(value)

    @property
    def modes(self) -> str:
        """The modes of the next step, such as ``"compile+bf16"``."""
        return self._training.modes

    @modes.setter
    def modes(self, value: str) -> None:
        self._settings.set_modes(value)

    @property
    def card(self) -> str | None:
        """The simulated GPU for steps and validations, such as ``"8 GiB"``; None if there is none.

        The hardware of this machine is used as usual; a request that such a GPU could not serve
        raises ``torch.OutOfMemoryError`` where it is made. Set it to a name (``"RTX 4090"``), an
        amount or a number of bytes, with the allocator's settings after a comma:
        ``"8 GiB, expandable_segments:True"``.
        """
        gpu = self._training.gpu
        return None if gpu is None else str(gpu.limit)

    @card.setter
    def card(self, value: str | int | None) -> None:
        self._settings.set_gpu(value)

    @property
    def card_use(self) -> GpuUse | None:
        """Bytes allocated and reserved on the simulated GPU; None without one."""
        gpu = self._training.gpu
        return None if gpu is None else gpu.use()

    @property
    def batch_size(self) -> int | None:
        """Number of samples in a batch of the training data; None if batches come ready-made.

        Setting it divides the rest of the epoch into batches again: every sample is still seen once
        per epoch, in the order that the seed gives, whatever the size. The step count continues.
        The batch size of validation changes too if it was the same. The learning rate is not
        changed.
        """
        return self._training.cursor.source.batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        self._settings.set_batch_size(value)

    @property
    def val_batch_size(self) -> int | None:
        """Samples in a batch of validation data; None without any, or if they come ready-made."""
        val = self._training.val
        return None if val is None else val.batch_size

    @val_batch_size.setter
    def val_batch_size(self, value: int) -> None:
        self._settings.set_val_batch_size(value)

    @property
    def learning_rate(self) -> float | None:
        """The learning rate of the first parameter group that has one.

        A new value applies from the next step on. Other groups keep their ratio to it, so those at
        0 stay at 0, and the rest of a schedule is scaled by the same factor
        (`workbench.experiment.recipe.learning_rate`); ``exp.scheduler = None`` ends the schedule.
        """
        return self._training.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._settings.set_learning_rate(value)

    @property
    def lr(self) -> float | None:
        """Alias of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: float) -> None:
        self.learning_rate = value

    @property
    def scheduler(self) -> object | None:
        """The learning-rate scheduler, if any; setting None removes it and keeps the current rate.

        Raises:
            ValueError: it is set to anything other than None.
        """
        return self._training.schedule.scheduler

    @scheduler.setter
    def scheduler(self, value: None) -> None:
        self._settings.set_scheduler(value)

    @property
    def epochs(self) -> int:
        """Length of the next run, or of the one in progress, in epochs."""
        return self._settings.epochs

    @epochs.setter
    def epochs(self, value: int) -> None:
        self._settings.set_epochs(value)

    @property
    def monitor(self) -> tuple[str, Literal["min", "max"]] | None:
        """The metric that the best checkpoint, `patience` and a schedule go by; None: the default.

        Setting another one forgets the best value so far.
        """
        return self._training.monitor.metric

    @monitor.setter
    def monitor(self, value: str | tuple[str, Literal["min", "max"]] | None) -> None:
        self._settings.set_monitor(value)

    @property
    def patience(self) -> int | None:
        """Number of epochs without a better value after which a run ends; None: it goes on."""
        return self._training.monitor.patience

    @patience.setter
    def patience(self, value: int | None) -> None:
        self._settings.set_patience(value)

    def say(self, text: str) -> None:
        """Show ``text`` in the status line: at the next step boundary, at once if nothing runs."""
        self._settings.say(text)

    # -- what is read -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the experiment and of its run directory."""
        return self._training.name

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; a hot swap gives it the parameters of the new model."""
        return self._training.optimizer

    @property
    def schedule(self) -> ScheduleState | None:
        """The learning-rate schedule with its upcoming rates; None without a schedule.

        The rates are computed between steps, a few at a time, as long as this attribute is queried.
        """
        return self._readings.schedule()

    @property
    def modeset(self) -> ModeSet:
        """The modes of the next step, as objects."""
        return self._training.modeset

    @property
    def device(self) -> torch.device:
        """The device that it trains on."""
        return self._training.device

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._training.seed

    @property
    def scalars(self) -> ScalarLog:
        """Every scalar logged so far."""
        return self._training.scalars

    @property
    def timings(self) -> StepTimings:
        """Seconds per step, by mode string."""
        return self._training.timings

    @property
    def captures(self) -> CaptureStore:
        """Graph and memory records that were captured."""
        return self._training.captures

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._folder.path

    @property
    def status(self) -> Status:
        """Current status of the experiment."""
        return self._training.board.status

    @property
    def message(self) -> str:
        """Text of the status line."""
        return self._training.board.message

    @property
    def notes(self) -> list[str]:
        """What the user should know about this experiment, one sentence each."""
        return self._training.board.notes

    @property
    def failure(self) -> Failure | None:
        """Why it stopped by itself; None if it did not."""
        return self._training.board.failure

    @property
    def newer_model(self) -> NewerModel | None:
        """After a failure: whether the code now builds another model, and what would swap it in.

        This is the case if ``__init__`` was corrected and the cell of the class was run again:
        `resume` uses new methods, but not a new ``__init__``, because the old one has already built
        the model.
        """
        found = self._training.newer_model()
        return None if found is None else found.note

    @property
    def ema(self) -> float | None:
        """Decay of the moving average of the weights; None if there is none."""
        average = self._training.ema
        return None if average is None else average.decay

    def averaged_state_dict(self) -> dict[str, Any]:
        """Return a ``state_dict`` of the model with the averages as its weights, copied.

        It is taken at a step boundary. A model of the same class loads it.

        Raises:
            RuntimeError: there is no average (give ``ema``), no step has been done, the experiment
                is closed, or this is called on the training thread in a step.
        """
        return at_step_boundary(self, averaged_state_dict)

    @property
    def best(self) -> Best | None:
        """The best value of the metric that it goes by: ``name``, ``value``, ``step``, ``epoch``.

        None before the first epoch that has one.
        """
        return self._training.monitor.best

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Changes of modes, learning rate and model, by step."""
        return self._training.board.markers

    @property
    def carried(self) -> tuple[CarryRow, ...]:
        """What happened to every parameter and buffer in the last hot swap."""
        return self._training.carried

    @property
    def step_count(self) -> int:
        """Number of steps done."""
        return self._training.step_count

    @property
    def epoch(self) -> int:
        """The epoch in progress, from 1; the last one when the run is over, 0 before any step."""
        return self._runner.epoch

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch, without a last batch that the model refuses; 0 while unknown."""
        return self._training.cursor.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """The step at which the current or next run ends; 0 while unknown."""
        return self._readings.total_steps

    @property
    def samples_per_s(self) -> float | None:
        """Throughput over the last seconds, in samples per second; None before it was measured."""
        return self._training.measures.samples_per_s

    @property
    def seconds_left(self) -> float | None:
        """Remaining time in seconds at the present speed; None while unknown or not training."""
        return self._readings.seconds_left

    @property
    def loss_name(self) -> str:
        """Name of the loss, such as ``cross entropy``."""
        return self._training.loss.name

    @property
    def best_accuracy(self) -> float | None:
        """The best validation accuracy so far, in the range 0..1."""
        return self._training.best_accuracy

    @property
    def started_at(self) -> float | None:
        """Unix time of the last start, seconds."""
        return self._training.board.started_at

    def facts(self) -> tuple[Fact, ...]:
        """Describe what will run, in a few labelled lines."""
        return self._readings.facts()

    def summary(self) -> str:
        """Return a summary in a few lines of text."""
        return self._readings.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        display = self._training.services.display
        return display(self, **options) if display else {"text/plain": self.summary()}


def _cannot_set(cls: type[Experiment], name: str) -> str:
    """Explain why ``name`` cannot be set, and what can."""
    given = inspect.signature(cls).parameters
    can = [each for each in dir(cls) if getattr(getattr(cls, each), "fset", None) is not None]
    valid = f"these can be set at any time: {', '.join(can)}"
    if name in given:
        made = f"Experiment(..., {name}=...)"
        return f"{name} is given when an experiment is created, {made}, and is fixed; {valid}"
    if hasattr(cls, name):
        return f"{name} is read-only; {valid}"
    near = difflib.get_close_matches(name, [*can, *given], 1)
    meant = f", did you mean {near[0]}?" if near else ""
    return f"an experiment has no {name!r}{meant}; {valid}"


def _collected(runner: weakref.ref[Runner], folder: RunFolder) -> None:
    """End the run and remove an empty folder, when the last reference to an experiment is gone."""
    at_work = runner()
    if at_work is not None and at_work.active:  # the thread of a run holds it
        at_work.abandon()
    else:
        folder.mark_abandoned()
        folder.unlock()
    folder.remove_if_empty()
