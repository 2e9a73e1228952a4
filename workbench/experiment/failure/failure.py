"""An exception in user code as a plain record: first the user's line, then what can be read safely.

The user's own frames are distinguished from library frames by `source.is_user_file`. Values on the
failing line are read from the frame's variables by walking the line's syntax tree; nothing is
called, and no property is run. The record holds only text, so the traceback and its tensors can be
freed.
"""

from __future__ import annotations

import ast
import linecache
import traceback
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple

from workbench.experiment.failure.explained_errors import explained
from workbench.experiment.failure.values import values_on
from workbench.experiment.state.user_code import is_own_file, is_own_name, is_user_file
from workbench.modes.compile.graph_breaks import GraphBreakError
from workbench.records import CodeLine, Fact, Failure, SourceLine
from workbench.records.source import source_line
from workbench.trust import error_message

_AROUND = 2
"""Lines of code shown before and after the failing one."""


class _Frame(NamedTuple):
    frame: Any
    """None for a frame of another process."""
    lineno: int
    name: str
    filename: str


class Fault(NamedTuple):
    """An exception of another process as plain data, from which a `Failure` is made."""

    type: str
    message: str
    frames: list[tuple[int, str, str]]
    """(line, function, file), outermost first."""
    values: list[tuple[str, str]]
    """Names on the failing line and their values."""
    traceback: str
    where: str
    """Where it was raised: ``rank 1``."""


def fault_of(error: BaseException, where: str) -> Fault:
    """Return ``error`` in the form that is sent to another process."""
    frames = _external_frames(error)
    user_frames = [frame for frame in frames if is_user_file(frame.filename)]
    values = _values(user_frames[-1] if user_frames else None)
    return Fault(
        type=type(error).__name__,
        message=_message(error),
        frames=[(frame.lineno, frame.name, frame.filename) for frame in frames],
        values=[(fact.label, fact.value) for fact in values],
        traceback=_text(error),
        where=where,
    )


def _message(error: BaseException) -> str:
    """Return the message of ``error``, completed if it leaves something out."""
    text = error_message(error)
    more = explained(error, text)
    return f"{text.rstrip('.')}. {more}" if more else text


def remote_failure(fault: Fault | None, message: str, *, step: int) -> Failure:
    """Return the record of what ended the steps that other processes computed.

    Args:
        fault: what was raised there; None if a process was ended from outside.
        message: what happened, in a sentence or two.
        step: the next step of the training as it was returned, counting from 1.
    """
    state = f"Weights and optimizer are those of step {step - 1:,}, the last state that was kept."
    if fault is None:
        return Failure(
            kind="exception", title="A worker died", subtitle=state, message=message, step=step
        )
    frames = [_Frame(None, *frame) for frame in fault.frames]
    return _failure(
        frames,
        fault.type,
        message=fault.message or fault.type,
        subtitle=f"It was raised on {fault.where}. {state}",
        values=tuple(Fact(label=label, value=value) for label, value in fault.values),
        traceback=fault.traceback,
        step=step,
    )


def failure_of(error: BaseException, *, step: int, what: str = "") -> Failure:
    """Return the record of ``error``, which ended step ``step`` (counting from 1).

    Args:
        error: the exception with its traceback.
        step: the step that was not applied.
        what: what was in progress outside a step (``while validating``), or ``""``.
    """
    frames = _external_frames(error)
    user_frames = [frame for frame in frames if is_user_file(frame.filename)]
    name = type(error).__name__
    # Workbench itself refused something: its message is all there is to report
    because = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    refuses = not frames and because is None and is_own_name(type(error).__module__)
    found = _failure(
        frames,
        name,
        message=_message(error) or name,
        subtitle=_state(step, what),
        values=_values(user_frames[-1] if user_frames else None),
        traceback="" if refuses else _text(error),
        step=step,
    )
    if isinstance(error, GraphBreakError) and error.source is not None:
        return _at_break(found, error.source)
    return found


