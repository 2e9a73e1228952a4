"""The line of the user's code that is running, and the name of a torch function."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointFunction

if TYPE_CHECKING:
    from types import FrameType

Place = tuple[str, int, str]
"""(file name, line from 1, function) of a line of code."""

_APPLY_CODE = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
TORCH_AND_OURS = tuple(
    str(Path(file).parent) + os.sep for file in (torch.__file__, Path(__file__).parent.parent)
)
"""Path prefixes of torch's files and ours; ``torchvision/`` begins with neither."""
_STDLIB = sysconfig.get_paths()["stdlib"]


@dataclass
class LineFinder:
    """Finds the line of code that a person would point at; remembers which files count."""

    _is_shown: dict[str, bool] = field(default_factory=dict[str, bool])

    def place(self, frame: FrameType | None) -> Place | None:
        """The innermost line outside torch, this package and the standard library."""
        while frame is not None:
            filename = frame.f_code.co_filename
            shown = self._is_shown.get(filename)
            if shown is None:
                shown = self._is_shown[filename] = shows_model_code(filename)
            if shown:
                return filename, frame.f_lineno, frame.f_code.co_name
            frame = frame.f_back
        return None


@dataclass(frozen=True)
class AppliedFunction:
    """The outermost `torch.autograd.Function` whose ``forward`` runs now."""

    name: str
    depth: int
    """Number of Functions that run inside one another."""
    caller: FrameType | None
    """The frame that applied it."""
    is_checkpoint: bool
    """Whether it is the one behind ``checkpoint(..., use_reentrant=True)``."""


def applied_function(frame: FrameType | None) -> AppliedFunction | None:
    """The custom Function that ``frame`` runs in, if any."""
    found: FrameType | None = None
    depth = 0  # one Function may apply another
    while frame is not None:
        if frame.f_code is _APPLY_CODE:
            found = frame
            depth += 1
        frame = frame.f_back
    if found is None:
        return None
    function: Any = found.f_locals.get("cls")
    name = getattr(function, "__name__", "apply")
    return AppliedFunction(name, depth, found.f_back, function is CheckpointFunction)


def shows_model_code(filename: str) -> bool:
    """Whether a line of this file shows a person where an operation comes from.

    The user's cells and files do, and so do libraries that define models; torch, this package, the
    standard library and code without a file do not.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython-input", "<stdin>"))
    if filename.startswith(TORCH_AND_OURS):
        return False
    return not filename.startswith(_STDLIB) or "site-packages" in filename


def op_name(func: Any) -> str:
    """The user-facing name of a torch function: ``conv2d``, ``add`` for ``+``, ``T`` for ``.T``."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name in {"__get__", "__set__"}:
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return name
