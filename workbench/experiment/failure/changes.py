"""A change to a run that reduces its memory use: to be tried, written as code, or made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.allocator.memory_limit import GpuLimit
from workbench.experiment.failure.out_of_memory import simulate_gpu
from workbench.modes import ModeSet

if TYPE_CHECKING:
    import torch

    from workbench.experiment.settings import Settings
    from workbench.experiment.training import Training


@dataclass(frozen=True, kw_only=True)
class Change:
    """The settings that are changed; None leaves a setting as it is."""

    modes: str | None = None
    batch_size: int | None = None
    val_batch_size: int | None = None
    gpu: str | None = None
    """The simulated GPU with other settings of its allocator."""
    foreach: bool | None = None
    """Whether the optimizer works on lists of tensors."""

    @property
    def code(self) -> str:
        """The Python that makes the change to an experiment ``exp``."""
        settings = {
            "card": self.gpu,
            "modes": self.modes,
            "batch_size": self.batch_size,
            "val_batch_size": self.val_batch_size,
        }
        lines = [
            f"exp.{name} = {_literal(value)}"
            for name, value in settings.items()
            if value is not None
        ]
        if self.foreach is not None:
            lines.append("for group in exp.optimizer.param_groups:")
            lines.append(f'    group["foreach"] = {self.foreach}')
        return "\n".join(lines)

    def make(self, settings: Settings, optimizer: torch.optim.Optimizer) -> None:
        """Apply the change to an experiment, as `code` does.

        Args:
            settings: those of the experiment.
            optimizer: its optimizer.

        Raises:
            ValueError: it can no longer be applied: the model or the data has changed.
        """
        if self.gpu is not None:
            settings.set_gpu(self.gpu)
        if self.modes is not None:
            settings.set_modes(self.modes)
        if self.batch_size is not None:
            settings.set_batch_size(self.batch_size)
        if self.val_batch_size is not None:
            settings.set_val_batch_size(self.val_batch_size)
        self._set_foreach(optimizer.param_groups)

    def try_on(self, training: Training) -> None:
        """Apply the change without reporting it; inside `guard.undone` it is reverted.

        Batches are not divided again: the caller that tries it uses one of the new size.
        """
        if self.gpu is not None:
            simulate_gpu(training, GpuLimit.parse(self.gpu))
        if self.modes is not None:
            state = training.modeset.state_dict()
            training.detach_modes()
            training.modeset = ModeSet.parse(self.modes, training.device)
            training.modeset.load_state_dict(state)
            training.modeset.attach(training.model)
            training.attached = training.modeset
        self._set_foreach(training.optimizer.param_groups)

    def _set_foreach(self, groups: list[dict[str, object]]) -> None:
        if self.foreach is not None:
            for group in groups:
                group["foreach"] = self.foreach


def _literal(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
