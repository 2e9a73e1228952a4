"""A training in worker processes: sent, followed, controlled, and brought back to the kernel.

All of this happens between two steps, on the thread that the training belongs to. What is here when
the training is sent stays here unchanged until it comes back, so a session that fails loses what
the workers did since their last checkpoint and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from workbench.experiment.failure.failure import Fault
from workbench.experiment.runtime.remote import RemoteError
from workbench.modes.core.model_blocks import find_blocks
from workbench.modes.layout.layout import Layout
from workbench.parallel.checks.parameter_use import unshardable, why_not_in
from workbench.parallel.data.rank_batches import RankSource
from workbench.parallel.exchange.files import SAVE_EVERY_S, Folder, Job
from workbench.parallel.exchange.stream import Follower, Message, Writer
from workbench.parallel.launch.worker_processes import FoundWorkers, Workers
from workbench.parallel.sentences import listed
from workbench.parallel.session.history import History
from workbench.parallel.transfer.checkpoint import load, save
from workbench.parallel.transfer.job_pickle import PackingError, pack
from workbench.parallel.transfer.object_state import ObjectState
from workbench.parallel.transfer.shared_memory import refusal, shared_moments
from workbench.trust import HeldFolder, NotAFileError, Seal, SealError

if TYPE_CHECKING:
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.training import Training


_WAITED = re.compile(r"timed ?out|timeout|NCCL", re.IGNORECASE)
"""Matches the error of a rank that waited for the others although none of them failed."""


class WorkersError(RemoteError):
    """Workers died; the message has the error of the first of them."""

    def __init__(self, message: str, fault: Fault | None, checkpoint: Path | None) -> None:
        super().__init__(message, fault)
        self.checkpoint = checkpoint
        """The newest complete checkpoint, by its path in this process; None where there is none."""


class Session:
    """One session of a training in worker processes."""

    def __init__(self, folder: Folder, workers: Workers | FoundWorkers) -> None:
        self.folder = folder
        self._workers = workers
        self._control = Writer(folder.control, folder.seal)
        self._events = Follower(folder.events, folder.seal)
        self.commands_sent = self._control.count
        """Number of lines in the workers' control file, written by any process."""
        self.ended = ""
        """How it ended: ``finished``, ``recalled``, ``nan``; ``""`` while it runs."""

    @classmethod
    def send(
        cls,
        training: Training,
        root: Path,
        layout: Layout,
        plan: Plan,
        *,
        save_every_s: float = SAVE_EVERY_S,
        companions: tuple[str, ...] = (),
    ) -> Session:
        """Have ``training`` continue in workers, from its next step on.

        Args:
            training: stays as it is here.
            root: a folder for this and later sessions.
            layout: how many ranks, and what each holds.
            plan: where the run ends.
            save_every_s: minimum time between checkpoints while it continues.
            companions: modules that accompany every rank (`Job.companions`).

        Raises:
            PackingError: a part of the training cannot be sent to another process, or to several.
            DataError: its batches cannot be divided among ranks.
            OSError: nothing can be written to ``root``, or another user interferes with it.
        """
        RankSource(training.cursor.source, 0, layout.world_size)  # else every rank would refuse
        _refuse_what_the_mode_refuses(training)
        _refuse_parameters_of_the_loss(training)
        if layout.kind == "fsdp":
            _refuse_sparse_gradients(training.model)
            _refuse_in_16_bits(training.model, layout)
        training.detach_modes()
        training.object_state = objects = ObjectState.of(training)
        parameters = set(map(id, training.model.parameters()))
        sharded = layout.kind == "fsdp"
        why = refusal(objects.shared, parameters, sharded=sharded) or shared_moments(training)
        if why:
            raise PackingError(why)
        folder = _new_folder(root)
        try:
            training.hook_state = pack(training, folder.payload, seal=folder.seal)
            save(training, folder.start, folder.seal)
            History.of(training).save(folder.history, folder.seal)
            steps = [step for step in (plan.until_step, plan.halt_at) if step is not None]
            end = min(steps, default=None), plan.until_epoch
            folder.write_job(Job(str(layout), *end, save_every_s, companions))
        except BaseException:
            folder.remove()  # it has copies of the data
            raise
        if outside := objects.written_outside():
            training.note(
                f"under {layout} what code writes into {listed(outside, 4)} stays with the ranks, "
                "for it is no attribute of the model, the loss, the optimizer or the schedule: "
                "kept there, it comes back"
            )
        workers = Workers(folder, layout.world_size)
        try:
            return cls(folder, workers)
        except BaseException:
            workers.end()
            raise

    @classmethod
    def found(cls, folder: Folder) -> Session:
        """Return a session that another process began, whether or not its workers still run.

        Raises:
            ValueError: they are on another machine.
        """
        return cls(folder, FoundWorkers(folder))

    @property
    def num_read(self) -> int:
        """Number of messages that have been read."""
        return self._events.count

    def reported_before(self, count: int) -> Iterator[Message]:
        """Yield the first ``count`` messages, which another process has read before."""
        yield from self._events.new(count)

    @property
    def is_over(self) -> bool:
        """Whether the workers' processes are gone."""
        return self._workers.status() is not None

    @property
    def pid(self) -> int:
        """Id of the process that supervises the ranks."""
        return self._workers.pid

    def command(self, what: str, **arguments: Any) -> None:
        """Send a command to the workers: ``recall``, ``learning_rate``, ``constant``, ``plan``."""
        self._control.write({"do": what, **arguments})
        self.commands_sent += 1

    def news(self) -> Iterator[Message]:
        """Yield what the workers have reported since the last call.

        Raises:
            WorkersError: a rank died.
        """
        self._control.flush()
        status = self._workers.status()
        try:
            for message in self._events.new():
                if message["type"] == "end":
                    self.ended = message["how"]
                yield message
        except (SealError, NotAFileError) as error:
            problem = f"what the ranks report cannot be trusted: {error}"
            raise WorkersError(problem, None, self.folder.latest) from error
        if status is not None and not self.ended:
            raise self._died(status)

    def bring_back(self, training: Training) -> None:
        """Load what the workers ended with, or their last checkpoint if they died.

        Raises:
            FileNotFoundError: they left none.
        """
        latest = self.folder.latest
        if latest is None:
            raise FileNotFoundError(f"{self.folder.shown} holds no complete checkpoint to load")
        load(training, latest, self.folder.seal)
        training.object_state = training.hook_state = None  # they hold what may be released

    def close(self) -> None:
        """End the workers, if they still run, and close the files."""
        self._workers.end()
        self._control.close()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the workers' processes have ended; returns the launcher's exit status."""
        return self._workers.wait(timeout)

    def _died(self, status: int) -> WorkersError:
        """Return the first dead rank's error; those that only waited for it add nothing new."""
        latest = self.folder.latest
        faults = self.folder.faults()
        own = [(fault["time"], rank, fault) for rank, fault in faults.items() if not fault["lost"]]
        if own:
            _, rank, found = min(own)
            fault = Fault(*found["fault"])
            return WorkersError(f"rank {rank}: {fault.type}: {fault.message}", fault, latest)
        ranks = range(self._workers.world_size)
        if not any(self.folder.pid(rank).exists() for rank in ranks):
            line = self.folder.last_printed_line()
            return WorkersError(
                f"the ranks could not be started (status {status}): {line} What was printed is in "
                f"{self.folder.log_shown}",
                None,
                latest,
            )
        messages = [fault["fault"][1].strip() for fault in faults.values()]
        if waited := [text for text in messages if _WAITED.search(text)]:
            return WorkersError(
                f"a collective of the ranks timed out: {waited[0].splitlines()[0]}. They took "
                "different paths through the model, or one was stuck. What they printed is in "
                f"{self.folder.log_shown}",
                None,
                latest,
            )
        silent = [str(rank) for rank in ranks if rank not in faults]
        # the launcher ends the others at once, maybe before they report what they waited for
        silent = [rank for rank in silent if int(rank) in self.folder.failed] or silent
        who = {0: "the launcher was", 1: f"rank {''.join(silent)} was"}.get(
            len(silent), f"ranks {' and '.join(silent)} were"
        )
        return WorkersError(
            f"{who} ended from outside (status {status}): killed by hand, or by the system "
            f"when memory ran out. What the workers printed is in {self.folder.log_shown}",
            None,
            latest,
        )


