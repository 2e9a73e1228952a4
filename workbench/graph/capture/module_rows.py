"""Lookup of a module of a record by its path, and of the nodes in it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.forward.checkpoint_nodes import has_reentrant

if TYPE_CHECKING:
    from workbench.records import GraphRecord


def inside_module(record: GraphRecord, path: str) -> npt.NDArray[np.bool_]:
    """One flag per node: whether it belongs to the module at ``path`` or to one inside it.

    Raises:
        TypeError: ``path`` is not a string.
        ValueError: the graph has no node of such a module; the message lists close names.
    """
    top = module_row(record, path)
    belongs = np.zeros(len(record.modules), dtype=bool)
    for row, module in enumerate(record.modules):  # parents come first
        belongs[row] = row == top or (module.parent >= 0 and belongs[module.parent])
    return belongs[record.node_module]


def module_row(record: GraphRecord, path: str) -> int:
    """The row of the module at ``path`` in ``record.modules``; raises as `inside_module` does."""
    check_name(path, "the qualified name of a module, as in `model.named_modules()`")
    for row, module in enumerate(record.modules):
        if module.path == path and module.cls:
            return row
    paths = [module.path for module in record.modules if module.cls]
    close = get_close_matches(path, paths, n=4) or paths[:8]
    named = ", ".join(repr(one) if one else "'' (the whole model)" for one in close)
    text = f"this graph has no module {path!r}; modules that it has: "
    text += named or "none: it was captured without its model"
    if has_reentrant(record.strings):
        text += (
            ". What runs inside a checkpoint with use_reentrant=True leaves no nodes in a graph; "
            "it is checkpointed already"
        )
    raise ValueError(text)


def check_name(name: object, valid: str) -> None:
    """Refuse a ``name`` that is not a string.

    Raises:
        TypeError: ``name`` is not a string; the message says what was passed, and ``valid``.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected {valid}, a string; got {name!r} ({type(name).__name__})")
