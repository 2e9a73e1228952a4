"""Writes the checkpoints of a run, and never delays a step by a disk.

The live state is always that of the last good step (`workbench.experiment.loop.step_guard`). When a
checkpoint is due it is copied to the CPU's memory between two steps; a thread of its own writes the
copy (`workbench.experiment.checkpoint.folder`) and removes those that are no longer kept: all but
the last `KEEP_LAST`, the one with the best validation, and those that are pinned.

A checkpoint is due at the end of an epoch, at most every `PERIOD_S` seconds unless its validation
is the best so far, or as often as the user has set; and whenever a run pauses, fails, or is over.
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from workbench.experiment.checkpoint import folder as checkpoints
from workbench.experiment.checkpoint import training_state
from workbench.experiment.checkpoint.folder import Checkpoint, Contents
from workbench.experiment.recipe.arguments import whole
from workbench.experiment.recipe.losses import OWN
from workbench.experiment.runtime import at_exit
from workbench.experiment.state.kept_weights import kept_weights
from workbench.torch_private.self_check import notes_of
from workbench.trust import error_message, whole_file

if TYPE_CHECKING:
    from workbench.experiment.data.data import DataSource
    from workbench.experiment.loop.scalars import ScalarLog
    from workbench.experiment.loop.stop_condition import Plan
    from workbench.experiment.report.run_directory import RunFolder
    from workbench.experiment.training import Training

PERIOD_S = 30.0
KEEP_LAST = 2
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
PINNED = "pinned"
"""Name of an empty file in a checkpoint that is never removed."""
EVALUATED = "evaluated."
"""Prefix of the names of weights that are evaluated in the place of those that are trained."""
_DISK_SLOW = (
    "the disk is slow or full: a checkpoint was written before all that was logged; if the run is "
    "resumed from it, curves in TensorBoard may lack a part"
)


def contents(training: Training, plan: Plan) -> Contents:
    """Return everything that a resume needs, copied to the CPU."""
    for note in notes_of("saving"):
        training.note(note)
    tensors, apart = training_state.tensors(training)
    tensors |= _evaluated(training)
    saved = training_state.rest(training) | apart
    board, found = training.board, training.module_values
    saved |= {
        "on_cpu": {name for name, tensor in tensors.items() if tensor.device.type == "cpu"},
        "held": [one.portable() for one in training.held or ()],
        "generators": [
            [one.get_state() for one in source.generators] for source in sources_of(training)
        ],
        "values": {} if found is None else found.changed(),
        "extra": _extra_state(training),
        "unsaved": _unsaved(training),
        "state_dict": training_state.names_in_state_dict(training.model),
        "mode_text": training.modes,
        "plan": [plan.until_step, plan.until_epoch, plan.from_epoch],
        "pass": training.cursor.pass_state,
        "schedule": training.schedule.state(),
        "device": training.device.type,
        "markers": [asdict(marker) for marker in board.markers],
        "settings": settings_of(training),
        "threads": torch.get_num_threads(),
    }
    for note in () if found is None else found.notes():
        training.note(note)
    return Contents.of(
        tensors,
        saved,
        step=training.step_count,
        epoch=training.cursor.epoch,
        metrics=_now(training),
        monitored=training.monitor.looked_at(training.step_count),
        best=training.monitor.best,
    )


def _now(training: Training) -> dict[str, float]:
    """Values of the run's own scalars at this step: others are of other weights."""
    scalars, step = training.scalars, training.step_count
    scalars.flush()
    values = {name: scalars.at(name, step) for name in scalars.names() if name in OWN}
    return {name: value for name, value in values.items() if value is not None}


def sources_of(training: Training) -> list[DataSource]:
    """The data of training, and of validation if there is any."""
    return [one for one in (training.cursor.source, training.val) if one is not None]


def settings_of(training: Training) -> dict[str, tuple[str, Any]]:
    """What has to be the same where a run is continued: name -> (argument, value)."""
    found: dict[str, tuple[str, Any]] = {
        "the seed": ("seed", training.seed),
        "the optimizer": ("optimizer", type(training.optimizer).__name__),
        "the number of parameters in the optimizer's groups": (
            "optimizer", [len(group["params"]) for group in training.optimizer.param_groups],
        ),
        "the schedule": ("scheduler", training.schedule.name or "none"),
        "the gradients' clipping": ("clip_grad_norm", training.clip_grad_norm),
        "the decay of averaged weights": ("ema", training.ema and training.ema.decay),
    }  # fmt: skip
    for source, argument in zip(sources_of(training), ("train", "val"), strict=False):
        sampler = getattr(source, "sampler", None)
        found |= {
            f"the number of samples in {argument}": (argument, source.num_samples),
            f"the batch size of {argument}": ("batch_size", source.batch_size),
            f"the order of {argument}": ("order", "workbench" if source.repeats else "loader"),
            f"the shuffling of {argument}": ("shuffle", getattr(sampler, "shuffle", None)),
        }
    found["the validation data"] = ("val", "given" if training.val is not None else "none")
    return found


