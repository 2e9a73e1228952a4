"""Settings of an `Experiment`, at any time: checked at once, applied at the next step boundary.

If nothing is running, the next step boundary is now. A change is a function of the training; it
compares with the values that hold when it is carried out, because other changes may be queued
before it.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from workbench.allocator.memory_limit import CardLimit
from workbench.experiment.data.sources import DataError
from workbench.experiment.failure.out_of_memory import CardUse, play, refuse_what_cannot_begin
from workbench.experiment.loop.first_step import describe_idle, describe_switch
from workbench.experiment.loop.local_steps import HomeSteps
from workbench.experiment.recipe.arguments import check_model, positive, uncompiled, whole
from workbench.experiment.recipe.hot_swap import refusal, swap
from workbench.experiment.recipe.hot_swap_report import left_behind
from workbench.experiment.recipe.learning_rate import (
    follow_learning_rate,
    scale_learning_rate,
    without_a_rate,
    worded,
)
from workbench.experiment.recipe.schedule_copy import is_scalable, without_drawing
from workbench.experiment.report.events import (
    LearningRateChanged,
    ModelSwapped,
    ModesChanged,
    ScheduleRemoved,
)
from workbench.modes import find_modes
from workbench.modes.effects.step_times import StepTimings

if TYPE_CHECKING:
    from workbench.experiment.data.sources import DataSource
    from workbench.experiment.runtime.runner import Runner
    from workbench.experiment.training import Training
    from workbench.modes import ModeSet


class Settings:
    """Attributes that can be set at any time.

    Raises:
        AttributeError: the attribute cannot be set; an assignment without effect is not accepted.
        RuntimeError: the experiment is closed.
    """

    _training: Training
    _runner: Runner
    _epochs: int
    _closed: bool
    _is_made = False
    """Whether the experiment is fully constructed; from then on `__setattr__` checks names."""

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_made and not name.startswith("_") and name not in self.__dict__:
            found = getattr(type(self), name, None)
            if found is None or (isinstance(found, property) and found.fset is None):
                raise AttributeError(self._cannot_set(name))
        super().__setattr__(name, value)

    def _cannot_set(self, name: str) -> str:
        """Explain why ``name`` cannot be set, and what can."""
        cls = type(self)
        given = inspect.signature(cls).parameters
        can = [each for each in dir(cls) if getattr(getattr(cls, each), "fset", None) is not None]
        valid = f"what can be set at any time is {', '.join(can)}"
        if name in given:
            made = f"Experiment(..., {name}=...)"
            return f"{name} is given where an experiment is made, {made}, and stays; {valid}"
        if hasattr(cls, name):
            return f"{name} is there to be read; {valid}"
        near = difflib.get_close_matches(name, [*can, *given], 1)
        meant = f", did you mean {near[0]}?" if near else ""
        return f"an experiment has no {name!r}{meant}; {valid}"

    @property
    def model(self) -> nn.Module:
        """The model; assigning another one is a hot swap (`carried` lists what was kept)."""
        return self._training.model

    @model.setter
    def model(self, value: nn.Module) -> None:
        self._refuse_if_closed()
        model = check_model(uncompiled(value))
        refused = self._training.modeset.refusal(model)
        if refused:
            raise ValueError(f"{refused}; change exp.modes first")
        if model is not self.model and (refused := refusal(self._training.optimizer, self.model)):
            raise ValueError(refused)
        self._submit(lambda: set_model(self._training, model))

    @property
    def modes(self) -> str:
        """The modes of the next step, such as ``"compile+bf16"``."""
        return self._training.modes

    @modes.setter
    def modes(self, value: str) -> None:
        self._refuse_if_closed()
        modeset = find_modes(value, self._training.device, self.model)
        self._submit(lambda: set_modes(self._training, modeset))

    @property
    def card(self) -> str | None:
        """The simulated GPU for steps and validations, such as ``"8 GiB"``; None if there is none.

        The hardware of this machine is used as usual; a request that such a GPU could not serve
        raises ``torch.OutOfMemoryError`` where it is made. Set it to a name (``"RTX 4090"``), an
        amount or a number of bytes, with the allocator's settings after a comma:
        ``"8 GiB, expandable_segments:True"``.
        """
        card = self._training.card
        return None if card is None else str(card.limit)

    @card.setter
    def card(self, value: str | int | None) -> None:
        self._refuse_if_closed()
        limit = None if value is None else CardLimit.parse(value)
        if limit is not None:
            refuse_what_cannot_begin(self._training, limit)
        self._submit(lambda: set_card(self._training, limit))

    @property
    def card_use(self) -> CardUse | None:
        """Bytes allocated and reserved on the simulated GPU; None without one."""
        card = self._training.card
        return None if card is None else card.use()

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
        self._refuse_if_closed()
        size = whole(value, "batch_size")
        train, val = self._training.cursor.source, self._training.val
        resized, also = train.with_batch_size(size), None
        if val is not None and val.repeats:
            try:
                also = val.with_batch_size(size)
            except DataError:
                if val.batch_size == train.batch_size:
                    raise  # else it does not follow
        self._submit(lambda: set_batches(self._training, resized, also))

    @property
    def val_batch_size(self) -> int | None:
        """Samples in a batch of validation data; None without any, or if they come ready-made."""
        val = self._training.val
        return None if val is None else val.batch_size

    @val_batch_size.setter
    def val_batch_size(self, value: int) -> None:
        self._refuse_if_closed()
        size, val = whole(value, "val_batch_size"), self._training.val
        if val is None:
            raise ValueError("there is no validation data whose batch size could be set")
        resized = val.with_batch_size(size)
        self._submit(lambda: set_validation(self._training, resized))

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
        self._refuse_if_closed()
        rate = positive(value, "learning_rate")
        self._submit(lambda: set_learning_rate(self._training, rate), light=True)

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
        self._refuse_if_closed()
        if value is not None:
            raise ValueError(
                f"exp.scheduler is set to a {type(value).__name__}; valid is None, which keeps the "
                "learning rate as it is now. A schedule is given where the experiment is made: "
                "wb.Experiment(..., scheduler=...)"
            )
        self._submit(lambda: remove_schedule(self._training), light=True)

    @property
    def epochs(self) -> int:
        """Length of the next run, or of the one in progress, in epochs."""
        return self._epochs

    @epochs.setter
    def epochs(self, value: int) -> None:
        self._refuse_if_closed()
        self._epochs = epochs = whole(value, "epochs")
        if self._training.board.status not in ("idle", "finished", "stopped"):
            self._submit(
                lambda: self._runner.plan.set_epochs(epochs, self._training.cursor.epoch),
                light=True,
            )

    def say(self, text: str) -> None:
        """Show ``text`` in the status line: at the next step boundary, at once if nothing runs."""
        self._submit(lambda: _say(self._training, text), light=True)

    # -- inside -----------------------------------------------------------------------------

    def _submit(self, command: Callable[[], object], *, light: bool = False) -> None:
        self._refuse_if_closed()
        self._runner.submit(command, light=light)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError(
                f"{self._training.name} is closed; make a new Experiment to train its model on"
            )


def set_modes(training: Training, modeset: ModeSet) -> None:
    """Switch to ``modeset`` from the next step on; nothing of the training's state is lost."""
    before = training.modeset
    if str(before) == str(modeset):
        return
    modeset.load_state_dict(before.state_dict())
    training.modeset = modeset
    training.at_home = HomeSteps()
    training.note_modes()
    text = describe_switch(before, modeset)
    _mark(training, text)
    training.board.emit(ModesChanged(training.step_count, str(before), str(modeset)))
    _say(training, f"next step runs with {text}{describe_idle(modeset, training.model)}")


