"""The modes of an experiment as the panel shows them."""

from __future__ import annotations

from torch import nn

from workbench.modes.badges import badge
from workbench.modes.base import Mode
from workbench.modes.effects import StepTimings
from workbench.modes.modeset import ModeSet
from workbench.modes.registry import displayed_modes
from workbench.records import ModeState


def mode_states(modeset: ModeSet, model: nn.Module, timings: StepTimings) -> tuple[ModeState, ...]:
    """Every mode with its choices, its value and its badge, in display order.

    The first call in a process tries what this machine can run, which takes up to two seconds
    (Inductor is imported to ask for its compiler); later calls take well under a millisecond
    until `workbench.modes.refresh`.
    """
    return tuple(_state(modeset[cls.name], modeset, model, timings) for cls in displayed_modes())


def _state(mode: Mode, modeset: ModeSet, model: nn.Module, timings: StepTimings) -> ModeState:
    return ModeState(
        name=mode.name,
        label=mode.label,
        value=mode.value,
        default=mode.default,
        choices=mode.choices_for(model),
        badge=badge(mode, modeset, timings, model),
    )
