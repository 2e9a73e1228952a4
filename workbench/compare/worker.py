"""The program of an arm: ``python -m workbench.compare.worker FOLDER``, or a rank of one.

It makes the training from the payload, under the modes of its job, and then does what it is told,
one order at a time: steps that are timed, what a step launches, logits at the weights of the start.
Between two orders it waits without computing, while other arms are measured. Of several ranks the
first one listens and tells the others.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from workbench.compare.arms import LOGITS
from workbench.dynamo import compile_report
from workbench.experiment.data import split, to_device
from workbench.experiment.losses import logits_of
from workbench.experiment.step import call
from workbench.experiment.training import Training
from workbench.experiment.validation import evaluating
from workbench.metrics.memory import of_process
from workbench.modes import ModeSet
from workbench.parallel.folder import Folder, Job
from workbench.parallel.payload import unpack
from workbench.parallel.rank import Rank
from workbench.parallel.state import load
from workbench.parallel.stream import Follower, Message, Writer
from workbench.parallel.worker import join, write_down

_POLL_S = 0.005
_LOOK_S = 1.0
_ORPHANED = 75


class Arm:
    """One arm's part in a comparison; every rank of it has one."""

    def __init__(self, folder: Folder) -> None:
        job = json.loads((folder.path / "arm.json").read_text(encoding="utf-8"))
        self._folder, self._parent = folder, int(job["parent"])
        self._ranks = int(job["ranks"])
        self._parity_samples = int(job["parity_samples"])
        local = int(os.environ.get("LOCAL_RANK", "0"))
        _forget_peak()
        self._memory = of_process()["memory/resident"]
        training = unpack(folder.payload, local)
        training.modeset = ModeSet.parse(job["modes"], training.device)
        self._val, training.val = training.val, None  # no epoch's end inside of what is timed
        self._train = training.cursor.source
        self.training: Training = training
        self._advance: Callable[[], object] = training.advance
        self._rank: Rank | None = None
        if self._ranks > 1 or training.modeset.elsewhere:
            layout = training.modeset["parallel"].value
            self._rank = Rank(training, Job(layout, None, None), folder, saves=False)
            self._advance = self._rank.advance
        else:
            load(training, folder.start)
            training.random.save()
            training.seeded = True
            _warm_up(training)
        training.model.train()
        self._leads = self._rank is None or self._rank.leads
        self._answers = Writer(folder.path / "answers.jsonl") if self._leads else None
        self._orders = Follower(folder.path / "orders.jsonl")

    def serve(self) -> None:
        """Obey until told to leave, or until nobody is there to tell."""
        self._answer({"type": "ready"})
        while True:
            order = self._next_order()
            if order["do"] == "leave":
                return
            self._answer({"type": order["do"], **getattr(self, f"_do_{order['do']}")(order)})

    # -- orders -----------------------------------------------------------------------------

    def _do_first(self, order: Message) -> Message:
        """The first step, with what it compiles; and some more, which are not told."""
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
        if report is None:
            return {"seconds": seconds, "graphs": 0, "breaks": 0}
        record = report.record
        return {"seconds": seconds, "graphs": record.num_graphs, "breaks": len(record.breaks)}

    def _do_steps(self, order: Message) -> Message:
        """A block of steps: the time of each on a CPU, of all together on a GPU."""
        count = int(order["count"])
        if self.training.device.type == "cpu":
            return {"seconds": [self._timed() for _ in range(count)]}
        started = time.perf_counter()
        for _ in range(count):
            self._advance()
        self._synchronise()
        return {"seconds": [(time.perf_counter() - started) / count]}

    def _do_facts(self, order: Message) -> Message:  # noqa: ARG002 - every order is one
        """Memory, losses, samples of a step, and what it launches."""
        peak = self._peak_bytes()
        self.training.scalars.flush()
        losses = self.training.scalars.since("train/loss", 0)[1].tolist()
        with torch.profiler.profile() as profile:
            self._step()
        source = self.training.cursor.source
        per_epoch = source.steps_per_epoch or 1
        size = source.num_samples / per_epoch if source.num_samples else float("nan")
        return {
            "peak_bytes": peak,
            "losses": losses,
            "operations": _launched(profile),
            "batch_size": size,
        }

    def _do_parity(self, order: Message) -> Message:  # noqa: ARG002 - every order is one
        """Logits at the weights of the start, in eval mode; written to a file."""
        training = self.training
        load(training, self._folder.start)
        source = self._train if self._val is None else self._val
        found: list[torch.Tensor] = []
        samples = 0
        with evaluating(training.model), torch.no_grad():
            for batch in source.batches(0):
                inputs = to_device(split(batch)[0], training.device)
                with training.modeset.forward_context():
                    logits = logits_of(call(training.model, inputs))
                found.append(logits.detach().float().cpu())
                samples += len(logits)
                if samples >= self._parity_samples:
                    break
        if self._leads:
            torch.save(torch.cat(found)[: self._parity_samples], self._folder.path / LOGITS)
        where = "training" if self._val is None else "validation"
        return {"samples": min(samples, self._parity_samples), "on": where}

    # -- inside -----------------------------------------------------------------------------

    def _step(self) -> None:
        self._advance()
        self._synchronise()

    def _timed(self) -> float:
        started = time.perf_counter()
        self._advance()
        return time.perf_counter() - started

    def _synchronise(self) -> None:
        if self.training.device.type == "cuda":
            torch.cuda.synchronize(self.training.device)

    def _peak_bytes(self) -> float:
        if self.training.device.type == "cuda":
            own = float(torch.cuda.max_memory_allocated(self.training.device))
        else:
            now = of_process()
            own = now.get("memory/resident_peak", now["memory/resident"]) - self._memory
        if self._ranks > 1:
            total = torch.tensor(own, dtype=torch.float64)
            dist.all_reduce(total)
            own = float(total)
        return own

    def _next_order(self) -> Message:
        """The next order; all ranks have the same."""
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
                if not psutil.pid_exists(self._parent):
                    # nobody else is left who could; ranks and their launcher end with this one
                    shutil.rmtree(self._folder.path.parent, ignore_errors=True)
                    os._exit(_ORPHANED)
            time.sleep(_POLL_S)

    def _answer(self, message: Message) -> None:
        if self._answers is not None:
            self._answers.write(message)


