"""Calling a torch function from the line that called it, though a mode stands in between.

Python files a warning under a frame: the innermost one for a warning of torch's C++, so many frames
further out for ``stacklevel=``. Inside a `TorchFunctionMode` that frame is the mode's, so a warning
would name our file, and be shown once for all lines of the user's (`warnings.warn`,
``__warningregistry__``). So the call is made by a function that carries the file, the line and the
globals of the user's own: the frame that Python finds says what it would say without a mode.
Nobody's filters are touched, and a call costs one look-up more.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch.overrides import handle_torch_function

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType

Caller = Callable[[Callable[..., Any], Any, Any], Any]
"""``caller(func, args, kwargs)`` is ``func(*args, **kwargs)``."""


def _call(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


class CallSites:
    """One caller for each place in the code that a call came from."""

    def __init__(self) -> None:
        self._callers: dict[tuple[int, int], tuple[CodeType, Caller]] = {}
        """Code (kept here, so that its ``id`` stays its own) and instruction -> its caller."""

    def caller(self, frame: FrameType) -> Caller:
        """What calls a function as ``frame`` would.

        Args:
            frame: the one that called ``__torch_function__``.
        """
        if frame.f_code is handle_torch_function.__code__:  # asked by a function written in Python
            frame = _outer(_outer(frame))
        code = frame.f_code
        key = id(code), frame.f_lasti
        found = self._callers.get(key)
        if found is None:
            found = self._callers[key] = code, _caller_at(frame)
        return found[1]


def below_caller(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that a called function added: without our frame and the caller's."""
    for _ in range(2):
        traceback = None if traceback is None else traceback.tb_next
    return traceback


def _outer(frame: FrameType) -> FrameType:
    return frame.f_back or frame


def _caller_at(frame: FrameType) -> Caller:
    code = _call.__code__.replace(
        co_filename=frame.f_code.co_filename,
        co_firstlineno=frame.f_lineno - 1,  # its body is one line further down
        co_name=frame.f_code.co_name,
        co_qualname=frame.f_code.co_qualname,
    )
    return FunctionType(code, frame.f_globals)
