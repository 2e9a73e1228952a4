"""Modes: reversible changes to how a training step is computed."""

from workbench.modes.base import Mode
from workbench.modes.effects import StepTimings
from workbench.modes.modeset import ModeSet
from workbench.modes.registry import displayed_modes, mode_class, mode_classes, refresh
from workbench.modes.states import mode_states

__all__ = [
    "Mode",
    "ModeSet",
    "StepTimings",
    "displayed_modes",
    "mode_class",
    "mode_classes",
    "mode_states",
    "refresh",
]
