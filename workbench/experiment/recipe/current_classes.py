"""The current code of a model whose class was defined in a notebook cell, or in the user's file.

Running the cell again, or loading the file again, makes a new class; instances keep the old one.
Before a failed step is replayed, every module whose class has been replaced where it was defined
takes the new class, as IPython's autoreload does. Parameters and buffers stay.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from workbench.experiment.state.user_code import is_user_module


def renew_classes(model: nn.Module) -> tuple[str, ...]:
    """Give every module its class's current definition; return the names of changed classes."""
    changed: dict[str, None] = {}
    for module in model.modules():
        current = current_class(type(module))
        if current is None or current is type(module):
            continue
        try:
            module.__class__ = current
        except TypeError:
            continue  # its memory layout differs (__slots__): it cannot be renewed in place
        changed[current.__name__] = None
    return tuple(changed)


def current_class(cls: type) -> type[nn.Module] | None:
    """Return what the user's module now holds under the class's qualified name.

    The result is None for a library's class.
    """
    if not is_user_module(cls.__module__):
        return None
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None
