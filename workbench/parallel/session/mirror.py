"""Apply what workers report to the training in the kernel, and send them commands.

A runner follows a session on the training's own thread (`workbench.experiment.runtime.remote`).
Position, learning rate, scalars, step times and validations appear in the training as if its steps
were computed here; weights and moments come with the checkpoint at the end.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from workbench.experiment.data.data import batch_size_of, split
from workbench.experiment.loop.local_steps import MOST
from workbench.experiment.loop.step_guard import NonFiniteError
from workbench.experiment.loop.validation import Validation
from workbench.experiment.recipe.learning_rate import follow_learning_rate, scale_learning_rate
from workbench.experiment.report.events import StepDone, Validated
from workbench.experiment.runtime.remote import RemoteError
from workbench.experiment.state.process_settings import threads_of_a_rank
from workbench.modes.layout.mode import Parallel
from workbench.parallel.checks.batch_sums import Verdict, by_samples
from workbench.parallel.exchange.files import FOLLOWED
from workbench.parallel.exchange.rank_reports import Reports
from workbench.parallel.session.session import Session
from workbench.parallel.transfer.hook_state import notes_on_hooks

if TYPE_CHECKING:
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.training import Training
    from workbench.modes.layout.layout import Layout
    from workbench.parallel.exchange.stream import Message

_SILENCE_LIMIT_S = 360.0
"""Time limit for workers that were recalled and report nothing: they may compile, validate or save,
and their collectives time out after five minutes."""
_PROGRESS_LIMIT_S = 3600.0
"""Time limit for a validation or a checkpoint that keeps reporting that it continues."""
_EXIT_LIMIT_S = 5.0
_REPORT_S = 1.0

_READS_DATA = (
    "the model reads values of its data in forward, so ranks may branch differently: under fsdp "
    "its parameters are gathered all at once for a step, and not block by block"
)

log = logging.getLogger("workbench")


def send(training: Training, plan: Plan, folder: Path, companions: tuple[str, ...] = ()) -> Mirror:
    """Have workers continue ``training`` until ``plan`` is fulfilled.

    Args:
        training: stays as it is here, except for what workers report about it.
        plan: where the run ends.
        folder: for this and later sessions.
        companions: modules that accompany every rank (`workbench.parallel.exchange.files.Job`).

    Raises:
        PackingError, DataError: a part of it cannot be sent to another process, or not to several.
        OSError: nothing can be written to ``folder``.
    """
    layout = _layout(training)
    step = training.step_count
    starting = f"step {step + 1:,}: starting {_ranks(layout.world_size)} for {layout}"
    if training.device.type == "cpu":
        threads = threads_of_a_rank(torch.get_num_threads(), layout.world_size)
        starting += f", {threads} thread{'' if threads == 1 else 's'} each"
    training.board.say(starting, step)
    for note in notes_on_hooks(training, layout):
        training.note(note)
    started = time.perf_counter()
    session = Session.send(training, folder, layout, plan, companions=companions)
    return Mirror(training, session, _ends(plan), started)


class Mirror:
    """Keeps the training in the kernel in step with a session in which workers compute its steps.

    Args:
        training: the training to which everything that is reported is applied.
        session: the session.
        ends: the (step, epoch) at which it ends, as it was sent to the workers.
        started: clock time at which the training was sent, or None where it is followed later.
    """

    def __init__(
        self,
        training: Training,
        session: Session,
        ends: tuple[int | None, int | None],
        started: float | None = None,
    ) -> None:
        self._training, self._session, self._ends = training, session, ends
        self._started = started
        self._is_back = False
        self._recalled_at: float | None = None
        self._last_message_at = self._progress_at = time.monotonic()
        self._rate = training.learning_rate
        """Learning rate of the first group, as the workers have it or as it was sent to them."""
        self._is_scheduled = self._scheduled
        """Whether the workers have a schedule, according to what was sent to them."""
        self._set_locally: float | None = None
        """The learning rate that was last set in the kernel."""
        self._applied_at = math.inf
        """The step at which the workers first reported that they have it."""
        self._losses: dict[int, float] = {}
        """Losses of steps for which no position has been reported yet."""
        self._reports = Reports(session.folder)
        self._reported_at = 0.0
        self._refused: NonFiniteError | None = None
        self._sent_at = training.step_count, training.cursor.position(), _rates(training)
        training.measures.forget_speed()
        training.measures.flow.note_steps_elsewhere()

    def follow(self) -> bool:
        """Apply what was reported since the last call; False once the workers have finished.

        Raises:
            NonFiniteError: the step after the last one was refused.
            RemoteError: a rank died, or the ranks report nothing.
        """
        for message in self._session.news():
            self._last_message_at = time.monotonic()
            if message["type"] != "at-work":
                self._progress_at = self._last_message_at
            self._take(message)
        self._read_rank_reports()
        if self._refused is not None and self._session.ended:
            raise self._refused
        if self._session.ended:
            return False
        self._check_time_limits()
        return True

    def settle(self, plan: Plan) -> None:
        """Send where the run ends, a learning rate that was set here, and that a schedule ended.

        Once workers are recalled they execute no later command: a rate waits until they end.
        """
        if self._recalled_at is not None:
            return
        if (ends := _ends(plan)) != self._ends:
            self._ends = ends
            self._session.command("plan", until_step=ends[0], until_epoch=ends[1])
        rate, has_ended = self._training.learning_rate, self._is_scheduled and not self._scheduled
        if rate is not None and (rate != self._rate or has_ended):
            self._set(rate)
            self._is_scheduled = self._scheduled
            self._session.command("constant" if has_ended else "learning_rate", value=rate)

    @property
    def _scheduled(self) -> bool:
        """Whether the training has a schedule here, which the user may have removed."""
        return self._training.schedule.scheduler is not None

    def recall(self) -> None:
        """Request that the workers end at the next step boundary."""
        if self._recalled_at is None:
            self._recalled_at = time.monotonic()
            self._session.command("recall")

    def bring_back(self) -> None:
        """Load the last state of the workers, and release them."""
        training = self._training
        reported = training.step_count
        try:
            if self._session.ended:
                self._session.wait(_EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            log.info("the ranks of %s are slow to leave and are ended", self._session.folder.shown)
        finally:
            self._session.close()
            self._bring_back()
            training.measures.restart()
        step = training.step_count
        if step < reported:
            training.board.mark(step, f"back from step {reported:,}")
        training.board.say(f"step {step:,}: back from {_layout(training)}", step)

    def _bring_back(self) -> None:
        """Load the last state; where that fails, the training is as it was when it was sent."""
        training, rate = self._training, self._training.learning_rate
        if rate is not None and (rate != self._rate or self._is_scheduled != self._scheduled):
            self._set(rate)
        try:
            self._session.bring_back(training)
        except BaseException:
            training.step_count, position, rates = self._sent_at
            training.cursor.go_to(position)
            for group, kept in zip(training.optimizer.param_groups, rates, strict=True):
                group.update(kept)
            raise
        if self._set_locally is not None and training.step_count < self._applied_at:
            scale_learning_rate(training.optimizer, training.schedule.scheduler, self._set_locally)
        self._is_back = True

    def clear(self) -> None:
        """Remove the files that the training was loaded from; checkpoints stay if ranks died."""
        if self._is_back:
            self._session.folder.clear(checkpoints=bool(self._session.ended))

    def catch_up(self, count: int) -> None:
        """Apply the first ``count`` messages, which a kernel that is gone has read."""
        for message in self._session.reported_before(count):
            self._take(message)

    # -- messages of rank 0 -----------------------------------------------------------------

    def _take(self, message: Message) -> None:
        take = getattr(self, f"_take_{message['type'].replace('-', '_')}", None)
        if take is not None:  # messages about checkpoints are for others
            take(message)

    def _take_scalars(self, message: Message) -> None:
        for name, steps, values in message["series"]:
            for step, value in zip(steps, values, strict=True):
                self._training.scalars.add(name, step, float(value))
                if name == "train/loss":
                    self._losses[step] = float(value)

    def _take_position(self, message: Message) -> None:
        training = self._training
        training.step_count = message["step"]
        training.cursor.go_to(message["position"])
        if (
            message["commands"] >= self._session.commands_sent
            and training.learning_rate == self._rate
        ):
            self._applied_at = min(self._applied_at, message["step"])
            self._take_rate(message["rate"])
        training.measures.steps_per_s, training.measures.samples_per_s = message["speed"]
        steps: list[tuple[int, float, int]] = message["steps"]
        for step, seconds, samples in steps:
            if self._started is None:
                training.timings.add(training.modes, seconds)
            else:
                self._first_step(step)
            loss = self._losses.pop(step, math.nan)
            if training.board.step_observers:
                event = StepDone(
                    step, torch.tensor(loss, device="cpu", dtype=torch.float64), seconds, samples
                )
                training.board.emit(event, to_step_observers=True)

    def _take_notes(self, message: Message) -> None:
        for note in message["notes"]:
            self._training.note(note)

    def _take_epoch(self, message: Message) -> None:
        training = self._training
        training.step_count = message["step"]
        training.cursor.go_to(message["position"])
        confusion = message["confusion"]
        table = (
            None if confusion is None else torch.tensor(confusion, dtype=torch.int64, device="cpu")
        )
        if message["validation"] is not None:
            loss, accuracy = message["validation"]
            training.last_validation = Validation(loss, accuracy, table)
            if accuracy is not None:
                training.best_accuracy = max(accuracy, training.best_accuracy or 0.0)
            epoch = training.cursor.epoch
            training.board.emit(Validated(training.step_count, epoch, loss, accuracy, table))
        training.epoch_done(table)

    def _take_ready(self, message: Message) -> None:
        step = message["step"]
        notes = self._training.board.notes
        if (
            message["branches"]
            and _layout(self._training).kind == "fsdp"
            and _READS_DATA not in notes
        ):
            notes.append(_READS_DATA)
        for note in message.get("notes", ()):
            self._training.note(note)
        self._training.board.say(
            f"step {step + 1:,}: {_layout(self._training)}: {_ranks(message['ranks'])} ready",
            step,
        )

    def _take_logits(self, message: Message) -> None:
        """Record how much the logits of the first batch changed; after `_first_step`."""
        self._training.timings.parity(self._training.modes, message["difference"])

    def _take_at_work(self, message: Message) -> None:
        if self._recalled_at is not None:
            step, seconds = self._training.step_count, message["seconds"]
            self._training.board.say(
                f"step {step:,}: waiting for {_layout(self._training)}, whose first rank "
                f"{message['what']} ({seconds:.0f} s)",
                step,
            )

    def _take_not_saved(self, message: Message) -> None:
        step = message["step"]
        self._training.board.say(f"step {step:,}: {message['why']}", step)

    def _take_non_finite(self, message: Message) -> None:
        self._refused = NonFiniteError(
            message["what"], math.inf if message["word"] == "infinite" else math.nan
        )

    def _take_structure_changed(self, _message: Message) -> None:
        """Have one process compute the next step, which makes, freezes or unfreezes a parameter."""
        local_steps = self._training.local_steps
        local_steps.take_next()
        if local_steps.are_all:
            self._training.note(
                f"parameters were made, frozen or unfrozen in {MOST} steps: from here on all are "
                "computed in one process, as ranks would do nothing but start anew; other modes "
                "have ranks again"
            )
        self._training.note(
            "a step in which parameters are made, frozen or unfrozen is computed in one process, "
            f"and ranks of {_layout(self._training)} start anew after it; what hooks and objects "
            "of the model count was counted for it on the ranks, too"
        )

    def _take_new_path(self, message: Message) -> None:
        """Have one process compute and check the next step, which takes a new path."""
        training = self._training
        training.model_paths |= {(above, below) for above, below in message["paths"]}
        training.num_new_paths += 1
        training.local_steps.take_next(_look_for_whole_batches)
        training.note(
            f"step {message['step'] + 1:,} goes through operations that no step on ranks did "
            "before: it was computed in one process, to see whether such steps can be divided, and "
            f"ranks of {_layout(training)} start anew after it; what hooks and objects of the "
            "model count was counted for it on the ranks, too"
        )

    def _first_step(self, step: int) -> None:
        training, started = self._training, cast("float", self._started)
        self._started = None
        seconds = time.perf_counter() - started
        training.timings.first_step(training.modes, seconds)
        training.board.say(
            f"step {step:,}: {_layout(training)}; start and first step took {seconds:.1f} s", step
        )

    def _set(self, rate: float) -> None:
        """Record a learning rate that was set here and has not been sent to the workers."""
        self._rate = self._set_locally = rate
        self._applied_at = math.inf

    def _take_rate(self, rate: float | None) -> None:
        training = self._training
        if rate is not None and rate != training.learning_rate:
            follow_learning_rate(training.optimizer, rate)
        self._rate = training.learning_rate

    def _read_rank_reports(self) -> None:
        now = time.monotonic()
        if now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        self._record_num_read()
        training = self._training
        reports = self._reports.newest()
        mode = training.modeset["parallel"]
        if reports and isinstance(mode, Parallel):
            mode.report = self._reports.text
            for name, step, value in self._reports.scalars():
                training.scalars.add(name, step, value)

    def _record_num_read(self) -> None:
        with contextlib.suppress(OSError):  # a full disk ends no run by itself
            folder = self._session.folder
            folder.seal.write_json(folder.followed, self._session.num_read, FOLLOWED)

    def _check_time_limits(self) -> None:
        if self._recalled_at is None:
            return
        folder = self._session.folder
        if not folder.is_there:
            raise RemoteError(f"{folder.shown} is gone, so its workers can receive no commands")
        now = time.monotonic()
        if now - max(self._recalled_at, self._last_message_at) >= _SILENCE_LIMIT_S:
            waited = f"have reported nothing for {_SILENCE_LIMIT_S:g} s"
        elif now - max(self._recalled_at, self._progress_at) >= _PROGRESS_LIMIT_S:
            waited = f"have made no progress for {_PROGRESS_LIMIT_S:g} s"
        else:
            return
        raise RemoteError(
            f"the workers were recalled and {waited}; they were ended by force. "
            f"What they printed is in {folder.log_shown}"
        )


def _look_for_whole_batches(training: Training) -> None:
    """Determine, with the batch of the next step, whether ranks must compute whole batches.

    They must where it cannot be determined: the model has begun to do what it did in no step
    before.
    """
    batch = training.cursor.peek()
    if batch is None:
        return
    count = batch_size_of(*split(batch))
    found = by_samples(training, batch, count)
    if count < 2:
        found = Verdict(unknown="the batch has one sample")
    training.undivided = found.why
    if found.unknown:
        training.undivided = (
            f"the model does what it did in no step before, and whether such steps can be divided "
            f"is not known ({found.unknown})"
        )


def _layout(training: Training) -> Layout:
    mode: Any = training.modeset["parallel"]
    return mode.layout


def _rates(training: Training) -> list[dict[str, Any]]:
    """Return a copy of the settings of the optimizer's groups."""
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    return [
        copy.deepcopy({key: value for key, value in group.items() if key != "params"})
        for group in groups
    ]


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _ends(plan: Plan) -> tuple[int | None, int | None]:
    """The step and the epoch at which workers end."""
    steps = [step for step in (plan.until_step, plan.halt_at) if step is not None]
    return min(steps, default=None), plan.until_epoch
