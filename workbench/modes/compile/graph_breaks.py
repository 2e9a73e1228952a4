"""A graph break under ``fullgraph``, as one sentence: where it is, what it is, what to do.

Dynamo's own error explains the break at length and names no line of the user's in its traceback:
the frame was being read, not run. The line is in the error's ``real_stack``
(`workbench.torch_private.compiler` has the classes).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from traceback import FrameSummary
from typing import Any

import torch

from workbench.modes.core.machine_probes import first_line
from workbench.records.source import SourceLine, source_line
from workbench.torch_private.compiler import graph_break_errors, recompile_limit_error

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
"""Files in which the user is not told to rewrite a line: those of torch and ours."""


class GraphBreakError(RuntimeError):
    """Dynamo met a graph break, or its recompile limit, where none is allowed."""

    def __init__(self, message: str, source: SourceLine | None) -> None:
        super().__init__(message)
        self.source = source
        """The user's line; None if Dynamo reported none. It is on no traceback."""


def without_breaks(compiled: Callable[..., Any], value: str) -> Callable[..., Any]:
    """Return ``compiled``, a region of mode ``compile`` at ``value``, which explains a break in it.

    Raises:
        GraphBreakError: by what is returned, for a graph break, and for a call that fits none of
            the variants that Dynamo keeps; Dynamo's own error is the cause.
    """

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except graph_break_errors() as error:
            line = _line(error)
            sentence = _sentence(error, line, value, type(args[0]).__name__)
            raise GraphBreakError(sentence, line) from error
        except recompile_limit_error() as error:
            raise GraphBreakError(_of_limit(value, type(args[0]).__name__), None) from error

    return call


def _of_limit(value: str, model: str) -> str:
    return (
        f"compile:{value} lets no call run without compile, and {model} was compiled as often as "
        "torch._dynamo.config.recompile_limit allows without one that fits this call "
        "(wb.compile_report has the reasons); raise that limit and switch compile on again, or let "
        f"what fits none run as Python: compile:{_breaks_allowed(value)}"
    )


def _sentence(error: BaseException, line: SourceLine | None, value: str, model: str) -> str:
    return (
        f"compile:{value} allows no graph break, and {model} has one{_place(line)}: "
        f"{first_line(error)}; rewrite that line, or allow breaks: "
        f"compile:{_breaks_allowed(value)}"
    )


def _breaks_allowed(value: str) -> str:
    return ",".join(option for option in value.split(",") if option != "fullgraph")


def _place(line: SourceLine | None) -> str:
    """`` at net.py:12 (`if x.sum() > 0:`)``."""
    if line is None:
        return ""
    return f" at {line.label}" + (f" (`{line.text}`)" if line.text else "")


def _line(error: BaseException) -> SourceLine | None:
    """The innermost line of the user's code that was read."""
    stack: list[FrameSummary] = list(getattr(error, "real_stack", None) or ())
    theirs = [frame for frame in stack if not frame.filename.startswith(_LIBRARIES)]
    if not stack:
        return None
    at = (theirs or stack)[-1]
    return source_line(at.filename, at.lineno or 0, at.name)