def main(arguments: list[str]) -> int:
    """Serve in a folder; returns the exit status."""
    folder, rank = Folder(Path(arguments[0])), int(os.environ.get("RANK", "0"))
    folder.pid(rank).write_text(str(os.getpid()), encoding="ascii")
    try:
        if "WORLD_SIZE" in os.environ:
            join()
        Arm(folder).serve()
    except BaseException as error:  # noqa: BLE001 - a model may raise anything, and is reported
        write_down(error, rank, folder.fault(rank))
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to be kept, and taking torch apart takes a second


def _warm_up(training: Training) -> None:
    """Compute the first batch once without any mode, and undo it.

    Libraries set themselves up in the first step of a process, which is no cost of a mode. What the
    model raises it raises again in the step, where it is reported.
    """
    training.guard.remember(exactly=True)
    try:
        inputs = to_device(split(training.cursor.preview())[0], training.device)
        logits_of(call(training.model, inputs)).float().sum().backward()
    except Exception:  # noqa: BLE001, S110 - see above
        pass
    finally:
        training.guard.restore()
        training.optimizer.zero_grad()


def _forget_peak() -> None:
    """Let the process's high-water mark begin anew, where the system can: imports had one, too."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _launched(profile: torch.profiler.profile) -> int:
    events = profile.events() or []
    kernels = sum(1 for event in events if "cuda" in str(event.device_type).lower())
    if kernels:
        return kernels
    return sum(1 for e in events if e.name.startswith("aten::") and not e.cpu_children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
