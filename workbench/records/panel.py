"""What the panel and the side panel show of one experiment, and what they may ask for.

These are small JSON messages, sent whole whenever something changed and at most ten times a
second. Curves travel apart (`docs/architecture.md`, "The live channels").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.records.remedy import Remedy
from workbench.records.source import SourceLine

Status = Literal["idle", "training", "paused", "finished", "stopped", "exception", "nan"]
BadgeKind = Literal["good", "bad", "baseline", "none", "todo", "warn"]
CaptureKind = Literal["graph", "memory", "diff"]


@dataclass(frozen=True, kw_only=True)
class ModeChoice:
    """One value of a mode (``bf16``) and whether this machine can run it."""

    value: str
    available: bool = True
    why: str = ""
    """One fact found on this machine; an available value may carry one too (measured slow)."""
    remedy: str = ""
    """What to choose or do instead."""
    commands: tuple[str, ...] = ()
    """Shell commands to copy, one remedy each."""
    emulated: bool = False
    """Whether this machine runs it for its numerics alone: it is computed in another type."""


@dataclass(frozen=True, kw_only=True)
class Badge:
    """The measured effect of a mode's value.

    ``good``/``bad``: line 1 is the effect against the default, or against the value it names.
    ``baseline``: the default is chosen. ``none``: measured, no effect the spread supports, or
    nothing to act on. ``todo``: not measured. ``warn``: something is missing on this machine.
    """

    kind: BadgeKind
    text: str
    detail: str = ""
    tooltip: str = ""
    """Medians, spreads, counts: the numbers behind line 1."""


@dataclass(frozen=True, kw_only=True)
class ModeState:
    """One mode: its choices, what is chosen, and its badge."""

    name: str
    label: str
    value: str
    default: str
    choices: tuple[ModeChoice, ...]
    badge: Badge
    pending: str = ""
    """The value that is being prepared while training continues under ``value``."""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Something that happened at a step and is drawn on the loss curve."""

    step: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A row of "What will run" or "Measured": label and value."""

    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class CodeLine:
    """A line of the code shown around a failure."""

    line: int
    text: str
    current: bool = False


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run stopped or paused by itself: an exception in user code, or a non-finite loss."""

    kind: Literal["exception", "nan"]
    title: str
    """``Cell [2], line 11: RuntimeError``"""
    subtitle: str
    """What state the weights are in."""
    message: str
    """The exception's own text."""
    source: SourceLine | None = None
    scope: str = ""
    """``EarlyExitCNN.forward``"""
    code: tuple[CodeLine, ...] = ()
    values: tuple[Fact, ...] = ()
    """Values on the line (name, shape and dtype) or what was measured about a NaN."""
    traceback: str = ""
    """The user's own traceback as text, their frames marked, never truncated."""
    num_frames: int = 0
    num_user_frames: int = 0
    step: int = 0
    memory: tuple[Fact, ...] = ()
    """Where memory ran out: what was requested, what there was, and on which GPU."""
    capture: str = ""
    """Id of the memory record of the failed step, where one was kept."""
    remedies: tuple[Remedy, ...] = ()
    """What was tried on the failed step, the best first."""


@dataclass(frozen=True, kw_only=True)
class NewerModel:
    """After a failure: the model that failed is not the one that its code builds now."""

    text: str
    """What has changed, in a sentence or two."""
    code: str = ""
    """What swaps in a new one, as a line of Python; ``""`` where a person has to write it."""


@dataclass(frozen=True, kw_only=True)
class CaptureInfo:
    """A graph, memory or diff record held by the experiment; fetched by ``id``."""

    id: str
    kind: CaptureKind
    step: int
    against_step: int | None = None
    """Of a diff: the step of the graph that ``step``'s is compared with."""
    num_bytes: int
    created_at: float
    """Unix time, seconds."""
    summary: str = ""


@dataclass(frozen=True, kw_only=True)
class CarryRow:
    """A parameter or buffer of a hot swap: ``carried``, ``new``, ``reshaped`` or ``dropped``."""

    name: str
    outcome: Literal["carried", "new", "reshaped", "dropped"]
    old_shape: str = ""
    new_shape: str = ""
    kind: Literal["parameter", "buffer"] = "parameter"
    note: str = ""
    """What the outcome alone does not say, such as that a buffer is not persistent."""


@dataclass(frozen=True, kw_only=True)
class ScheduleState:
    """The learning-rate schedule: its name, what it counts, and the rates to come.

    Point ``i`` stands for the steps (or epochs) after ``start + i * size`` are done, ``size`` of
    them: the lowest and the highest rate that they have.
    """

    name: str
    """Class of the scheduler."""
    every: Literal["step", "epoch"]
    """After what it steps, and what is counted here."""
    effect: str
    """What a rate that is set does, one sentence."""
    start: int = 0
    """Steps or epochs done where the curve begins."""
    end: int = 0
    """Those after which the planned run is over; 0 where there is no curve."""
    size: int = 1
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_whole: bool
    """Whether nothing of it is still being computed."""
    why: str = ""
    """Why there is no curve (``by metric``), or where and why it ends early."""


@dataclass(frozen=True, kw_only=True)
class ExperimentState:
    """Everything the panel shows of one experiment, apart from curves."""

    id: str
    name: str
    model: str
    """Class name of the model."""
    status: Status
    step: int
    total_steps: int
    """Steps of the current or next run; 0 when the length is unknown."""
    steps_per_epoch: int
    epoch: int
    """Epoch under way, counting from 1; 0 before the first step."""
    epochs: int
    samples_per_s: float | None
    seconds_left: float | None
    learning_rate: float | None
    schedule: ScheduleState | None
    loss_name: str
    best_accuracy: float | None
    started_at: float | None
    """Unix time of the last start, seconds."""
    message: str
    """The one status line."""
    facts: tuple[Fact, ...]
    modes: tuple[ModeState, ...]
    markers: tuple[Marker, ...]
    failure: Failure | None
    newer_model: NewerModel | None = None
    captures: tuple[CaptureInfo, ...]
    carried: tuple[CarryRow, ...]
    """Outcome of the last hot swap; empty when there was none."""
    dropped_points: int
    """Metric points lost because the disk was slow or full."""
    run_path: str
    """Absolute path of the run directory."""
    device: str
    notes: tuple[str, ...] = ()
    """What a person should know of this experiment, one sentence each, the newest last."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run directory on disk, as listed in the side panel."""

    name: str
    path: str
    """Relative to the Jupyter server's root, with ``/`` separators."""
    status: str
    model: str
    modes: str
    best_accuracy: float | None
    step: int
    updated_at: float
    checkpoint: int | None = None
    """Step of the newest checkpoint, by its name; None if there is none."""
