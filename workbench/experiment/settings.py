"""Settings of an `Experiment`, at any time: checked at once, applied at the next step boundary.

If nothing is running, the next step boundary is now. A change is a function of the training; it
compares with the values that hold when it is carried out, because other changes may be queued
before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.allocator.memory_limit import GpuLimit
from workbench.experiment.data.sources import DataError
from workbench.experiment.failure.out_of_memory import refuse_too_large_model, simulate_gpu
from workbench.experiment.loop.first_step import describe_idle, describe_switch
from workbench.experiment.loop.local_steps import LocalSteps
from workbench.experiment.loop.monitor import Monitor, direction, nothing_to_go_by
from workbench.experiment.loop.stop_condition import Plan
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
    """What can be set of a training that ``runner`` advances, and the length of its next run.

    Every method checks its argument, in the calling thread, and submits the change.

    Raises:
        RuntimeError: the experiment is closed.
        TypeError, ValueError: the argument cannot be used; the message says why.
    """

    def __init__(self, training: Training, runner: Runner, epochs: int) -> None:
        self._training = training
        self._runner = runner
        self.closed = False
        """Whether the experiment is closed: nothing can be set any more."""
        self.epochs = epochs
        """Length of the next run, or of the one in progress, in epochs."""

    def submit(self, command: Callable[[], object], *, light: bool = False) -> None:
        """Have ``command`` called at the next step boundary; at once if nothing runs.

        Args:
            command: a function without arguments.
            light: whether it touches neither model nor data (`Runner.submit`).
        """
        self.refuse_if_closed()
        self._runner.submit(command, light=light)

    def refuse_if_closed(self) -> None:
        """Raise a `RuntimeError` if the experiment is closed."""
        if self.closed:
            raise RuntimeError(
                f"{self._training.name} is closed; make a new Experiment to train its model on"
            )

    def next_plan(self, steps: int | None = None) -> Plan:
        """Return the plan of a run from here, of ``steps`` steps or else of `epochs`."""
        if steps is not None:
            return Plan(until_step=self._training.step_count + whole(steps, "steps"))
        begun = self._training.cursor.epoch
        return Plan(until_epoch=begun + self.epochs, from_epoch=begun)

    def planned_length(self) -> tuple[int, int, int]:
        """`Plan.length` of the run in progress, or else of the next one."""
        is_over = self._training.board.status in ("idle", "finished", "stopped")
        plan = self.next_plan() if is_over else self._runner.plan
        return plan.length(self._training)

    def set_model(self, value: nn.Module) -> None:
        """Swap the model for ``value``."""
        self.refuse_if_closed()
        training = self._training
        model = check_model(uncompiled(value))
        refused = training.modeset.refusal(model)
        if refused:
            raise ValueError(f"{refused}; change exp.modes first")
        if model is not training.model and (refused := refusal(training.optimizer, training.model)):
            raise ValueError(refused)
        self.submit(lambda: set_model(training, model))

    def set_modes(self, value: str) -> None:
        """Switch to the modes of a mode string."""
        self.refuse_if_closed()
        modeset = find_modes(value, self._training.device, self._training.model)
        self.submit(lambda: set_modes(self._training, modeset))

    def set_gpu(self, value: str | int | None) -> None:
        """Simulate the GPU that ``value`` describes; None for the hardware itself."""
        self.refuse_if_closed()
        limit = None if value is None else GpuLimit.parse(value)
        if limit is not None:
            refuse_too_large_model(self._training, limit)
        self.submit(lambda: set_gpu(self._training, limit))

    def set_batch_size(self, value: int) -> None:
        """Divide the training data into batches of ``value`` samples, and validation with it."""
        self.refuse_if_closed()
        size = whole(value, "batch_size")
        train, val = self._training.cursor.source, self._training.val
        resized, also = train.with_batch_size(size), None
        if val is not None and val.repeats:
            try:
                also = val.with_batch_size(size)
            except DataError:
                if val.batch_size == train.batch_size:
                    raise  # else it does not follow
        self.submit(lambda: set_batches(self._training, resized, also))

    def set_val_batch_size(self, value: int) -> None:
        """Divide the validation data into batches of ``value`` samples."""
        self.refuse_if_closed()
        size, val = whole(value, "val_batch_size"), self._training.val
        if val is None:
            raise ValueError("there is no validation data whose batch size could be set")
        resized = val.with_batch_size(size)
        self.submit(lambda: set_validation(self._training, resized))

    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate, and scale the rest of a schedule with it."""
        self.refuse_if_closed()
        rate = positive(value, "learning_rate")
        self.submit(lambda: set_learning_rate(self._training, rate), light=True)

    def set_scheduler(self, value: None) -> None:
        """Remove the scheduler; nothing but None is valid."""
        self.refuse_if_closed()
        if value is not None:
            raise ValueError(
                f"exp.scheduler is set to a {type(value).__name__}; valid is None, which keeps the "
                "learning rate as it is now. A schedule is given where the experiment is made: "
                "wb.Experiment(..., scheduler=...)"
            )
        self.submit(lambda: remove_schedule(self._training), light=True)

    def set_epochs(self, value: int) -> None:
        """Set the length of the next run, or of the one in progress."""
        self.refuse_if_closed()
        self.epochs = epochs = whole(value, "epochs")
        if self._training.board.status not in ("idle", "finished", "stopped"):
            self.submit(
                lambda: self._runner.plan.set_epochs(epochs, self._training.cursor.epoch),
                light=True,
            )

    def set_monitor(self, value: Any) -> None:
        """Go by another metric from the next epoch on."""
        self.refuse_if_closed()
        training, metric = self._training, direction(value)

        def change() -> None:
            if metric != training.monitor.metric:
                training.monitor = Monitor(metric, training.monitor.patience)

        self.submit(change, light=True)

    def set_patience(self, value: int | None) -> None:
        """End runs after so many epochs that were not better; None: do not."""
        self.refuse_if_closed()
        training = self._training
        patience = None if value is None else whole(value, "patience")
        if patience is not None and training.monitor.metric is None and training.val is None:
            raise ValueError(nothing_to_go_by(value))

        def change() -> None:
            training.monitor.patience = patience

        self.submit(change, light=True)

    def say(self, text: str) -> None:
        """Show ``text`` in the status line."""
        self.submit(lambda: _show(self._training, text), light=True)


