"""`Run`: the handle of a training that may still be in progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from workbench.trust import printable

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.loop.scalars import Metrics


class Run:
    """Handle that ``experiment.run()`` returns. It keeps its experiment alive."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    def pause(self) -> None:
        """Pause at the next step boundary; returns at once, and `wait` waits for it."""
        self._experiment.pause()

    def resume(self) -> None:
        """Continue after a pause."""
        self._experiment.resume()

    def step(self, count: int = 1) -> None:
        """Do ``count`` steps and pause again."""
        self._experiment.step(count)

    def stop(self) -> None:
        """End the run at the next step boundary; a new `Experiment.run` continues from there."""
        self._experiment.stop()

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until no step is in progress, as `Experiment.wait` does.

        Raises:
            TimeoutError, RunError, KeyboardInterrupt: under the same conditions.
        """
        self._experiment.wait(timeout)
        return self

    @property
    def status(self) -> str:
        """Status: ``training``, ``paused``, ``finished``, ``stopped``, ``exception`` or ``nan``."""
        return self._experiment.status

    @property
    def metrics(self) -> Metrics:
        """Scalars: ``metrics["train/loss"]`` is ``{"step": int64[n], "value": float64[n]}``."""
        return self._experiment.scalars.history()

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._experiment.path

    def export_weights(
        self,
        file: str | Path,
        step: int | Literal["last", "best"] = "last",
        *,
        averaged: bool = False,
    ) -> Path:
        """Write the model's weights of a checkpoint to a safetensors file.

        `workbench.experiment.runtime.weights.export_weights` has the details.

        Args:
            file: the file, ``"model.safetensors"``.
            step: ``"last"``, ``"best"``, or the number of a step that has a checkpoint.
            averaged: whether the moving averages of the weights are written (`ema`).

        Raises:
            ResumeError: there is no such checkpoint.
            CheckpointError: a file of the checkpoint is damaged.
            ValueError: the name does not end in ``.safetensors``.
            OSError: the file cannot be written.
        """
        from workbench.experiment.runtime.weights import export_weights

        return export_weights(self, file, step, averaged=averaged)

    def __repr__(self) -> str:
        exp = self._experiment
        total = f" of {exp.total_steps:,}" if exp.total_steps else ""
        return f"Run({printable(exp.name)}: {exp.status}, step {exp.step_count:,}{total})"