def _failure(
    frames: list[_Frame],
    name: str,
    *,
    message: str,
    subtitle: str,
    values: tuple[Fact, ...],
    traceback: str,
    step: int,
) -> Failure:
    user_frames = [frame for frame in frames if is_user_file(frame.filename)]
    focus = user_frames[-1] if user_frames else None
    source = source_line(focus.filename, focus.lineno, focus.name) if focus else None
    return Failure(
        kind="exception",
        title=f"{_place(source)}{name}",
        subtitle=subtitle,
        message=message,
        source=source,
        scope=_scope(focus),
        code=_code(focus),
        values=values,
        traceback=traceback,
        num_frames=len(frames),
        num_user_frames=len(user_frames),
        step=step,
    )


def _at_break(failure: Failure, source: SourceLine) -> Failure:
    """Return ``failure`` at the line that Dynamo was reading, which is on no stack."""
    return replace(
        failure,
        title=f"{_place(source)}graph break",
        source=source,
        scope=f"{source.function}, as Dynamo read it" if source.function else "",
        code=_lines(source.filename, source.line),
        values=(),
    )


def at_line(failure: Failure, source: SourceLine) -> Failure:
    """Return ``failure`` at a user's line that was on no stack: it created what backward used."""
    return replace(
        failure,
        source=source,
        scope=f"{source.function}, backward" if source.function else "backward",
        code=_lines(source.filename, source.line),
    )


def without_own_frames(error: BaseException) -> BaseException:
    """Return ``error`` without this package's frames in its traceback: they are not the cause."""
    kept: TracebackType | None = None
    chain: list[TracebackType] = []
    tb = error.__traceback__
    while tb is not None:
        chain.append(tb)
        tb = tb.tb_next
    for one in reversed(chain):
        if not is_own_file(one.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return error.with_traceback(kept)


def _external_frames(error: BaseException) -> list[_Frame]:
    return [frame for frame in _frames(error.__traceback__) if not is_own_file(frame.filename)]


def _frames(tb: TracebackType | None) -> list[_Frame]:
    found: list[_Frame] = []
    while tb is not None:
        code = tb.tb_frame.f_code
        found.append(_Frame(tb.tb_frame, tb.tb_lineno, code.co_qualname, code.co_filename))
        tb = tb.tb_next
    return found


def _place(source: SourceLine | None) -> str:
    if source is None:
        return ""
    label = source.label
    return f"{label[:1].upper() + label[1:] if source.cell is not None else label}: "


def _state(step: int, what: str) -> str:
    if what:
        return f"It was raised {what}. Weights and optimizer are those of step {step - 1:,}."
    if step == 1:
        return "Step 1 was not applied. Weights are as they were given."
    return f"Step {step:,} was not applied. Weights and optimizer are those of step {step - 1:,}."


def _scope(focus: _Frame | None) -> str:
    if focus is None or focus.name == "<module>":
        return ""
    return focus.name.replace("<locals>.", "")


def _code(focus: _Frame | None) -> tuple[CodeLine, ...]:
    return () if focus is None else _lines(focus.filename, focus.lineno)


def _lines(filename: str, lineno: int) -> tuple[CodeLine, ...]:
    lines = linecache.getlines(filename)
    first, last = max(1, lineno - _AROUND), min(len(lines), lineno + _AROUND)
    return tuple(
        CodeLine(line=at, text=lines[at - 1].rstrip("\n"), current=at == lineno)
        for at in range(first, last + 1)
    )


def _values(focus: _Frame | None) -> tuple[Fact, ...]:
    if focus is None:
        return ()
    try:
        tree = ast.parse("".join(linecache.getlines(focus.filename)))
        return values_on(tree, focus.lineno, focus.frame)
    except (SyntaxError, ValueError):
        return ()  # a line with IPython magics does not parse as Python: show only the code


def _text(error: BaseException) -> str:
    """The whole traceback, causes first, the user's frames marked with ``>``."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.append(_one(current))
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
    return "\nand then:\n\n".join(reversed(parts))


def _one(error: BaseException) -> str:
    lines: list[str] = []
    for frame in _frames(error.__traceback__):
        if is_own_file(frame.filename):
            continue
        place = source_line(frame.filename, frame.lineno, frame.name)
        mark = ">" if is_user_file(frame.filename) else " "
        where = place.label if place.cell is not None else f"{frame.filename}:{frame.lineno}"
        lines.append(f"{mark} {where}, in {frame.name}")
        if place.text:
            lines.append(f"      {place.text}")
    lines += [line.rstrip("\n") for line in traceback.format_exception_only(error)]
    return "\n".join(lines) + "\n"
