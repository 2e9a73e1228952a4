"""The modes of an experiment as the panel shows them."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from workbench.modes.core.base import Mode
from workbench.modes.effects.badges import badge, effect_of
from workbench.modes.effects.step_times import StepTimings
from workbench.modes.modeset import ModeSet
from workbench.modes.registry import displayed_modes
from workbench.records import ModeChoice, ModeState


def mode_states(modeset: ModeSet, model: nn.Module, timings: StepTimings) -> tuple[ModeState, ...]:
    """Every mode with its choices, its value and its badge, in display order.

    The first call in a process tries what this machine can run, which takes up to two seconds
    (Inductor is imported to look for its compiler); later calls take well under a millisecond until
    `workbench.modes.refresh`.
    """
    return tuple(_state(modeset[cls.name], modeset, model, timings) for cls in displayed_modes())


def _state(mode: Mode, modeset: ModeSet, model: nn.Module, timings: StepTimings) -> ModeState:
    return ModeState(
        name=mode.name,
        label=mode.label,
        value=mode.value,
        default=mode.default,
        choices=tuple(
            _with_own_figures(choice, mode, modeset, timings) for choice in mode.choices_for(model)
        ),
        badge=badge(mode, modeset, timings, model),
    )


def _with_own_figures(
    choice: ModeChoice, mode: Mode, modeset: ModeSet, timings: StepTimings
) -> ModeChoice:
    """What was measured of this experiment, in place of what its machine can do."""
    effect, is_slower = effect_of(mode, choice.value, modeset, timings)
    if not effect or not choice.available:
        return choice
    return replace(choice, why=effect, remedy=f"Use {mode.default} here." if is_slower else "")