def set_modes(training: Training, modeset: ModeSet) -> None:
    """Switch to ``modeset`` from the next step on; nothing of the training's state is lost."""
    before = training.modeset
    if str(before) == str(modeset):
        return
    modeset.load_state_dict(before.state_dict())
    training.modeset = modeset
    training.local_steps = LocalSteps()
    training.note_modes()
    text = describe_switch(before, modeset)
    _mark(training, text)
    training.board.emit(ModesChanged(training.step_count, str(before), str(modeset)))
    _show(training, f"next step runs with {text}{describe_idle(modeset, training.model)}")


def set_gpu(training: Training, limit: GpuLimit | None) -> None:
    """From the next step on, run steps on a simulated GPU, or on the actual hardware."""
    simulate_gpu(training, limit)
    _mark(training, "no simulated GPU" if limit is None else str(limit))
    text = "on the actual hardware" if limit is None else f"on a simulated GPU of {limit}"
    _show(training, f"next step runs {text}")


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
    _show(training, f"next step has {text}")


def set_validation(training: Training, val: DataSource) -> None:
    """Validate on the same samples in batches of another size."""
    training.val = val


def set_learning_rate(training: Training, value: float) -> None:
    """Set the learning rate of the next step, and scale the rest of a schedule with it."""
    text, schedule = _rate_text(value), training.schedule
    if training.is_remote:  # the processes that compute steps scale it
        follow_learning_rate(training.optimizer, value)
        schedule.num_changes += 1
        effect = f", and {schedule.name} is scaled with it" if schedule.scheduler else ""
    else:
        with without_drawing(training.device):
            scalable = is_scalable(schedule, training.optimizer)
        at_0 = without_a_rate(training.optimizer, schedule.scheduler)
        factor = scale_learning_rate(training.optimizer, schedule.scheduler, value)
        effect = schedule.scaled(factor, scalable) + _of_groups(training.optimizer, at_0)
    training.board.mark(training.step_count, text)
    training.board.emit(LearningRateChanged(training.step_count, value))
    _show(training, f"{text}{effect}")


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
    _show(training, f"constant {_rate_text(rate)} instead of {name}")


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
    _show(training, f"{text}: {carried:,} of {total:,} parameters carried over")


def _rate_text(rate: float) -> str:
    """``lr 5e-1``."""
    mantissa, exponent = worded(rate).split("e")
    return f"lr {mantissa.removesuffix('.0')}e{exponent}"


def _mark(training: Training, text: str) -> None:
    """Draw a marker, if a step has been done with other settings."""
    if training.step_count:
        training.board.mark(training.step_count, text)


def _show(training: Training, text: str) -> None:
    step = training.step_count
    training.board.say(f"step {step:,}: {text}", step)