def _evaluated(training: Training) -> dict[str, torch.Tensor]:
    """Copies of the weights that are evaluated, if the optimizer trains others (schedule-free).

    Those that it trains are restored to the last bit, which ``eval`` and ``train`` alone do not do.
    """
    optimizer: Any = training.optimizer
    if not (callable(getattr(optimizer, "eval", None)) and training.seeded):
        return {}
    with _weights_to_evaluate(training):
        return {
            f"{EVALUATED}{name}": tensor.detach().to("cpu", copy=True)
            for name, tensor in training.model.named_parameters()
        }


@contextmanager
def _weights_to_evaluate(training: Training) -> Generator[None]:
    optimizer: Any = training.optimizer
    with kept_weights(training):
        try:
            optimizer.eval()
            yield
        finally:
            optimizer.train()


def _unsaved(training: Training) -> str:
    """Return a sentence on what a loss that is no module keeps; ``""`` if it keeps nothing."""
    state = training.loss_state
    kept = "" if state is None else state.changed()
    if not kept:
        return ""
    sentence = (
        f"the loss {training.loss.name} keeps something from call to call ({kept}) that is not in "
        "checkpoints: after a resume it begins anew. A torch.nn.Module with a buffer is saved"
    )
    training.note(sentence)
    return sentence


def _extra_state(training: Training) -> dict[str, Any]:
    """What ``get_extra_state`` of the user's own modules returns, by path."""
    models = {"model": training.model, "loss": training.loss.module}
    return {
        f"{which}.{path}": module.get_extra_state()
        for which, model in models.items()
        if model is not None
        for path, module in model.named_modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
    }


class Interval(NamedTuple):
    """A number of steps, or a time; neither: no interval."""

    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, every: Any) -> Interval:
        """Read what a user has given.

        Raises:
            TypeError, ValueError: it is no number of steps, and no time such as ``"10 min"``.
        """
        if every is None:
            return cls()
        if not isinstance(every, str):
            return cls(steps=whole(every, "checkpoint_every"))
        number, _, unit = every.strip().partition(" ")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not 0 < value < math.inf or unit.strip() not in _UNITS:
            raise ValueError(
                f"checkpoint_every is {every!r}; valid: a number of steps, or a time such as "
                f"'10 min' (units: {', '.join(_UNITS)})"
            )
        return cls(seconds=value * _UNITS[unit.strip()])


class _Waiting(NamedTuple):
    """A checkpoint to be written, without the training: it may be freed meanwhile."""

    contents: Contents
    scalars: ScalarLog
    notes: list[str]
    here: Any
    """Step and position of the training."""
    is_best: bool
    """Whether it is of the best epoch so far."""


