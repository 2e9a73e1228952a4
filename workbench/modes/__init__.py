"""Modes: reversible changes to how a training step is computed."""

from workbench.modes.core.base import Mode
from workbench.modes.effects.step_times import StepTimings
from workbench.modes.mode_spec import find_modes
from workbench.modes.modeset import ModeSet
from workbench.modes.own_loop.modes import Modes
from workbench.modes.precision.low_precision import LayerRow, low_precision_layers
from workbench.modes.registry import displayed_modes, mode_class, mode_classes, refresh
from workbench.modes.states import mode_states

__all__ = [
    "LayerRow",
    "Mode",
    "ModeSet",
    "Modes",
    "StepTimings",
    "displayed_modes",
    "find_modes",
    "low_precision_layers",
    "mode_class",
    "mode_classes",
    "mode_states",
    "refresh",
]
