"""All modes, by name."""

from __future__ import annotations

from workbench.modes.activation_checkpointing import Checkpoint
from workbench.modes.attention import Attention
from workbench.modes.compile.mode import Compile
from workbench.modes.core.base import Mode
from workbench.modes.core.machine_probes import forget
from workbench.modes.layout.mode import Parallel
from workbench.modes.precision.mode import Precision

_DISPLAYED: tuple[type[Mode], ...] = (Compile, Precision, Attention, Checkpoint, Parallel)
_APPLIED = tuple(sorted(_DISPLAYED, key=lambda cls: cls.order))


def mode_classes() -> tuple[type[Mode], ...]:
    """All modes in order of application."""
    return _APPLIED


def displayed_modes() -> tuple[type[Mode], ...]:
    """All modes in the order in which they are shown."""
    return _DISPLAYED


def mode_class(name: str) -> type[Mode]:
    """Return the mode called ``name``.

    Raises:
        ValueError: there is none; the message lists the valid names.
    """
    for cls in _APPLIED:
        if cls.name == name:
            return cls
    valid = ", ".join(cls.name for cls in _DISPLAYED)
    raise ValueError(f"unknown mode {name!r}; valid modes are: {valid}")


def refresh() -> None:
    """Forget what was found out about this machine, so that the next query finds it out again."""
    forget()