class CheckpointWriter:
    """Writes checkpoints of one run; its thread is alive only while it writes.

    Args:
        folder: the run directory.
        every: the `Interval` after which a checkpoint is due.
    """

    def __init__(self, folder: RunFolder, every: Interval) -> None:
        self._folder = folder
        self.problem = ""
        """Why the last checkpoint was not written, or ``""``."""
        self.every = every
        """Interval after which a checkpoint is due, as the user has set it."""
        self.plan: Any = None
        """The plan of the run, which is stored with it."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._waiting: list[_Waiting] = []
        """What is written once the write in progress is over, as two never write at once: the
        newest, and the best before it."""
        self._last = time.monotonic()
        self._last_step = 0
        self._offered: Any = None
        """Step and position of the last checkpoint that was copied, unless its write failed."""
        self._points: dict[str, int] | None = None
        """Name -> number of its points that are on disk; None: none, or not known how many."""

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self._folder.path

    @property
    def path(self) -> Path:
        """The folder of its checkpoints."""
        return self.folder / "checkpoints"

    def go_on_from(self, checkpoint: Checkpoint, training: Training) -> None:
        """Continue after a checkpoint that was loaded."""
        self._offered = checkpoint.step, training.cursor.position()
        self._last_step = checkpoint.step
        self._points = {
            name: len(training.scalars.since(name, 0)[0]) for name in training.scalars.names()
        }

    def after_step(self, training: Training) -> None:
        """Write a checkpoint if one is due by steps or by time, and none is being written."""
        if self.every == (None, None) or self._is_busy:
            return
        if self.every.steps is not None:
            if training.step_count - self._last_step >= self.every.steps:
                self.offer(training, now=True)
        elif self.every.seconds is not None and time.monotonic() - self._last >= self.every.seconds:
            self.offer(training, now=True)

    def after_epoch(self, training: Training) -> None:
        """Write a checkpoint if the last one is old, or this epoch's validation the best so far."""
        self.offer(training, now=training.monitor.improved, is_best=training.monitor.improved)

    def offer(
        self, training: Training, *, final: bool = False, now: bool = False, is_best: bool = False
    ) -> None:
        """Write a checkpoint if it is due; the copy is made here, the files on another thread.

        Args:
            training: the training.
            final: whether no step follows, so that it is written in any case.
            now: whether it is due.
            is_best: whether it is of the best epoch so far, so that no later one takes its place.
        """
        passed = time.monotonic() - self._last
        if not (final or now) and (self._is_busy or passed < PERIOD_S):
            return
        if final:
            self.join()
        here = training.step_count, training.cursor.position()
        if here == self._offered:
            return
        self._last, self._last_step = time.monotonic(), training.step_count
        try:
            found = contents(training, self.plan)
        except BaseException as error:  # noqa: BLE001 - a state_dict may be user code; the run goes on
            self.problem = (
                f"no checkpoint was written: {type(error).__name__}: {error_message(error)}"
            )
            return
        self._offered = here
        with self._lock:
            new = _Waiting(found, training.scalars, training.board.notes, here, is_best)
            self._waiting = [one for one in self._waiting if one.is_best and not is_best]
            self._waiting.append(new)
            if self._is_busy:
                return
            self._is_busy = True
            # not a daemon: a program that ends waits until the files are complete
            thread = self._thread = threading.Thread(
                target=self._write_all, name="workbench-checkpoint", daemon=False
            )
        if not at_exit.started(thread):
            self._write_all()

    def join(self, timeout: float = 60.0) -> None:
        """Wait until the files are complete; if that takes longer, `problem` says so."""
        thread = self._thread
        if thread is None or thread.ident is None:
            return
        thread.join(timeout)
        if thread.is_alive():
            self.problem = (
                f"the checkpoint is still being written to {self.path}: the disk is slow; until it "
                "is whole the newest is the one before"
            )

    def _write_all(self) -> None:
        """Write what there is, and what was offered in the meantime; the run stays locked."""
        with self._folder.kept_locked():
            while True:
                with self._lock:
                    if not self._waiting:
                        self._is_busy = False
                        return
                    waiting = self._waiting.pop(0)
                self._write(waiting)

    def _write(self, waiting: _Waiting) -> None:
        found = waiting.contents
        try:
            if self._folder.was_replaced():
                self._points = None
            serial = 1 + max(self._serials(), default=0)
            points = self._write_history(waiting.scalars, serial, found.step)
            if not waiting.scalars.flush_sinks() and _DISK_SLOW not in waiting.notes:
                waiting.notes.append(_DISK_SLOW)
            written = checkpoints.write(self.path, found, serial)
            self._points, self.problem = points, ""
            self._remove_old(written)
        except BaseException as error:  # noqa: BLE001 - a full disk must not end the thread in a traceback
            self.problem = f"no checkpoint was written to {self.path}: {error_message(error)}"
            self._points = None  # the next part of the history has all points
            if self._offered == waiting.here:
                self._offered = None

    def _serials(self) -> list[int]:
        """Numbers of the checkpoints and of the parts of the history that are on disk."""
        history = self.folder / "history"
        parts = history.glob("*.npz") if history.is_dir() else ()
        named = [int(path.stem) for path in parts if path.stem.isdecimal()]
        return [*(one.serial for one in checkpoints.found_in(self.path)), *named]

    def _write_history(self, scalars: ScalarLog, serial: int, step: int) -> dict[str, int]:
        """Write the points since the last checkpoint; return how many of each name are on disk."""
        before = self._points or {}
        columns: dict[str, Any] = {}
        names: list[str] = []
        counts: dict[str, int] = {}
        for name in scalars.names():
            start = before.get(name, 0)
            steps, values = scalars.since(name, start)
            kept = int(np.searchsorted(steps, step, side="right"))
            if kept:
                columns |= {f"s{len(names)}": steps[:kept], f"v{len(names)}": values[:kept]}
                names.append(name)
            counts[name] = start + kept
        about = {"names": names, "whole": self._points is None}
        columns["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        stored = io.BytesIO()
        np.savez(stored, allow_pickle=False, **columns)
        history = self.folder / "history"
        history.mkdir(parents=True, exist_ok=True)
        with whole_file(history / f"{serial:08d}.npz") as file:
            file.write(stored.getvalue())
            file.flush()
            os.fsync(file.fileno())
        return counts

    def _remove_old(self, written: Checkpoint) -> None:
        found = checkpoints.found_in(self.path)
        kept = {written.path, *(one.path for one in found[:KEEP_LAST])}
        kept |= {one.path for one in found if (one.path / PINNED).exists()}
        best = best_of(found)
        if best is not None:
            kept.add(best.path)
        for one in found:
            if one.path not in kept:
                checkpoints.remove(one)


def best_of(found: list[Checkpoint]) -> Checkpoint | None:
    """Return the earliest checkpoint of the best epoch that has one; None without any.

    Those of the ends of epochs are compared, by the metric that the newest of them goes by.

    Args:
        found: checkpoints of a run, the newest first.
    """
    measured = [one for one in found if one.monitored is not None]
    if not measured:
        return None
    name, mode, _ = measured[0].monitored or ("", "max", 0.0)
    sign = 1 if mode == "max" else -1
    of_metric = [
        (sign * one.monitored[2], -one.serial, one)
        for one in measured
        if one.monitored is not None and one.monitored[:2] == (name, mode)
    ]
    return max(of_metric, key=lambda entry: entry[:2])[2]
