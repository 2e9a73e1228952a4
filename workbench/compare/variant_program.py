"""Program of a variant, or of a rank: ``python -m workbench.compare.variant_program FOLDER``.

It creates the training from the payload, under the modes of its job, and then executes orders, one
at a time: timed steps, the launches of a step, logits at the initial weights. Between two orders it
waits without computing, while other variants are measured. Of several ranks, the first one receives
the orders and passes them to the others.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from workbench.compare.launch_counts import launches
from workbench.compare.logits import Answers
from workbench.compare.peak_memory import forget_peak, peak_on_gpu, profiled_on_cpu
from workbench.compare.variants import COMPARED_STEPS, JOB, LOGITS
from workbench.dynamo import compile_report
from workbench.dynamo.listen.graph_breaks import Break
from workbench.dynamo.listen.recompile_limits import REASON, Limit, limit_of
from workbench.dynamo.listen.recorder import Compilation, listen
from workbench.experiment.data.data import split, to_device
from workbench.experiment.loop.step import call
from workbench.experiment.recipe.losses import logits_of
from workbench.experiment.report.events import Event, StepDone
from workbench.experiment.training import Training
from workbench.modes import ModeSet
from workbench.parallel.exchange.files import Folder, Job
from workbench.parallel.exchange.stream import Follower, Message, Writer
from workbench.parallel.rank.program import join, write_fault
from workbench.parallel.rank.rank import Rank
from workbench.parallel.transfer.checkpoint import load
from workbench.parallel.transfer.job_pickle import unpack
from workbench.torch_private.pytree import tree_map_only

_POLL_S = 0.005
_LOOK_S = 1.0
_ORPHANED = 75
_PATIENCE = timedelta(hours=12)
"""How long ranks wait while other variants are measured or compile."""
_EPOCHS_WITHOUT_STEPS = 3
"""Maximum number of epochs without a step: a loader that does not know its length ends an epoch
when one batch too many is requested."""


class Variant:
    """The part of one variant in a comparison; every rank of it has one."""

    def __init__(self, folder: Folder) -> None:
        job = folder.seal.read_json(folder.path / JOB, JOB)
        self._folder, self._parent = folder, int(job["parent"])
        self._ranks = int(job["ranks"])
        self._parity_samples = int(job["parity_samples"])
        local = int(os.environ.get("LOCAL_RANK", "0"))
        training = unpack(folder.payload, local, as_there=True, seal=folder.seal)
        training.modeset = ModeSet.parse(job["modes"], training.device)
        self._kernel_settings = ExitStack()
        self._kernel_settings.enter_context(
            training.caller_settings.entered()
        )  # to the end of the process
        self._val, training.val = training.val, None  # no end of an epoch within what is timed
        self._train = training.cursor.source
        self.training: Training = training
        self._advance: Callable[[], object] = training.advance
        self._rank: Rank | None = None
        self._samples = 0
        if self._ranks > 1 or training.modeset.is_remote:
            layout = training.modeset["parallel"].value
            self._rank = Rank(training, Job(layout, None, None, save_every_s=None), folder)
            self._advance = self._rank.advance
            self._count_parts()
        else:
            load(training, folder.start, folder.seal)
            training.random.save()
            training.seeded = True
            training.board.subscribe(self._counted, every_step=True)
            _warm_up(training)
        training.train_mode.set(training.optimizer)
        loader = getattr(self._train, "loader", None) if self._train.has_workers else None
        self._prefetched = 0 if loader is None else loader.num_workers * loader.prefetch_factor
        """Number of batches that worker processes prepare while other variants are measured."""
        self._limits: list[Limit] = []
        """Code that is no longer compiled, because it reached Dynamo's limit of recompiles."""
        if training.modeset.compiled:
            listen().on_break.append(self._limited)
        self._leads = self._rank is None or self._rank.leads
        self._answers = Writer(folder.path / "answers.jsonl", folder.seal) if self._leads else None
        self._orders = Follower(folder.path / "orders.jsonl", folder.seal)

    def serve(self) -> None:
        """Execute orders until the one to leave, or until the process that gives them is gone."""
        self._answer({"type": "ready"})
        while True:
            order = self._next_order()
            if order["do"] == "leave":
                return
            self._answer({"type": order["do"], **getattr(self, f"_do_{order['do']}")(order)})

    # -- orders -----------------------------------------------------------------------------

    def _do_first(self, order: Message) -> Message:
        """Run the first step, including what it compiles; and some more, which are not reported."""
        training = self.training
        if self._rank is None:
            training.begin()
        listening = compile_report() if training.modeset.compiled else nullcontext()
        with listening as report:
            started = time.perf_counter()
            self._step()
            seconds = time.perf_counter() - started
            for _ in range(int(order["warm_up"])):
                self._step()
        graphs = {"graphs": 0, "breaks": 0}
        if report is not None:
            record = report.record
            graphs = {"graphs": record.num_graphs, "breaks": len(record.breaks)}
        forget_peak(training.device)  # the peak of compiling, and of libraries that initialise
        return {"seconds": seconds, "is_random": training.guard.drew_random_numbers(), **graphs}

    def _do_steps(self, order: Message) -> Message:
        """Run a block of steps: time each one on a CPU, all together on a GPU.

        If worker processes make the batches, those that are already prepared are consumed first,
        and the time is that of all steps together: the time per step over a long run.
        """
        count = int(order["count"])
        for _ in range(self._prefetched):
            self._step()
        samples = self._samples
        if self.training.device.type == "cpu" and not self._prefetched:
            seconds = [self._timed() for _ in range(count)]
        else:
            started = time.perf_counter()
            for _ in range(count):
                self._once()
            self._synchronise()
            seconds = [(time.perf_counter() - started) / count]
        return {
            "seconds": seconds,
            "samples": self._of_all(self._samples - samples),
            "peak_bytes": self._of_all(peak_on_gpu(self.training.device)),
            "losses": self._losses(),
        }

    def _do_profile(self, order: Message) -> Message:  # noqa: ARG002 - every order passes one
        """Profile one more step: what it launches, and on a CPU what it allocates."""
        training = self.training
        if training.device.type == "cpu":
            modules = [training.model if self._rank is None else self._rank.called]
            modules += [] if training.loss.module is None else [training.loss.module]
            peak, events = profiled_on_cpu(self._step, *modules, optimizer=training.optimizer)
        else:
            with torch.profiler.profile() as profile:
                self._step()
            peak, events = peak_on_gpu(training.device), list(profile.events() or ())
        return {
            "operations": launches(events),
            "peak_bytes": self._of_all(peak),
            "notes": list(dict.fromkeys(limit.sentence for limit in self._limits)),
        }

    def _do_parity(self, order: Message) -> Message:  # noqa: ARG002 - every order passes one
        """Compute logits at the initial weights, in eval mode, and write them to a file."""
        training = self.training
        load(training, self._folder.start, self._folder.seal)
        source = self._train if self._val is None else self._val
        kept = Answers(self._parity_samples)
        try:
            with training.train_mode.evaluating(training.optimizer), torch.no_grad():
                for batch in source.batches(0):
                    inputs, targets = split(batch)
                    with training.forward_context():
                        logits = logits_of(call(training.model, to_device(inputs, training.device)))
                    kept.add(logits, targets)
                    if kept.is_full:
                        break
            if self._leads:
                kept.save(self._folder.path / LOGITS)
        except Exception as error:  # noqa: BLE001 - the steps were measured, which matters more
            return {"samples": 0, "on": "", "problem": f"{type(error).__name__}: {error}"}
        where = "training" if self._val is None else "validation"
        return {"samples": kept.samples, "on": where, "problem": ""}

    # -- inside -----------------------------------------------------------------------------

    def _step(self) -> None:
        self._once()
        self._synchronise()

    def _timed(self) -> float:
        started = time.perf_counter()
        self._once()
        return time.perf_counter() - started

    def _once(self) -> None:
        """Run one step, which may be the first of another epoch.

        Raises:
            RuntimeError: no step was done, because the loss is not finite or there is no data.
        """
        before = self.training.step_count
        for _ in range(_EPOCHS_WITHOUT_STEPS):
            self._advance()
            if self.training.step_count > before:
                return
        raise RuntimeError(
            "no step was done: the loss or a gradient is not finite, or the data gave no batch"
        )

    def _limited(self, compilation: Compilation, broken: Break) -> None:
        if broken.reason == REASON:
            self._limits.append(limit_of(compilation, broken))

    def _counted(self, event: Event) -> None:
        if isinstance(event, StepDone):
            self._samples += event.num_samples

    def _count_parts(self) -> None:
        """Count the samples that each rank fetches of a batch, as ranks emit no events."""
        cursor = self.training.cursor
        take = cursor.take

        def counting() -> Any:
            part = take()
            self._samples += 0 if part is None else part.num_samples
            return part

        cursor.take = counting

    def _losses(self) -> list[float]:
        self.training.scalars.flush()
        return self.training.scalars.since("train/loss", 0)[1][:COMPARED_STEPS].tolist()

    def _synchronise(self) -> None:
        if self.training.device.type == "cuda":
            torch.cuda.synchronize(self.training.device)

    def _of_all(self, own: float) -> float:
        """Return the sum over all ranks."""
        if self._ranks == 1:
            return own
        total = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def _next_order(self) -> Message:
        """Return the next order, which is the same on all ranks."""
        order: list[Any] = [None]
        if self._leads:
            order[0] = self._wait_for_order()
        if self._ranks > 1:
            dist.broadcast_object_list(order, 0)
        return order[0]

    def _wait_for_order(self) -> Message:
        looked = time.monotonic()
        while True:
            for order in self._orders.new(self._orders.count + 1):
                return order
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                if not psutil.pid_exists(self._parent) or not self._folder.is_there:
                    # no other process is left to do it; ranks and their launcher end with this one
                    shutil.rmtree(self._folder.shown.parent, ignore_errors=True)
                    os._exit(_ORPHANED)
            time.sleep(_POLL_S)

    def _answer(self, message: Message) -> None:
        if self._answers is not None:
            self._answers.write(message)


def main(arguments: list[str]) -> int:
    """Execute the orders in a folder; returns the exit status."""
    folder, rank = Folder(Path(arguments[0])), int(os.environ.get("RANK", "0"))
    folder.record_pid(rank)
    try:
        if "WORLD_SIZE" in os.environ:
            join(_PATIENCE)
        Variant(folder).serve()
    except BaseException as error:  # noqa: BLE001 - a model may raise anything; it is reported
        write_fault(error, rank, folder)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to be saved, and torch's shutdown takes a second


def _warm_up(training: Training) -> None:
    """Compute a few samples of the first batch once without any mode, and undo it.

    Libraries initialise in the first step of a process, which is not a cost of a mode. An error of
    the model is raised again in the step, where it is reported.
    """
    training.guard.remember(exactly=True)
    try:
        inputs = to_device(_few(split(training.preview())[0]), training.device)
        logits_of(call(training.model, inputs)).float().sum().backward()
    except Exception:  # noqa: BLE001, S110 - see above
        pass
    finally:
        training.guard.restore()
        training.optimizer.zero_grad()


def _few(inputs: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda one: one[:2] if one.ndim else one, inputs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
