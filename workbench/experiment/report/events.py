"""The events that an experiment emits. It imports no subscriber.

Events are small frozen objects that are passed synchronously, on the training thread, to every
observer. An observer must return at once and must never read a device tensor: scalars arrive as
tensors and are read by `ScalarLog.flush`, off the training thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from workbench.records import CarryRow, Failure


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    step: int
    """Number of optimizer steps completed when it happened."""


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run began or was resumed after a stop."""

    found: bool = False
    """Whether other processes are already computing its steps: it was attached to (`wb.attach`)."""


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """A checkpoint was loaded; `step` is its step."""

    folder: Path
    """The run directory from now on."""


@dataclass(frozen=True, slots=True)
class StepDone(Event):
    """A step was applied. Emitted only to observers that request every step."""

    loss: torch.Tensor
    """Detached scalar on the training device, float64 on a CPU; do not read it here."""
    seconds: float
    num_samples: int


@dataclass(frozen=True, slots=True)
class Validated(Event):
    """The model was validated at the end of an epoch; the epoch's schedule has not stepped yet."""

    epoch: int
    """Number of the epoch, from 1."""
    loss: float
    """Loss of the whole validation set."""
    accuracy: float | None
    """Fraction of correct predictions; None if the labels have no classes."""
    confusion: torch.Tensor | None
    """As in `EpochDone`."""


@dataclass(frozen=True, slots=True)
class EpochDone(Event):
    """An epoch ended; validation, if any, has been run."""

    epoch: int
    confusion: torch.Tensor | None
    """``[classes, classes]`` int64 counts on CPU, rows = true class, or None without ``val``."""


@dataclass(frozen=True, slots=True)
class ModesChanged(Event):
    """The modes changed before the next step; strings as printed by `ModeSet`."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ModelSwapped(Event):
    """``exp.model`` was assigned; what happened to every parameter."""

    rows: tuple[CarryRow, ...]


@dataclass(frozen=True, slots=True)
class LearningRateChanged(Event):
    """The learning rate was set by hand."""

    value: float


@dataclass(frozen=True, slots=True)
class ScheduleRemoved(Event):
    """The schedule was removed: the learning rate stays as it is."""

    name: str
    """Class name of the scheduler."""
    value: float
    """The learning rate of the first parameter group."""


@dataclass(frozen=True, slots=True)
class StatusChanged(Event):
    """The run's status (`workbench.records.panel.Status`) changed; ``message`` says why."""

    status: str
    message: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Captured(Event):
    """A probe finished and its record is in ``experiment.captures`` under ``capture_id``."""

    capture_id: str


@dataclass(frozen=True, slots=True)
class PictureLogged(Event):
    """The user has logged an image or a figure."""

    name: str
    draw: Callable[[], tuple[bytes, tuple[int, int]]]
    """Returns the bytes of a PNG file, and (width, height) in pixels."""


@dataclass(frozen=True, slots=True)
class TextLogged(Event):
    """The user has logged a text."""

    name: str
    text: str
    """Markdown."""


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """`Experiment.close` was called: it no longer trains and belongs in no panel."""


Observer = Callable[[Event], None]
