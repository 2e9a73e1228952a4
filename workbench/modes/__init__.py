"""Modes: reversible changes to how a training step is computed."""

from workbench.modes.base import Mode
from workbench.modes.modeset import ModeSet
from workbench.modes.registry import displayed_modes, mode_class, mode_classes, refresh

__all__ = ["Mode", "ModeSet", "displayed_modes", "mode_class", "mode_classes", "refresh"]