def set_card(training: Training, limit: CardLimit | None) -> None:
    """From the next step on, run steps on a simulated GPU, or on the actual hardware."""
    play(training, limit)
    _mark(training, "no card" if limit is None else str(limit))
    text = "on what is there" if limit is None else f"as on a card of {limit}"
    _say(training, f"next step runs {text}")


def set_batches(training: Training, train: DataSource, val: DataSource | None) -> None:
    """Continue with the same samples in batches of another size.

    The rest of the epoch is divided into batches again, so no sample is lost or seen twice; the
    step count is kept. Step times of the old size are forgotten, as they cannot be compared.

    Args:
        training: the training that continues.
        train: its samples in batches of the new size.
        val: the same for validation, used if its batches had the same size; None leaves them.
    """
    before = training.cursor.source.batch_size
    if train.batch_size == before:
        return
    if val is not None and training.val is not None and training.val.batch_size == before:
        training.val = val
    training.cursor.resize(train)
    training.timings = StepTimings()
    text = f"batch {train.batch_size:,}"
    _mark(training, text)
    _say(training, f"next step has {text}")


def set_validation(training: Training, val: DataSource) -> None:
    """Validate on the same samples in batches of another size."""
    training.val = val


def set_learning_rate(training: Training, value: float) -> None:
    """Set the learning rate of the next step, and scale the rest of a schedule with it."""
    text, schedule = _rate_text(value), training.schedule
    if training.is_away:  # the processes that compute steps scale it
        follow_learning_rate(training.optimizer, value)
        schedule.num_changes += 1
        effect = f", and {schedule.name} goes on scaled with it" if schedule.scheduler else ""
    else:
        with without_drawing(training.device):
            scalable = is_scalable(schedule, training.optimizer)
        at_0 = without_a_rate(training.optimizer, schedule.scheduler)
        factor = scale_learning_rate(training.optimizer, schedule.scheduler, value)
        effect = schedule.scaled(factor, scalable) + _of_groups(training.optimizer, at_0)
    training.board.mark(training.step_count, text)
    training.board.emit(LearningRateChanged(training.step_count, value))
    _say(training, f"{text}{effect}")


