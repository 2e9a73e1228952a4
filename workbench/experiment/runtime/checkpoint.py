"""Checkpoints: the state of a training as CPU tensors, and a writer that never delays it.

The live state is always that of the last good step (`workbench.experiment.loop.step_guard`), so no
second copy of it is kept in memory. On disk, ``checkpoints/last.pt`` is replaced atomically, at
most every `PERIOD_S` seconds at the end of an epoch and at the end of a run, by a thread of its
own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from workbench.experiment.runtime import at_exit
from workbench.experiment.state.kept_weights import kept_weights
from workbench.trust import error_message, whole_file

if TYPE_CHECKING:
    from workbench.experiment.training import Training

PERIOD_S = 30.0


def snapshot(training: Training) -> dict[str, Any]:
    """Return everything that a resume needs, detached from the live tensors and on the CPU."""
    scheduler: Any = training.schedule.scheduler
    with _weights_to_evaluate(training):
        return _snapshot(training, scheduler)


def _snapshot(training: Training, scheduler: Any) -> dict[str, Any]:
    state = {
        "model": training.model.state_dict(),
        "loss": None if training.loss.module is None else training.loss.module.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "scheduler": scheduler.state_dict() if hasattr(scheduler, "state_dict") else None,
        "modes": {"text": training.modes, "state": training.modeset.state_dict()},
        "step": training.step_count,
        "epoch": training.cursor.epoch,
        "batch": training.cursor.index,
        "samples": training.cursor.samples_seen,
        "batch_size": training.cursor.source.batch_size,
        "seed": training.seed,
        "torch_rng": torch.get_rng_state(),
    }
    return cast("dict[str, Any]", _on_cpu(state))


@contextmanager
def _weights_to_evaluate(training: Training) -> Generator[None]:
    """Context with the weights that are evaluated, if the optimizer trains others (schedule-free).

    Those that it trains are restored to the last bit, which ``eval`` and ``train`` alone do not do.
    """
    optimizer: Any = training.optimizer
    if not (callable(getattr(optimizer, "eval", None)) and training.seeded):
        yield
        return
    with kept_weights(training):
        try:
            optimizer.eval()
            yield
        finally:
            optimizer.train()


class CheckpointWriter:
    """Writes the newest snapshot; one thread, alive only while it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The run directory."""
        self.path = folder / "checkpoints" / "last.pt"
        self.problem = ""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._next: dict[str, Any] | None = None
        """What is written once the write in progress is over: two never write at once."""
        self._last = time.monotonic()
        self._written = -1
        """The step of the file on disk."""

    def offer(self, training: Training, *, final: bool = False) -> None:
        """Write a checkpoint if it is due; the copy is made here, the file on another thread."""
        now = time.monotonic()
        if not final and (self._is_busy or now - self._last < PERIOD_S):
            return
        if final:
            self.join()
        if training.step_count == self._written:
            return
        self._last = now
        try:
            state = snapshot(training)
        except BaseException as error:  # noqa: BLE001 - a state_dict may be user code; the run goes on
            self.problem = f"no checkpoint was made: {type(error).__name__}: {error_message(error)}"
            return
        with self._lock:
            self._next = state
            if self._is_busy:
                return
            self._is_busy = True
            # not a daemon: a program that ends waits until the file is complete
            thread = self._thread = threading.Thread(
                target=self._write_all, name="workbench-checkpoint", daemon=False
            )
        if not at_exit.started(thread):
            self._write_all()

    def join(self, timeout: float = 60.0) -> None:
        """Wait until the file is complete; if that takes longer, `problem` says so."""
        thread = self._thread
        if thread is None or thread.ident is None:
            return
        thread.join(timeout)
        if thread.is_alive():
            self.problem = (
                f"the checkpoint is still being written to {self.path}: the disk is slow; until it "
                "is whole the file is the one before"
            )

    def _write_all(self) -> None:
        """Write what there is, and what was offered in the meantime."""
        while True:
            with self._lock:
                state, self._next = self._next, None
                if state is None:
                    self._is_busy = False
                    return
            self._write(state)

    def _write(self, state: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as file:
                torch.save(state, file)
            self.problem, self._written = "", state["step"]
        except BaseException as error:  # noqa: BLE001 - a full disk, or a state that cannot be pickled
            self.problem = f"no checkpoint was written to {self.path}: {error_message(error)}"


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        items = [_on_cpu(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value