def _refuse_what_the_mode_refuses(training: Training) -> None:
    """Refuse what the mode refuses, because of what a cell has changed since it was chosen."""
    if refused := training.modeset["parallel"].refusal(training.model):
        raise PackingError(refused)


def _refuse_parameters_of_the_loss(training: Training) -> None:
    """Refuse parameters outside of the model: ranks average the gradients of the model only."""
    known = {id(parameter) for parameter in training.model.parameters()}
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    beside = [p for group in groups for p in group["params"] if id(p) not in known]
    if beside:
        raise PackingError(
            f"the optimizer trains {len(beside)} parameter{'s' if len(beside) > 1 else ''} that "
            f"{'are' if len(beside) > 1 else 'is'} not the model's (of shape "
            f"{list(beside[0].shape)}), as of a loss; ranks would each train their own. Make what "
            "has them a part of the model"
        )


def _refuse_sparse_gradients(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise PackingError(
                f"{name or 'the model'} is an {type(module).__name__} with sparse=True, and fsdp "
                "shards dense gradients only: use ddp, or make it with sparse=False"
            )


def _refuse_in_16_bits(model: nn.Module, layout: Layout) -> None:
    """Refuse parameters that cannot be gathered in 16 bits.

    What a step writes is known to the ranks only, which refuse it before the first step.
    """
    if layout.dtype and (
        problem := why_not_in(layout.dtype, unshardable(model, find_blocks(model)))
    ):
        raise PackingError(problem)


def _new_folder(root: Path) -> Folder:
    root.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        try:
            held = HeldFolder.made(root, str(number))
        except FileExistsError:
            continue
        return Folder(held.shown, Seal.new(), held)
    raise AssertionError
