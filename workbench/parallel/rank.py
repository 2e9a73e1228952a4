"""One rank of a parallel training: steps, epochs and commands, in step with all others.

Every rank holds the whole schedule of things to do and decides the same from the same numbers:
where the run ends, when an epoch is over, which commands are obeyed before which step. Rank 0 alone
knows how many commands there are, says so in the collective of a step, and tells the outside what
happens.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from workbench.experiment.data import split, to_device
from workbench.experiment.events import EpochDone, Event
from workbench.experiment.guard import NonFiniteError
from workbench.experiment.losses import logits_of
from workbench.experiment.optimizers import scale_learning_rate
from workbench.experiment.plan import Plan
from workbench.experiment.sampler import mix
from workbench.experiment.sources import ArraySource, LoaderSource
from workbench.experiment.state_copy import undo
from workbench.experiment.step import call
from workbench.modes.layout import Layout, lay_out
from workbench.parallel.batches import Part, RankBatches, RankSource
from workbench.parallel.branches import AsksItsData
from workbench.parallel.folder import Folder, Job
from workbench.parallel.ranks import Reporter
from workbench.parallel.state import load, save
from workbench.parallel.step import RankGuard, Summed, rank_step
from workbench.parallel.stream import Follower, Message, Writer
from workbench.parallel.validation import validate_together

if TYPE_CHECKING:
    from workbench.experiment.scalars import Series
    from workbench.experiment.training import Training

_TELL_S = 0.1
_SAVE_S = 30.0
_SAVE_SHARE = 20.0
"""A checkpoint is written at most once in so many times the time that it takes."""
_POLL_S = 0.02
_STREAM = 1000
"""Of `mix`: ranks but the first draw dropout from streams of their own."""


class Rank:
    """This process's part of a training, from a start checkpoint to an end.

    Args:
        training: unpacked, its weights still empty.
        job: what is to be done.
        folder: where the others are met.
        saves: whether checkpoints are written while it trains.
    """

    def __init__(self, training: Training, job: Job, folder: Folder, *, saves: bool = True) -> None:
        self._saves = saves
        self.training, self.folder = training, folder
        self.layout = Layout.parse(job.layout)
        self.plan = Plan(until_step=job.until_step, until_epoch=job.until_epoch)
        self.leads = dist.get_rank() == 0
        self._commands = Follower(folder.control)
        self._waiting = Follower(folder.control)
        """Counts commands, which `_commands` reads."""
        self._obey = 0
        self._paused = False
        self._ended = ""
        self._events: Writer | None = Writer(folder.events) if self.leads else None
        self._told = self._saved = time.monotonic()
        self._save_took = 0.0
        self._steps: list[tuple[int, float, int]] = []
        """(step, seconds, samples of all ranks) since the last position told."""
        self._reporter = Reporter(folder.report(dist.get_rank()), dist.get_rank(), training.device)
        self._reference: torch.Tensor | None = None
        self._branches = False
        """Whether ranks may take different ways through the model."""
        self._first = True
        load(training, folder.start)
        self._begin()

    def _begin(self) -> None:
        training, rank = self.training, dist.get_rank()
        training.seeded = True
        if rank:
            torch.manual_seed(mix(training.seed, training.step_count, stream=_STREAM + rank))
        source = RankSource(training.cursor.source, rank, dist.get_world_size())
        training.cursor.source = source
        self._look_at_forward()
        with _parameters_followed(training):
            self._called = lay_out(
                training.model, self.layout, training.device, by_blocks=not self._branches
            )
        if isinstance(training.val, (ArraySource, LoaderSource)):
            training.val = RankBatches(training.val, rank, dist.get_world_size())
            training.validate = validate_together
        training.adopt(training.model)
        training.guard = RankGuard(training.model, training.device)
        if self._events is not None:
            training.scalars.add_sink(self._tell_scalars)
            training.board.subscribe(self._tell_epoch)
        self.tell(
            {
                "type": "ready",
                "ranks": dist.get_world_size(),
                "step": training.step_count,
                "branches": self._branches,
            }
        )

    def run(self) -> None:
        """Train until the plan is fulfilled, or a command says otherwise."""
        training = self.training
        while not self._ended:
            self._carry_out()
            if self._paused or self._ended:
                continue
            if self.plan.reached(training):
                self._ended = "finished"
            else:
                self.advance()
        self._tell_position()
        self._save()
        self.tell({"type": "end", "how": self._ended, "checkpoint": self.folder.last.name})

    def tell(self, message: Message) -> None:
        """Tell the outside; of rank 0 alone."""
        if self._events is not None:
            self.training.scalars.flush()
            self._events.write({**message, "time": time.time()})

    # -- steps ------------------------------------------------------------------------------

    def advance(self) -> None:
        """Do the next step, and what comes after the last one of an epoch."""
        training = self.training
        part = training.cursor.take()
        if part is not None and not self._step(part):
            return
        if part is None or training.cursor.at_end:
            self._end_epoch()

    def _step(self, part: Part) -> bool:
        """One step; False where it was not applied, because something was not finite."""
        training = self.training
        training.guard.remember()
        started, obey = time.perf_counter(), self._count_commands()
        try:
            done = self._reporter.profiled(
                lambda: rank_step(
                    training,
                    self._called,
                    part,
                    obey,
                    save=self._time_to_save,
                    fill=self._branches and self.layout.kind == "fsdp",
                )
            )
        except NonFiniteError as error:
            undo(training, None)
            self.tell({"type": "non-finite", "what": error.what, "word": error.word})
            self._ended = "nan"
            return False
        training.cursor.done()
        training.step_count += 1
        self._obey = done.obey
        if done.applied and training.schedule.per_step:
            training.schedule.scheduler.step()
        self._steps.append((training.step_count, time.perf_counter() - started, done.samples))
        training.measures.count(done.samples)
        self._reporter.count(training.step_count, part.num_samples)
        self._log(done)
        if self._first:
            self._first = False
            self._compare_logits(done.logits)
            self._tell_position()
        if done.save and not training.cursor.at_end:
            self._save()
        return True

    def _log(self, done: Summed) -> None:
        training = self.training
        step = training.step_count
        training.scalars.add("train/loss", step, done.loss)
        if done.accuracy is not None:
            training.scalars.add("train/accuracy", step, done.accuracy)
        if done.gradient_norm is not None:
            training.scalars.add("train/gradient_norm", step, done.gradient_norm)
        if training.learning_rate is not None:
            training.scalars.add("train/learning_rate", step, training.learning_rate)
        if time.monotonic() - self._told > _TELL_S:
            self._tell_position()

    def _end_epoch(self) -> None:
        _same_buffers(self.training)
        self.training.end_epoch()
        self._tell_position()
        # asked of rank 0's clock: all save or none does
        if _agreed(self._time_to_save):
            self._save()

    @property
    def _time_to_save(self) -> bool:
        """By this rank's clock; writing takes a small share of the time."""
        return self._saves and time.monotonic() - self._saved > max(
            _SAVE_S, _SAVE_SHARE * self._save_took
        )

    def _save(self) -> None:
        begun = time.monotonic()
        _same_buffers(self.training)
        save(self.training, self.folder.last)
        self._saved = time.monotonic()
        self._save_took = self._saved - begun
        self.tell({"type": "saved", "step": self.training.step_count})

    def _tell_position(self) -> None:
        if self._events is None:
            return
        training = self.training
        measures = training.measures
        self._told = time.monotonic()
        measures.measure_speed(time.perf_counter())
        steps, self._steps = self._steps, []
        if training.scaler is not None:
            for name, value in training.scaler.scalars().items():
                training.scalars.add(name, training.step_count, value)
        self.tell(
            {
                "type": "position",
                "step": training.step_count,
                "position": training.cursor.position(),
                "commands": self._obey,
                "rate": training.learning_rate,
                "speed": [measures.steps_per_s, measures.samples_per_s],
                "steps": steps,
            }
        )

    def _tell_epoch(self, event: Event) -> None:
        if not isinstance(event, EpochDone):
            return
        training = self.training
        found = None if training.val is None else training.last_validation
        self.tell(
            {
                "type": "epoch",
                "step": training.step_count,
                "position": training.cursor.position(),
                "validation": found and [found.loss, found.accuracy],
                "confusion": None if event.confusion is None else event.confusion.tolist(),
            }
        )

    def _tell_scalars(self, batch: list[Series]) -> None:
        if self._events is not None:
            series = [[name, steps.tolist(), values.tolist()] for name, steps, values, _ in batch]
            self._events.write({"type": "scalars", "series": series, "time": time.time()})

    # -- the first step -----------------------------------------------------------------------

    def _look_at_forward(self) -> None:
        """Attach the modes and compute the first part before the model is laid over the ranks.

        What is kept is its logits, and whether the model asks its data on any rank. A model that is
        compiled is looked at without its modes, which would compile it for nothing, and without
        logits. Random state and buffers are put back. What the model raises it raises again in the
        step, where it is reported.
        """
        training = self.training
        compiled = training.modeset.compiled
        if not compiled:
            training.modeset.attach(training.model)
        asks = AsksItsData()
        part = training.cursor.take()
        if part is not None:
            training.guard.remember(exactly=True)
            try:
                with asks, nullcontext() if compiled else training.modeset.forward_context():
                    inputs = to_device(split(part.batch)[0], training.device)
                    logits = logits_of(call(training.model, inputs)).detach()
                self._reference = None if compiled else logits.float().clone()
            except Exception:  # noqa: BLE001 - see above
                self._reference = None
            finally:
                training.guard.restore()
        if compiled:
            training.modeset.attach(training.model)
        training.attached = training.modeset
        found = torch.tensor(float(asks.found), device=training.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        self._branches = bool(found)

    def _compare_logits(self, logits: torch.Tensor) -> None:
        """Tell by how much laying the model over ranks changed them; of all ranks together."""
        before, self._reference = self._reference, None
        found = torch.tensor(-1.0, device=logits.device)
        if before is not None and before.shape == logits.shape and before.numel():
            found = (logits.float() - before).abs().max()
        dist.all_reduce(found, dist.ReduceOp.MAX)
        if float(found) >= 0:
            self.tell({"type": "logits", "difference": float(found)})

    # -- commands ---------------------------------------------------------------------------

    def _count_commands(self) -> int:
        """How many commands there are; of rank 0, the others are told."""
        if not self.leads:
            return 0
        for _ in self._waiting.new():
            pass
        return self._waiting.count

    def _carry_out(self) -> None:
        """Obey what all ranks are to obey before the next step.

        While paused nothing tells ranks how far to read, so each reads on until the line that ends
        the pause, and not beyond it.
        """
        most = None if self._paused else self._obey
        for command in self._commands.new(most):
            self._do(command)
            if most is None and (self._ended or not self._paused):
                return
        if most is None:
            time.sleep(_POLL_S)

    def _do(self, command: Message) -> None:
        training, what = self.training, command["do"]
        if what == "pause":
            self._paused = True
            self._save()
            self.tell({"type": "paused", "step": training.step_count})
        elif what == "resume":
            self._paused = False
            self.tell({"type": "resumed", "step": training.step_count})
        elif what == "learning_rate":
            scale_learning_rate(
                training.optimizer, training.schedule.scheduler, float(command["value"])
            )
        elif what == "plan":
            self.plan = Plan(command["until_step"], command["until_epoch"])
        elif what == "home":
            self._ended = "home"
        else:
            raise ValueError(f"unknown command {what!r}; valid: {', '.join(COMMANDS)}")


COMMANDS = ("pause", "resume", "learning_rate", "plan", "home")


@contextmanager
def _parameters_followed(training: Training) -> Generator[None]:
    """Whatever the model's parameters become inside, the optimizer goes on with.

    `fully_shard` puts new parameters into the modules; moments become shards of the same kind.
    """
    before = dict(training.model.named_parameters())
    yield
    after = dict(training.model.named_parameters())
    changed: dict[torch.Tensor, torch.Tensor] = {
        before[name]: after[name] for name in before if before[name] is not after[name]
    }
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    for group in groups:
        group["params"] = [changed.get(old, old) for old in group["params"]]
    state = cast("dict[torch.Tensor, dict[str, Any]]", dict(training.optimizer.state))
    training.optimizer.state.clear()
    for old, kept in state.items():
        new = changed.get(old, old)
        training.optimizer.state[new] = {
            key: _moment(value, new, training.optimizer) if new is not old else value
            for key, value in kept.items()
        }


def _moment(value: Any, parameter: torch.Tensor, optimizer: torch.optim.Optimizer) -> Any:
    """A whole moment as a shard like those of its parameter; what is no moment stays."""
    if not isinstance(value, torch.Tensor) or not isinstance(parameter, DTensor) or not value.ndim:
        return value
    if value.shape != parameter.shape:
        raise ValueError(
            f"{type(optimizer).__name__} keeps a tensor of shape {list(value.shape)} for a "
            f"parameter of shape {list(parameter.shape)}; fsdp can shard moments of the "
            "parameter's own shape only: use ddp, or an optimizer such as AdamW"
        )
    # every rank has the whole of it: nothing needs to be sent
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _same_buffers(training: Training) -> None:
    """Every rank has seen its own samples; what it counts of them is rank 0's, as under DDP."""
    for buffer in training.model.buffers():
        dist.broadcast(buffer, 0)


def _agreed(mine: bool) -> bool:
    """What rank 0 says."""
    said = torch.tensor([int(mine)])
    dist.broadcast(said, 0)
    return bool(said.item())
