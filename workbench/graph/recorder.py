"""Which torch function, called from which line, made which nodes."""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.graph import torch_private

if TYPE_CHECKING:
    from types import FrameType

Place = tuple[str, int, str]
"""(file name, line from 1, function) of a line of code."""


@dataclass(frozen=True)
class Call:
    """One Python call that made nodes numbered ``first`` to ``last - 1``."""

    first: int
    last: int
    op: str
    place: Place | None


class CallRecorder(TorchFunctionMode):
    """Notes, for each torch function that made nodes, their numbers, its name and its line."""

    def __init__(self, on_backward: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._on_backward = on_backward
        self._last = torch_private.current_sequence()
        self._is_shown: dict[str, bool] = {}
        self._suspended: list[list[TorchFunctionMode]] = []
        self._compiled_from: list[int] = []

    def __enter__(self) -> CallRecorder:
        self._last = torch_private.current_sequence()
        super().__enter__()
        return self

    def leave(self) -> None:
        """Take the mode off the stack, wherever it lies."""
        torch_private.without_mode(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch_private.current_sequence()
        if before > self._last:
            self._record_custom_function(before)
        if func is torch.Tensor.backward:
            self._on_backward(args[0])
        result = func(*args, **(kwargs or {}))
        after = torch_private.current_sequence()
        if after > before:
            place = self._place(inspect.currentframe())
            self.calls.append(Call(before, after, op_name(func), place))
        self._last = after
        return result

    def enter_compiled(self) -> None:
        """Compiled code runs next on this thread."""
        self._suspended.append(torch_private.without_mode(self))
        self._compiled_from.append(torch_private.current_sequence())

    def exit_compiled(self) -> None:
        """Compiled code has returned."""
        torch_private.restore_modes(self._suspended.pop())
        before, after = self._compiled_from.pop(), torch_private.current_sequence()
        if after > before:
            place = self._place(inspect.currentframe())
            self.calls.append(Call(before, after, "compiled", place))
        self._last = after

    def _record_custom_function(self, before: int) -> None:
        """Numbers used up outside every torch function, seen from inside a custom Function.

        ``Function.apply`` takes its number and then runs the user's ``forward``, whose first torch
        function lands here.
        """
        frame: FrameType | None = inspect.currentframe()
        found: FrameType | None = None
        depth = 0  # one Function may apply another: each takes a number
        while frame is not None:
            if frame.f_code is _APPLY_CODE:
                found = frame
                depth += 1
            frame = frame.f_back
        if found is not None:
            name = getattr(found.f_locals.get("cls"), "__name__", "apply")
            first = max(self._last, before - depth)
            self.calls.append(Call(first, before, name, self._place(found.f_back)))

    def _place(self, frame: FrameType | None) -> Place | None:
        """The innermost line that is neither torch's, ours nor the standard library's."""
        while frame is not None:
            filename = frame.f_code.co_filename
            shown = self._is_shown.get(filename)
            if shown is None:
                shown = self._is_shown[filename] = shows_model_code(filename)
            if shown:
                return filename, frame.f_lineno, frame.f_code.co_name
            frame = frame.f_back
        return None


_APPLY_CODE = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_STDLIB = sysconfig.get_paths()["stdlib"]


def shows_model_code(filename: str) -> bool:
    """Whether a line of this file tells a person where an operation comes from.

    The user's cells and files do, and so do libraries that define models; torch, this package, the
    standard library and code without a file do not.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython-input", "<stdin>"))
    if filename.startswith((_TORCH, _OURS)):
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
