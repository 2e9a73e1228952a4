"""`Experiment`: a model, its data and its optimizer, trained in the background.

A cell creates it, displays it, runs it and goes on working; everything that a panel or a subscriber
needs is an attribute. This module puts it together: `views` has what can be read, `settings` what
can be set, `control` the methods that control a run, `training` holds the state, `step` is a step,
`runner` the thread.
"""

from __future__ import annotations

import contextvars
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Never

import torch
from torch import nn

from workbench.experiment.control import Control
from workbench.experiment.data.data import Order, data_source
from workbench.experiment.recipe.arguments import (
    check_model,
    find_device,
    move,
    positive,
    refuse_unknown,
    uncompiled,
    whole,
)
from workbench.experiment.recipe.losses import Loss
from workbench.experiment.recipe.optimizers import make_optimizer
from workbench.experiment.recipe.schedule_forecast import ScheduleForecast
from workbench.experiment.recipe.schedules import Every, Schedule
from workbench.experiment.report.events import Closed, Observer
from workbench.experiment.report.facts import facts, model_facts
from workbench.experiment.report.run_directory import RunFile, RunFolder, remove_if_empty, slug
from workbench.experiment.runtime.checkpoint import CheckpointWriter
from workbench.experiment.runtime.command_thread import quietly
from workbench.experiment.runtime.evaluation import evaluate, predict
from workbench.experiment.runtime.runner import Runner
from workbench.experiment.state import compile_settings
from workbench.experiment.training import Training
from workbench.modes import find_modes
from workbench.modes.mode_spec import with_compile

if TYPE_CHECKING:
    from workbench.experiment.loop.validation import Validation
    from workbench.records import Fact

_live: weakref.WeakSet[Experiment] = weakref.WeakSet()

assembly_hooks: list[Callable[[Experiment], None]] = []
"""Functions that are called with every new experiment, at the end of its construction."""


def experiments() -> list[Experiment]:
    """Return all live experiments of this process, oldest first."""
    return sorted(_live, key=lambda experiment: experiment.created_at)


class Experiment(Control):
    """Trains a classifier in the background and lets you inspect it.

    Args:
        model: any `torch.nn.Module` that returns logits ``[batch, classes]`` (or an object with
            ``.logits``).
        train: a `Dataset`, a `DataLoader`, a pair of arrays or tensors, or a Hugging Face dataset.
        val: validation data in any of these forms, evaluated after every epoch; or None.
        loss: a function ``(logits, labels) -> scalar``, ``"cross_entropy"``, ``"bce"``, or None:
            cross entropy, or binary cross entropy if there is one logit or the labels are a row of
            numbers for each sample (multi-label, soft labels).
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

    Raises:
        TypeError, ValueError: an argument cannot be used; the message says in one sentence what and
            why.
    """

    displayer: ClassVar[Callable[..., Any] | None] = None
    """Function whose call ``displayer(experiment, **options)`` returns the MIME bundle of its
    display."""

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
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, Experiment.__init__, "Experiment")
        given, model = model, uncompiled(model)
        check_model(model)
        size, place = whole(batch_size, "batch_size"), find_device(device)
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
        self._introduce(whole(epochs, "epochs"))
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
        self._training.note(note)
        self._training.note_modes()
        self._open_folder(runs)
        self._settle()

    @classmethod
    def around(cls, training: Training, path: Path) -> Experiment:
        """Create an experiment from an existing training, in the run directory that it has."""
        self = cls.__new__(cls)
        self._introduce(epochs=1)
        self._training = training
        training.note_modes()
        self._folder = RunFolder.existing(path)
        self._settle()
        return self

    def _introduce(self, epochs: int) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.created_at = time.time()
        self._epochs = epochs

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

    def _settle(self) -> None:
        folder, this = self._folder, weakref.ref(self)
        self._run_file = run_file = RunFile(folder, self.created_at)
        checkpoints = CheckpointWriter(folder.path)
        scalars, flow = self._training.scalars, self._training.measures.flow

        def beat() -> None:
            scalars.flush()
            flow.flush()
            at_work = runner()
            if at_work is not None:
                run_file.update(at_work)

        def planned() -> tuple[int, int, int]:
            experiment = this()
            return (0, 0, 0) if experiment is None else experiment._planned()

        self._runner = Runner(self._training, checkpoints, beat)
        self._forecast = ScheduleForecast(self._training, planned)
        self._context = contextvars.copy_context()
        compile_settings.watch()
        self._facts: tuple[Any, str, str] = (None, "", "")
        self._closed = False
        self.dropped_points = 0
        # weak references: the runner holds subscribers, and one that knows the experiment would
        # keep it alive; and the runner holds `beat`, which would make a reference cycle
        runner = weakref.ref(self._runner)
        self._collected = weakref.finalize(self, _collected, runner, folder.path)
        self._collected.atexit = False
        self._is_made = True
        _live.add(self)
        for hook in tuple(assembly_hooks):
            hook(self)

    def close(self) -> None:
        """Stop, release worker processes, detach the modes from the model and leave every panel.

        What was measured remains readable, here and on disk; all of it has been written to disk
        when this method returns. To continue training, create a new experiment.
        """
        self._runner.halt("stop")
        self._await_end()
        if self.status == "paused":
            self._stop_paused()
        self._training.cursor.release(for_good=True)
        self._training.detach_modes()
        self._training.foreign_steps.close()
        self._run_file.update(self._runner)
        quietly(self.scalars.flush)
        if not self._closed:
            self._closed = True
            self._training.board.emit(Closed(self.step_count))
        self._folder.remove_if_empty()
        _live.discard(self)

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

    def _repr_mimebundle_(self, **options: Any) -> Any:
        displayer = type(self).displayer
        return displayer(self, **options) if displayer else {"text/plain": self.summary()}

    def facts(self) -> tuple[Fact, ...]:
        """Describe what will run, in a few labelled lines."""
        if self._facts[0] is not self._training.guard:
            self._facts = (self._training.guard, *model_facts(self._training))
        return facts(self._training, *self._facts[1:])


def _collected(runner: weakref.ref[Runner], folder: Path) -> None:
    """End the run and remove an empty folder, when the last reference to an experiment is gone."""
    at_work = runner()
    if at_work is not None and at_work.active:  # the thread of a run holds it
        at_work.abandon()
    else:
        RunFolder.existing(folder).tell_abandoned()
    remove_if_empty(folder)
