"""Where a run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment.training import Training


@dataclass(slots=True)
class Plan:
    """The end of a run: a number of steps or of epochs, counted from the very first."""

    until_step: int | None = None
    until_epoch: int | None = None
    halt_at: int | None = None
    """Pause once this many steps are done (single-stepping)."""
    from_epoch: int | None = None
    """Number of epochs completed when the run began; None if unknown."""

    def reached(self, training: Training) -> bool:
        """Whether the run is over. Single steps that are requested past its end extend it."""
        if self.until_step is not None:
            over = training.step_count >= self.until_step
        else:
            over = self.until_epoch is not None and training.cursor.epoch >= self.until_epoch
        halt_at = self.halt_at  # once: another thread may clear it
        if over and halt_at is not None and training.step_count < halt_at:
            if self.until_step is not None:
                self.until_step = halt_at
            else:
                self.until_epoch = training.cursor.epoch + 1
            return False
        return over

    def set_epochs(self, epochs: int, current: int) -> None:
        """End this many epochs after the run began, but not before the epoch in progress ends.

        Args:
            epochs: number of epochs that the run is to have.
            current: number of epochs completed, from the very first.
        """
        if self.until_epoch is not None and self.from_epoch is not None:
            self.until_epoch = max(self.from_epoch + epochs, current + 1)

    def length(self, training: Training) -> tuple[int, int, int]:
        """Return (steps, epochs, batches) up to the end; 0 steps and batches if unknown.

        All are counted from the very first. Batches include those that are left out for a model
        that refuses a batch of one.
        """
        steps, cursor = self.total_steps(training), training.cursor
        epochs, per_epoch = self.until_epoch, cursor.steps_per_epoch
        if epochs is None:
            epochs = -(-steps // per_epoch) if per_epoch else 0
        return steps, epochs, steps + epochs * cursor.left_out_per_epoch if steps else 0

    def total_steps(self, training: Training) -> int:
        """The step at which it ends; 0 while the length of an epoch is unknown."""
        cursor = training.cursor
        if self.until_step is not None:
            return self.until_step
        if not cursor.steps_per_epoch or self.until_epoch is None:
            return 0
        return training.step_count + cursor.steps_until(self.until_epoch)
