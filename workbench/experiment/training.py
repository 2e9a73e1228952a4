"""The state of a training and how one step moves it on.

A `Training` is touched by one thread at a time: the runner's while a run is active, the caller's
otherwise (`workbench.experiment.runner` sees to that). It knows nothing of threads.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.experiment.board import Board
from workbench.experiment.captures import CaptureStore
from workbench.experiment.cursor import Cursor
from workbench.experiment.data import DataSource
from workbench.experiment.events import Captured, EpochDone, StepDone
from workbench.experiment.guard import Guard, NonFiniteError
from workbench.experiment.losses import Loss
from workbench.experiment.measures import Measures
from workbench.experiment.optimizers import Schedule, learning_rate
from workbench.experiment.probing import Probing
from workbench.experiment.rehearsal import noted
from workbench.experiment.rng import RandomState
from workbench.experiment.scalars import ScalarLog
from workbench.experiment.state_copy import copy_at_risk, undo
from workbench.experiment.step import StepResult, probed_step, train_step
from workbench.experiment.switch import first_step
from workbench.experiment.tried import Tried
from workbench.experiment.validation import validate, validated
from workbench.modes import ModeSet
from workbench.modes.effects import StepTimings
from workbench.modes.precision import Precision
from workbench.records import CarryRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.experiment.out_of_memory import CardPlayer
    from workbench.experiment.validation import Validation


class Training:
    """Model, data, optimizer and modes, and the position of the run in them."""

    def __init__(
        self,
        *,
        name: str,
        model: nn.Module,
        train: DataSource,
        val: DataSource | None,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        modeset: ModeSet,
        seed: int,
        clip_grad_norm: float | None,
    ) -> None:
        self.name = name
        self.cursor = Cursor(train)
        self.val = val
        self.loss = loss
        self.optimizer = optimizer
        self.schedule = schedule
        self.modeset = modeset
        self.attached: ModeSet | None = None
        """The modes the model runs under now; `modeset` from the next step on."""
        self.device = modeset.device
        self.seed = seed
        self.clip_grad_norm = clip_grad_norm
        self.board = Board()
        self.scalars = ScalarLog()
        self.timings = StepTimings()
        self.captures = CaptureStore()
        self.measures = Measures(self.scalars)
        self.random = RandomState(self.device)
        self.probes: list[Probing] = []
        self.carried: tuple[CarryRow, ...] = ()
        self.best_accuracy: float | None = None
        self.last_validation: Validation | None = None
        self.validate: Callable[[Training, DataSource], Validation] = validate
        """How the end of an epoch validates."""
        self.step_count = 0
        self.seeded = False
        self.validating = False
        """Whether validation was at work when something was raised."""
        self.rehearsing = False
        """Whether the step under way is undone afterwards (`workbench.experiment.rehearsal`)."""
        self.card: CardPlayer | None = None
        """Plays a card that steps and validations run on; None: they run on what is there."""
        self.tried = Tried()
        """What was tried on the step that ran out of memory, since the last start."""
        self.failed_under: tuple[object, ...] = ()
        """The `out_of_memory.conditions` of that step."""
        self.staying_modes: str | None = None
        """What `modes` says while others are tried, which are undone."""
        self._epoch_over: Any = None
        """Position of a cursor whose epoch is being ended; None where none is."""
        self.adopt(model)

    def adopt(self, model: nn.Module) -> None:
        """Train ``model`` from now on; what is remembered about a model starts anew."""
        self.model = model
        if self.seeded:
            model.train()
        self.parameters = list(self.model.parameters())  # frozen ones too: they may be thawed
        self.guard = Guard(self.model, self.device)
        self.measures.flow.forget_model()
        self.checked = False
        """Whether a batch has passed the full checks."""

    @property
    def scaled(self) -> bool:
        """Whether a gradient scaler is at work, which skips non-finite gradients by itself."""
        return self.scaler is not None

    @property
    def modes(self) -> str:
        """The modes of the next step, as printed; while others are tried, those that stay."""
        return self._modes if self.staying_modes is None else self.staying_modes

    @property
    def modeset(self) -> ModeSet:
        """The modes of the next step."""
        return self._modeset

    @modeset.setter
    def modeset(self, value: ModeSet) -> None:
        self._modeset = value
        self._modes = str(value)
        precision = value["precision"]
        self.scaler = precision.scaler if isinstance(precision, Precision) else None

    # -- one step ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Before the first step of a stretch: bring back the run's random state."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of this thread: "cuda" in a forward means this one
        if not self.seeded:
            self.seeded = True
            torch.manual_seed(self.seed)
            if not self.model.training:
                self.model.train()
                self.board.notes.append("the model was in eval mode and was switched to train mode")
        else:
            self.random.restore()
        self.measures.restart()

    def end(self) -> None:
        """After the last step of a stretch: put the random state away."""
        self.random.save()

    def advance(self) -> bool:
        """Do the next step; False when the data of the epoch turned out to be over instead.

        Raises:
            Exception: whatever the user's code raised; the state is that of the last good step.
        """
        if self._epoch_over == self.cursor.position():  # a validation failed: first it is repeated
            self.end_epoch()
            return False  # it may have been the last one: the runner looks at its plan first
        batch = self.cursor.take()
        if batch is None:
            self._epoch_over = self.cursor.position()
            self.end_epoch()
            return False
        started = time.perf_counter()
        switching = self.attached is not self._modeset
        self.guard.remember(exactly=switching or self.card is not None)
        kept = copy_at_risk(self, switching=switching)
        try:
            if switching:
                result = first_step(self, batch)
            elif self.probes or self.card is not None:
                result = self.run_step(batch)
            else:
                result = train_step(self, batch)
                self.timings.add(self._modes, time.perf_counter() - started)
        except NonFiniteError:
            self.measures.refused(self)
            undo(self, kept)
            raise
        except BaseException:
            undo(self, kept)
            raise
        self.cursor.done()
        self.step_count += 1
        try:
            # a scheduler that is past its last step raises: the update itself has been applied
            if result.applied and self.schedule.per_step:
                self.schedule.scheduler.step()
        finally:
            self.measures.log(self, result)
        if self.board.step_observers:
            self._tell_step(result, time.perf_counter() - started)
        if self.cursor.at_end:
            self._epoch_over = self.cursor.position()
            self.end_epoch()
        return True

    def run_step(self, batch: Any) -> StepResult:
        """One step, probed or plain, on the card that is played."""
        if self.card is not None:
            with self.card.at_work("step", batch):
                return self._probed(batch) if self.probes else train_step(self, batch)
        return self._probed(batch) if self.probes else train_step(self, batch)

    def _probed(self, batch: Any) -> StepResult:
        probes, self.probes = self.probes, []
        try:
            return probed_step(self, batch, probes)
        except BaseException:
            for probing in probes:
                probing.step_failed()
            raise
        finally:
            for probing in probes:
                self._keep(probing)

    def _keep(self, probing: Probing) -> None:
        record = probing.finish()
        if record is None:
            probing.deliver(None)
            return
        step = self.step_count + 1
        if self.rehearsing:
            record = noted(record)
        if probing.kind not in ("graph", "memory"):  # for who asked alone
            probing.deliver(record)
            return
        kind = "graph" if probing.kind == "graph" else "memory"
        capture_id = self.captures.add(kind, step, record)
        probing.deliver(record, capture_id)
        self.board.emit(Captured(step, capture_id))

    def _tell_step(self, result: StepResult, seconds: float) -> None:
        loss = torch.as_tensor(result.loss)
        event = StepDone(self.step_count, loss, seconds, self.measures.num_samples(result))
        self.board.emit(event, to_step_observers=True)

    def end_epoch(self) -> None:
        """Validate, step a scheduler that goes by epochs, and begin the next one."""
        confusion = None
        if self.val is not None:
            confusion = validated(self, self.val).confusion
        self.schedule.after_epoch(self._epoch_loss)
        self._epoch_over = None
        self.cursor.next_epoch()
        self.board.emit(EpochDone(self.step_count, self.cursor.epoch, confusion))

    def _epoch_loss(self) -> float | None:
        if self.val is not None and self.last_validation is not None:
            return self.last_validation.loss
        self.scalars.flush()
        recent = self.scalars.last("train/loss", max(1, self.cursor.index))
        return sum(recent) / len(recent) if recent else None

    # -- commands ---------------------------------------------------------------------------

    def add_probe(self, probing: Probing) -> None:
        """Let a probe ride along with the next step; a second of its kind shares it."""
        for waiting in self.probes:
            if waiting.kind == probing.kind:
                waiting.handles += probing.handles
                return
        self.probes.append(probing)

    def drop_probes(self) -> None:
        """Tell those who wait that there is no step for them."""
        probes, self.probes = self.probes, []
        for probing in probes:
            probing.deliver(None)

    def detach_modes(self) -> None:
        """Leave the model as it was given, until the next step."""
        if self.attached is not None:
            self.attached.detach(self.model)
            self.attached = None

    def code_changed(self) -> None:
        """The model's classes were renewed: attach the modes anew and check the next batch."""
        self.detach_modes()
        self.checked = False

    @property
    def learning_rate(self) -> float | None:
        """The rate of the first parameter group."""
        return learning_rate(self.optimizer)
