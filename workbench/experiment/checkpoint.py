"""Checkpoints: the state of a training as CPU tensors, and a writer that never holds it up.

The live state is always that of the last good step (`workbench.experiment.guard`), so no second
copy of it is kept in memory. On disk, ``checkpoints/last.pt`` is replaced in one piece, at most
every `PERIOD_S` seconds at the end of an epoch and at the end of a run, by a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from workbench.experiment import at_exit
from workbench.experiment.kept_weights import kept_weights

if TYPE_CHECKING:
    from workbench.experiment.training import Training

PERIOD_S = 30.0


def snapshot(training: Training) -> dict[str, Any]:
    """Everything a resume needs, detached from the live tensors and on the CPU."""
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
    """The weights that are evaluated, where the optimizer trains others (a schedule-free one).

    Those it trains come back to the last bit, which ``eval`` and ``train`` alone do not give.
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
        self._thread: threading.Thread | None = None
        self._last = time.monotonic()
        self._last_step = -1

    def offer(self, training: Training, *, final: bool = False) -> None:
        """Write a checkpoint if it is time for one; the copy is made here, the file elsewhere."""
        now = time.monotonic()
        if training.step_count == self._last_step:
            return
        if not final and (self._busy() or now - self._last < PERIOD_S):
            return
        if final:
            self.join()
        self._last, self._last_step = now, training.step_count
        try:
            state = snapshot(training)
        except Exception as error:  # noqa: BLE001 - a state_dict may be user code; the run goes on
            self.problem = f"no checkpoint was made: {type(error).__name__}: {error}"
            return
        # no daemon: a program that ends waits until the file is whole
        self._thread = threading.Thread(
            target=self._write, args=(state,), name="workbench-checkpoint", daemon=False
        )
        if not at_exit.started(self._thread):
            self._thread = None
            self._write(state)

    def join(self, timeout: float = 60.0) -> None:
        """Wait until the file is whole."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _write(self, state: dict[str, Any]) -> None:
        draft = self.path.with_suffix(".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, draft)
            draft.replace(self.path)
            self.problem = ""
        except Exception as error:  # noqa: BLE001 - a full disk, or a state that cannot be pickled
            self.problem = f"no checkpoint was written to {self.path}: {error}"
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        items = [_on_cpu(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value
