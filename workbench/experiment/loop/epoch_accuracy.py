"""Training accuracy of an epoch: over every sample, each evaluated with the weights of its step.

A step keeps its outputs and labels; a few operations count those of `_TOGETHER` steps at once, on
the training thread and on the device. Nothing is read from the device: the accuracy is a device
scalar.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from workbench.experiment.recipe.targets import AnswerReader

_TOGETHER = 256
"""Number of steps whose answers are counted at once."""
_MOST_NUMBERS = 1 << 18
"""Maximum number of output elements that are kept for that."""


class EpochAccuracy:
    """Counts the answers of one epoch after the other."""

    def __init__(self) -> None:
        self._epoch = -1
        self._right: torch.Tensor | int = 0
        self._answers: torch.Tensor | int = 0
        self._beyond: torch.Tensor | bool = False
        """Whether a label was not a column of the outputs, which then are not scores of classes."""
        self._reader: AnswerReader | None = None
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Outputs and labels of steps that are not counted yet."""
        self._numbers = 0
        """Number of elements of these outputs."""

    def add(
        self, epoch: int, reader: AnswerReader, outputs: torch.Tensor, labels: torch.Tensor
    ) -> None:
        """Count the answers of a step, now or together with those of later steps.

        Args:
            epoch: epoch that the step belongs to.
            reader: reads the answers.
            outputs: outputs of the model, without a graph; they must not be overwritten.
            labels: labels of the batch; they must not be overwritten.
        """
        if epoch != self._epoch:
            self._begin(epoch)
        if reader is not self._reader:
            self._count()
            self._reader = reader
        kept = self._kept
        kept.append((outputs, labels))
        self._numbers += outputs.numel()
        if self._numbers >= _MOST_NUMBERS or len(kept) >= _TOGETHER:
            self._count()

    def add_counted(self, epoch: int, right: float, answers: float) -> None:
        """Count the answers of a step that are known already."""
        if answers:
            if epoch != self._epoch:
                self._begin(epoch)
            self._right += int(right)
            self._answers += int(answers)

    def value(self) -> torch.Tensor | float | None:
        """Accuracy of the epoch so far; None without an answer. Reads nothing from a device."""
        self._count()
        if not isinstance(self._answers, torch.Tensor) and not self._answers:
            return None
        right = self._right
        if isinstance(right, torch.Tensor) and right.device.type != "mps":
            right = right.double()
        if isinstance(right, torch.Tensor) and isinstance(self._beyond, torch.Tensor):
            right = right.where(~self._beyond, torch.nan)  # reported without a read
        return right / self._answers

    def state(self) -> tuple[int, int, int]:
        """(epoch, right answers, answers), to continue in another process; reads the device."""
        self._count()
        return self._epoch, int(self._right), int(self._answers)

    def load_state(self, state: tuple[int, int, int]) -> None:
        """Continue from the `state` of another."""
        self._begin(state[0])
        self._right, self._answers = state[1:]

    # -- inside -----------------------------------------------------------------------------

    def _begin(self, epoch: int) -> None:
        self._kept, self._numbers = [], 0
        self._epoch, self._right, self._answers, self._beyond = epoch, 0, 0, False

    def _count(self) -> None:
        kept, self._kept, self._numbers = self._kept, [], 0
        for _, alike in groupby(kept, key=_shapes):
            outputs, labels = map(_together, zip(*alike, strict=True))
            answers = None if self._reader is None else self._reader.read(outputs, labels)
            if answers is not None:
                right, count = answers.tally()
                self._right = self._right + right
                self._answers = self._answers + count
                if answers.beyond is not None:
                    self._beyond = answers.beyond | self._beyond
        if isinstance(self._beyond, torch.Tensor) and self._beyond.device.type == "cpu":
            self._check_beyond(self._beyond)

    def _check_beyond(self, beyond: torch.Tensor) -> None:
        """Stop reading answers if labels were beyond the outputs' columns."""
        if bool(beyond) and self._reader is not None:
            self._reader.read_nothing()
            self._right = self._answers = 0


def _shapes(step: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Size, torch.Size]:
    return step[0].shape, step[1].shape


def _together(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    if len(tensors) == 1:
        return tensors[0]
    return torch.cat(tensors) if tensors[0].ndim else torch.stack(tensors)
