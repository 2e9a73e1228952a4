"""The state of a training, and how one step advances it.

A `Training` is used by one thread at a time: by the runner's while a run is active, by the caller's
otherwise (`workbench.experiment.runtime.runner` ensures this). It knows nothing of threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from contextlib import AbstractContextManager
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.experiment.checkpoint.module_values import ModuleValues
from workbench.experiment.data.cursor import Cursor
from workbench.experiment.data.data import DataError, DataSource, batch_size_of, split
from workbench.experiment.data.dataset_generators import Held, held_in_run
from workbench.experiment.data.first_batch import EarlyBatch
from workbench.experiment.failure.remedies import Tried
from workbench.experiment.loop.first_step import first_step
from workbench.experiment.loop.foreign_steps import ForeignSteps
from workbench.experiment.loop.interruption import Interruption
from workbench.experiment.loop.local_steps import LocalSteps
from workbench.experiment.loop.measures import Measures
from workbench.experiment.loop.monitor import Monitor
from workbench.experiment.loop.probe import Probing
from workbench.experiment.loop.scalars import ScalarLog
from workbench.experiment.loop.step import StepResult, probed_step, train_step
from workbench.experiment.loop.step_guard import Guard, NonFiniteError
from workbench.experiment.loop.step_undo import copy_at_risk, noted, undo
from workbench.experiment.loop.train_mode import ChangedInStepError, TrainMode
from workbench.experiment.loop.validation import validate, validated
from workbench.experiment.newer_model import Found, Origin
from workbench.experiment.recipe.hot_swap_report import read_by_loss
from workbench.experiment.recipe.learning_rate import learning_rate
from workbench.experiment.recipe.losses import Loss
from workbench.experiment.recipe.schedules import Schedule
from workbench.experiment.report.captures import CaptureStore
from workbench.experiment.report.events import Captured, EpochDone, StepDone, Validated
from workbench.experiment.report.logged_values import LoggedValues
from workbench.experiment.report.status import Board
from workbench.experiment.services import Services
from workbench.experiment.state.rng import RandomState
from workbench.experiment.state.thread_state import ThreadState
from workbench.modes import ModeSet
from workbench.modes.effects.step_times import StepTimings
from workbench.modes.precision.mode import Precision
from workbench.processes import computing
from workbench.records import CarryRow
from workbench.torch_private.self_check import notes_of
from workbench.trust import error_message

_MORE_ATTEMPTS = 4
"""Further attempts at a step during which another thread changes modes."""

BATCH_NORM = "Expected more than 1 value per channel when training"
"""How torch refuses a batch of one sample (`torch.nn.functional._verify_batch_size`); Dynamo has
it in the text of its own error."""

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workbench.experiment.failure.out_of_memory import GpuSimulator
    from workbench.experiment.loop.validation import Validation
    from workbench.experiment.loop.weight_average import WeightAverage
    from workbench.experiment.recipe.loss_state import LossState


class Training:
    """Model, data, optimizer and modes, and the position of the run in them."""

    services = Services()
    """What other packages provide to its experiment; a rank has none."""
    _validated: tuple[Any, Any] = (None, None)
    """Cursor position whose epoch was validated and is not over, and the result."""
    _early_batch: EarlyBatch | None = None
    """A first batch that was inspected before the first step."""
    stand_ins: Mapping[nn.Parameter, str] = MappingProxyType({})
    """Whole parameters that stand in for the model's sharded ones -> their names."""
    undivided = ""
    """Why ranks compute whole batches, as the beginning of a sentence; ``""`` if they do not, or
    if it is not known (`workbench.parallel.checks.batch_sums`)."""
    model_paths: frozenset[tuple[str, str]] = frozenset()
    """Pairs of operations in the graphs of steps on ranks
    (`workbench.parallel.checks.model_paths`)."""
    num_new_paths = 0
    """How often ranks have returned because of one that was new."""
    trained_at_start: dict[str, bool] | None = None
    """On a rank: which parameters were trained when it began, by name."""
    object_state: Any = None
    """What its objects keep, while it is remote (`workbench.parallel.transfer.object_state`)."""
    interrupted: Interruption | None = None
    """What was raised in the last step after its weights had been written: the step counts as
    done."""

    carried: tuple[CarryRow, ...] = ()
    """What became of every parameter and buffer in the last hot swap."""
    best_accuracy: float | None = None
    """Highest accuracy of a validation."""
    last_validation: Validation | None = None
    ema: WeightAverage | None = None
    """Moving average of the weights."""
    in_callback = 0
    """How many functions of `Experiment.on` are at work, between two steps."""
    is_at_rest = False
    """Whether a series of steps has ended and the next one has not begun: cells may draw random
    numbers, and those of the run are saved."""
    held: list[Held] | None = None
    """What the data of training and of validation keep, since the first step."""
    loss_state: LossState | None = None
    """What a loss that is no module kept before the first step."""
    module_values: ModuleValues | None = None
    """What modules keep in plain attributes, since the first step."""
    hook_state: Any = None
    """What its hooks keep, while it is remote (`workbench.parallel.transfer.hook_state`)."""

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
        self.cursor = Cursor(train, modeset.device)
        self.val = val
        self.loss = loss
        self.optimizer = optimizer
        self.foreign_steps = ForeignSteps(optimizer)
        self.schedule = schedule
        self.modeset = modeset
        self.attached: ModeSet | None = None
        """The modes that the model runs under now; `modeset` applies from the next step on."""
        self.device = modeset.device
        self.seed = seed
        self.clip_grad_norm = clip_grad_norm
        self.board = Board()
        self.scalars = ScalarLog()
        self.timings, self.captures = StepTimings(), CaptureStore()
        self.measures = Measures(self.scalars)
        self.logged, self.random = LoggedValues(self), RandomState(self.device)
        self.probes: list[Probing] = []
        self.monitor = Monitor()
        """Which epoch was the best, and whether the run ends because later ones are not."""
        self.validate: Callable[[Training, DataSource], Validation] = validate
        """Validates at the end of an epoch."""
        self.step_count = 0
        self.steps_in_epoch = 0
        """Steps of this epoch; batches that were left out are not counted."""
        self.local_steps = LocalSteps()
        """Steps that are computed in this process, whatever the layout."""
        self.seeded = False
        self.validating = False
        """Whether validation was in progress when something was raised."""
        self.rehearsing = False
        """Whether the step in progress is undone afterwards (`loop.step_undo`)."""
        self.is_remote = False
        """Whether other processes compute its steps (`workbench.experiment.runtime.remote`)."""
        self.gpu: GpuSimulator | None = None
        """The simulated GPU that steps and validations run on; None: they run on the actual
        hardware."""
        self.tried = Tried()
        """What was tried on the step that ran out of memory, since the last start."""
        self.failed_under: tuple[object, ...] = ()
        """The `out_of_memory.conditions` of that step."""
        self.caller_settings = ThreadState()
        """Settings of the thread that started the run."""
        self.staying_modes: str | None = None
        """What `modes` returns while other modes are tried, which are undone."""
        self._notes_on_modes: list[str] = []
        self._epoch_over: Any = None
        """Cursor position whose epoch is being ended; None if none is."""
        self.adopt(model)

    def adopt(self, model: nn.Module) -> None:
        """Train ``model`` from now on; everything recorded about a model is reset."""
        before = getattr(self, "model", model)
        if before is not model:
            self.note(read_by_loss(before, self.loss))
            self.undivided, self.model_paths, self.num_new_paths = "", frozenset(), 0
            if self.ema is not None:
                self.ema.forget_model()
            self.module_values = None
        self.model = model
        if before is not model and self.seeded:
            self.watch_values()
        self.origin = Origin(model)
        self.take_train_mode()
        self.parameters: list[nn.Parameter] = []
        self.find_parameters()
        self._trainable = {id(p): p.requires_grad for p in self.parameters}
        self._dtype = torch.get_default_dtype()
        self.cursor.refuses_one = _refuses_one(model)
        self.guard = Guard(self.model, self.device, self.parameters, self.loss.module)
        self.checked = False
        """Whether a batch has passed the full checks."""

    def watch_values(self, changed: set[str] | None = None) -> ModuleValues:
        """Compare what modules keep with what they have now; ``changed``: what had changed then."""
        models = {"model": self.model, "loss": self.loss.module}
        there = {name: model for name, model in models.items() if model is not None}
        self.module_values = ModuleValues(there, changed)
        return self.module_values

    def watch_data(self) -> None:
        """Remember what the data of training and validation keep, to save what has changed."""
        self.held = [held_in_run(one) for one in (self.cursor.source, self.val)]

    def newer_model(self) -> Found | None:
        """After a failure, what to swap in for a model that its code builds differently now."""
        return None if self.board.failure is None else self.origin.newer(self.model)

    def take_train_mode(self) -> None:
        """Keep the modules of the model in their current train and eval modes."""
        self.train_mode = TrainMode(self.model)
        if self.seeded:
            self.note(self.train_mode.begin(self.optimizer))

    def find_parameters(self) -> None:
        """Find the parameters whose gradients are cleared, measured, clipped and checked.

        They are those of the model, including frozen ones (they may be unfrozen), those of a loss
        that has some, and any others that the optimizer trains.
        """
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        before = [*map(id, self.parameters)]
        self.parameters[:] = self.list_parameters()
        if before != [*map(id, self.parameters)]:
            self.measures.flow.forget_model()
            if self.ema is not None:
                self.ema.forget_model()
        held = {id(p) for group in groups for p in group["params"]}
        self.extra_parameters = [p for p in self.parameters if id(p) not in held]
        """Those of them that the optimizer does not hold."""
        self._group_sizes = [len(group["params"]) for group in groups]

    def list_parameters(self) -> list[nn.Parameter]:
        """Return what `find_parameters` finds, each once."""
        trained = (p for group in self.optimizer.param_groups for p in group["params"])
        found = chain(self.model.parameters(), self.loss.parameters(), trained, self.stand_ins)
        return list({id(p): p for p in found}.values())

    def find_joined(self) -> None:
        """After a forward: find parameters that have joined the model or the optimizer.

        A forward may create a layer once it sees the number of features, and a cell may add
        parameters to a group. Gradients that they already have belong to no step.
        """
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        has_grown = self.train_mode.watch.has_grown
        if not has_grown and [len(group["params"]) for group in groups] == self._group_sizes:
            return
        known = set(map(id, self.parameters))
        self.find_parameters()
        for parameter in self.parameters:
            if id(parameter) not in known:
                parameter.grad = None
        if has_grown:
            self.train_mode.find_modules()
        self.guard.refresh()

    def check_settings(self) -> None:
        """Report settings that a cell changed and steps use: parameters, default dtype, weights."""
        before = self._trainable
        changed = [p for p in self.parameters if before.get(id(p)) is (not p.requires_grad)]
        if changed:
            self.note(self._on_trainable(changed))
            self._trainable = {id(p): p.requires_grad for p in self.parameters}
        self.note(self.foreign_steps.note(self.step_count + 1))
        dtype = torch.get_default_dtype()
        if dtype is not self._dtype:
            self._dtype = dtype
            self.note(
                f"torch's default dtype is {str(dtype).removeprefix('torch.')} from step "
                f"{self.step_count + 1:,} on, as a cell has set it: what the model creates in its "
                "forward is of that type"
            )

    def _on_trainable(self, changed: list[nn.Parameter]) -> str:
        names = {id(p): name for name, p in self.model.named_parameters()}
        not_held = set(map(id, self.extra_parameters))
        notes: list[str] = []
        for frozen in (True, False):
            these = [p for p in changed if p.requires_grad is not frozen]
            if not these:
                continue
            first = ", ".join(names.get(id(p), "one of the loss") for p in these[:3])
            more = f" and {len(these) - 3:,} more" if len(these) > 3 else ""
            verb = "frozen" if frozen else "trained"
            notes.append(
                f"{first}{more}: {verb} from step {self.step_count + 1:,} on, as requires_grad says"
            )
            extra = [p for p in these if id(p) in not_held]
            if extra and not frozen:
                notes.append(
                    f"{len(extra):,} of them not held by the optimizer and so not updated: "
                    "exp.optimizer.add_param_group({'params': ...}) adds them"
                )
        return "; ".join(notes)

    def note(self, text: str) -> None:
        """Add a sentence that the user should read, once."""
        if text and text not in self.board.notes:
            self.board.notes.append(text)

    def note_modes(self) -> None:
        """Note which modes have no effect on the model, in place of earlier notes on modes."""
        for text in self._notes_on_modes:
            if text in self.board.notes:
                self.board.notes.remove(text)
        self._notes_on_modes = self.modeset.notes(self.model)
        for text in self._notes_on_modes:
            self.note(text)

    @property
    def scaled(self) -> bool:
        """Whether a gradient scaler is in use, which skips non-finite gradients by itself."""
        return self.scaler is not None

    @property
    def modes(self) -> str:
        """The modes of the next step, as printed; while others are tried, the ones that stay."""
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

    def forward_context(self) -> AbstractContextManager[Any]:
        """Context around forward and loss: that of the modes, inside the caller's own autocast."""
        context = self._modeset.forward_context()
        return self.caller_settings.around(context) if self.caller_settings.autocasts else context

    # -- one step ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Before the first step of a series: restore the random state of the run."""
        self.interrupted, self.is_at_rest = None, False
        self.logged.thread = threading.get_ident()
        if self.module_values is None:
            self.watch_values()
        if self.loss_state is None and self.loss.module is None:
            self.loss_state = self.loss.state()
        if self.held is None:
            self.watch_data()
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of this thread: "cuda" in a forward means this one
        if not self.seeded:
            self.seeded = True
            torch.manual_seed(self.seed)
            early, self._early_batch = self._early_batch, None
            if early is not None:
                self.note(early.begin())
        else:
            self.random.restore()
        self.note(self.train_mode.begin(self.optimizer))
        for note in self.caller_settings.notes:
            self.note(note)
        self.note(self.foreign_steps.begin(self.step_count + 1, self.name))
        self.find_parameters()
        self.guard.refresh()
        self.check_settings()
        self.measures.restart()
        for note in notes_of("training"):
            self.note(note)

    def end(self) -> None:
        """After the last step of a series: save the random state."""
        self.random.save()
        self.is_at_rest, self.logged.thread = True, None
        self.foreign_steps.end()

    def preview(self) -> Any:
        """Return the batch that the next step would get, for inspection while no step is computed.

        A loader's own order is drawn from the random state of the run, and so is this batch: if it
        stays the next step's batch, so does what was drawn for it; before the first step only as
        long as no cell runs in between (`workbench.experiment.data.first_batch`).

        Raises:
            DataError: there is no batch.
            Exception: whatever the loader raises.
        """
        outside, early = RandomState(self.device), self._early_batch
        outside.save()
        try:
            if self.seeded:
                self.random.restore()
            else:
                early = early or EarlyBatch(self.cursor, self.device)
                torch.manual_seed(self.seed)
            batch = self.cursor.preview()
            if not self.cursor.holds_batch:
                return batch
            if self.seeded:
                self.random.save()
            elif early is not self._early_batch and early is not None:
                early.fetched()
                self._early_batch = early
        finally:
            outside.restore()
        return batch

    def advance(self) -> bool:
        """Do the next step; return False if the data of the epoch turned out to be over instead.

        Raises:
            Exception: whatever the user's code raised; the state is that of the last good step.
        """
        self.note(self.schedule.catch_up())
        if self._epoch_over == self.cursor.position():  # its end raised: first it is repeated
            self.end_epoch()
            return False  # it may have been the last one: the runner checks its plan first
        batch = self.cursor.take()
        if batch is None:
            self._epoch_ends()
            return False
        started = time.perf_counter()
        try:
            with computing:
                result = self._attempt_as_set(batch, started)
        except (ValueError, RuntimeError) as error:  # the second where Dynamo has traced it
            if not self.leaves_out(batch, error):
                raise
            if self.cursor.at_end:
                self._epoch_ends()
            return False
        self._count(result, started)
        return True

    def only_ends_epoch(self) -> bool:
        """Whether the next `advance` has no batch left and ends the epoch.

        Ranks would have no batch to inspect before they lay out the model.

        Raises:
            Exception: whatever the loader raises, if only it knows how long the epoch is.
        """
        cursor = self.cursor
        if self._epoch_over == cursor.position() or cursor.at_end:
            return True
        return cursor.index > 0 and not cursor.source.has_exact_length and cursor.peek() is None

    def _count(self, result: StepResult, started: float) -> None:
        """Count and log a step that went through, and end the epoch if it was the last one."""
        raised = None if self.interrupted is None else self.interrupted.take()
        self.cursor.done()
        self.step_count += 1
        self.steps_in_epoch += 1
        self.measures.log(self, result)
        if self.ema is not None:
            self.ema.update(self.model)
        self.logged.step_done()
        if result.applied and self.schedule.scheduler is not None:
            # a scheduler of the user's own may raise: the update has been applied and logged
            self.note(self.schedule.after_step())
        if self.board.step_observers:
            self._report_step(result, time.perf_counter() - started)
        if raised is not None:
            if self.cursor.at_end:
                self._epoch_over = self.cursor.position()  # it is ended when the run continues
            raise raised
        if self.cursor.at_end:
            self._epoch_ends()

    def leaves_out(self, batch: Any, error: ValueError | RuntimeError) -> bool:
        """Leave out a last batch of one sample, which batch norm cannot train on; note it once.

        Raises:
            DataError: it is not the last of several batches.
        """
        if BATCH_NORM not in error_message(error) or batch_size_of(*split(batch)) != 1:
            return False
        size = self.cursor.source.batch_size
        # a stream that workers divide has a last batch of each worker
        if self.cursor.source.num_samples == 1 or not (
            self.cursor.is_last_of_several if size is None else size > 1
        ):
            raise DataError(
                "batch norm cannot train on a batch of one sample, which has no variance: give "
                "more samples in a batch, or keep batch norm in eval mode "
                "(exp.model.<its name>.eval())"
            ) from error
        by = f", one sample left over by batches of {size:,}," if size else " has one sample and"
        self.note(
            f"the last batch of an epoch{by} is left out: batch norm cannot train on a batch of "
            "one. Another batch size, or drop_last=True of a DataLoader or a BatchSampler, avoids "
            "it"
        )
        self.cursor.leave_out()
        return True

    def _attempt_as_set(self, batch: Any, started: float) -> StepResult:
        """Do the step, with the modes that are set for its modules.

        Changes since the previous step are reverted; if another thread changes the modes while the
        step is computed, it is computed again.
        """
        mode = self.train_mode
        if mode.is_changed():
            self.note(mode.put_back(self.optimizer))
        mode.watch.set_by_another = False
        try:
            return self._attempt(batch, started)
        except ChangedInStepError:
            return self._attempt_again(batch, started)

    def _attempt_again(self, batch: Any, started: float) -> StepResult:
        for _ in range(_MORE_ATTEMPTS):
            self.note(self.train_mode.put_back(self.optimizer))
            self.train_mode.watch.set_by_another = False
            with contextlib.suppress(ChangedInStepError):
                return self._attempt(batch, started)
        raise RuntimeError(
            "another thread keeps changing modules between train and eval mode while steps are "
            "computed: pause the experiment first"
        )

    def _attempt(self, batch: Any, started: float) -> StepResult:
        """Do the step; undo it if it raises, unless its weights have already been written."""
        self.interrupted = None
        self.logged.drop()
        switching = self.attached is not self._modeset
        self.guard.remember(exactly=switching or self.gpu is not None)
        kept = None
        if switching or self.gpu is not None:
            kept = copy_at_risk(self, switching=switching)
        try:
            if switching:
                result = first_step(self, batch)
                self.measures.restart()  # a compile is not what a step takes
            elif self.probes or self.gpu is not None:
                result = self.run_step(batch)
            else:
                result = train_step(self, batch)
                self.timings.add(self._modes, time.perf_counter() - started)
        except NonFiniteError:
            self.measures.refused(self)
            undo(self, kept)
            raise
        except BaseException:
            if kept is None and self.interrupted is not None and self.interrupted.cause is not None:
                return self.interrupted.cause[1]
            self.interrupted = None
            undo(self, kept)
            raise
        self.guard.release()
        return result

    @computing
    def run_step(self, batch: Any) -> StepResult:
        """Do one step, probed or plain, on the simulated GPU if there is one."""
        if self.gpu is not None:
            with self.gpu.at_work("step", batch):
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
        if probing.kind not in ("graph", "memory"):  # for the caller alone
            probing.deliver(record)
            return
        kind = "graph" if probing.kind == "graph" else "memory"
        capture_id = self.captures.add(kind, step, record)
        probing.deliver(record, capture_id)
        self.board.emit(Captured(step, capture_id))

    def _report_step(self, result: StepResult, seconds: float) -> None:
        loss = result.loss
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(loss, device="cpu", dtype=torch.float64)
        event = StepDone(self.step_count, loss, seconds, self.measures.num_samples(result))
        self.board.emit(event, to_step_observers=True)

    def _epoch_ends(self) -> None:
        """Call `end_epoch`, which is repeated before anything else if it fails."""
        self._epoch_over = self.cursor.position()
        self.end_epoch()

    def end_epoch(self) -> None:
        """Validate, step a scheduler that steps every epoch, and begin the next epoch."""
        position = self.cursor.position()
        if self._validated[0] != position:  # else a scheduler has raised after it
            self.measures.log_accuracy(self.step_count)
            self._validated = position, self._validate()
        # a metric of the user's own may be logged by a function that the end of the epoch calls
        is_late = self.val is None and self.monitor.steps(self.schedule)
        if not is_late:
            self.note(self.schedule.after_epoch(self._epoch_measure))
        confusion, self._validated = self._validated[1], (None, None)
        self._epoch_over, self.steps_in_epoch = None, 0
        self.cursor.next_epoch()
        if self.val is None:  # a validation has set it
            self.train_mode.set(self.optimizer)
        self.epoch_done(confusion)
        if is_late:
            self.note(self.schedule.after_epoch(self._epoch_measure))

    def epoch_done(self, confusion: torch.Tensor | None) -> None:
        """Tell observers that an epoch is over, and look whether it was the best."""
        self.board.emit(EpochDone(self.step_count, self.cursor.epoch, confusion))
        self.monitor.update(self)
        problem, self.monitor.problem = self.monitor.problem, ""
        if not any(
            note.startswith(problem[: problem.find(" in epoch")]) for note in self.board.notes
        ):
            self.note(problem)

    def _validate(self) -> torch.Tensor | None:
        """Validate, if there is data for it; return the confusion matrix."""
        if self.val is None:
            return None
        found = validated(self, self.val)
        self.board.emit(
            Validated(
                self.step_count, self.cursor.epoch + 1, found.loss, found.accuracy, found.confusion
            )
        )
        return found.confusion

    def _epoch_measure(self) -> float | None:
        """Value for a schedule: the epoch's loss or accuracy, of validation if there is any."""
        if self.monitor.steps(self.schedule):
            return self.monitor.value_for_schedule(self)
        wanted = "accuracy" if self.schedule.wants_accuracy else "loss"
        if self.val is not None and self.last_validation is not None:
            found = self.last_validation
            return found.accuracy if wanted == "accuracy" else found.loss
        self.scalars.flush()
        # an accuracy already covers the epoch so far, a loss only one step
        count = 1 if wanted == "accuracy" else max(1, self.steps_in_epoch)
        recent = self.scalars.last(f"train/{wanted}", count)
        return sum(recent) / len(recent) if recent else None

    # -- commands ---------------------------------------------------------------------------

    def add_probe(self, probing: Probing) -> None:
        """Attach a probe to the next step; a second probe of the same kind shares its record."""
        for waiting in self.probes:
            if waiting.kind == probing.kind:
                waiting.handles += probing.handles
                return
        self.probes.append(probing)

    def drop_probes(self) -> None:
        """Notify those who wait for a probe that there is no step for it."""
        probes, self.probes = self.probes, []
        for probing in probes:
            probing.deliver(None)

    def detach_modes(self) -> None:
        """Detach the modes from the model, until the next step."""
        if self.attached is not None:
            self.attached.detach(self.model)
            self.attached = None

    def code_changed(self) -> None:
        """After a renewal of the model's classes: attach modes again and check the next batch."""
        self.detach_modes()
        self.checked = False

    @property
    def learning_rate(self) -> float | None:
        """The rate of the first parameter group that has one."""
        return learning_rate(self.optimizer)


def _refuses_one(model: nn.Module) -> bool:
    """Whether it will probably refuse a batch of one sample: batch norm over features does.

    Over features of a sequence it does not; over pixels it does if there is only one. The first
    epoch shows which is the case (`workbench.experiment.data.cursor`).
    """
    return any(
        isinstance(module, nn.BatchNorm1d)
        and (module.training or not model.training or not module.track_running_stats)
        for module in model.modules()
    )