def _of_groups(optimizer: torch.optim.Optimizer, at_0: list[int]) -> str:
    """Describe what became of the groups that were at 0 for good."""
    count = len(optimizer.param_groups)
    if not at_0 or count == 1:
        return ""
    if len(at_0) == count:
        return f"; all {count:,} parameter groups were at 0 and have it now"
    one = len(at_0) == 1
    which = ", ".join(map(str, at_0[:3])) + (", ..." if len(at_0) > 3 else "")
    return f"; parameter group{'' if one else 's'} {which} stay{'s' if one else ''} at 0"


def remove_schedule(training: Training) -> None:
    """Continue without a schedule, at the learning rate of the next step."""
    schedule, rate = training.schedule, training.learning_rate
    if schedule.scheduler is None or rate is None:
        return
    name = schedule.name
    schedule.end()
    training.board.mark(training.step_count, f"constant {_rate_text(rate)}")
    training.board.emit(ScheduleRemoved(training.step_count, name, rate))
    _say(training, f"constant {_rate_text(rate)} in the place of {name}")


def set_model(training: Training, model: nn.Module) -> None:
    """Swap the model; parameters and optimizer state that match by name and shape carry over.

    The optimizer stays the same object. Notes list what does not carry over. If it is the same
    model again, it is taken as it is now, with the train or eval mode of each module.
    """
    if model is training.model:
        training.take_train_mode()
        return
    training.detach_modes()
    before, kept = training.model, training.train_mode.kept_in_eval
    training.carried = swap(before, model, training.optimizer, training.device)
    for note in left_behind(before, model, training.optimizer, kept):
        training.note(note)
    training.adopt(model)
    training.note_modes()
    training.timings = StepTimings()  # those of another model cannot be compared
    text = f"new {type(model).__name__}"
    training.board.mark(training.step_count, text)
    training.board.emit(ModelSwapped(training.step_count, training.carried))
    rows = [row for row in training.carried if row.kind == "parameter"]
    carried = sum(row.outcome == "carried" for row in rows)
    total = sum(row.outcome != "dropped" for row in rows)
    _say(training, f"{text}: {carried:,} of {total:,} parameters carried over")


def _rate_text(rate: float) -> str:
    """``lr 5e-1``."""
    mantissa, exponent = worded(rate).split("e")
    return f"lr {mantissa.removesuffix('.0')}e{exponent}"


def _mark(training: Training, text: str) -> None:
    """Draw a marker, if a step has been done with other settings."""
    if training.step_count:
        training.board.mark(training.step_count, text)


def _say(training: Training, text: str) -> None:
    step = training.step_count
    training.board.say(f"step {step:,}: {text}", step)
