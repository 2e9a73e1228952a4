"""A graph break as Dynamo reports it, parsed into the user's line, the reason, the hints.

Dynamo logs one text per break (``torch/_dynamo/symbolic_convert.py``, ``exc.py:
format_graph_break_message``): the line it stopped at, the reason with explanation, hints and a
link, the stack of the user's frames, and its own traceback. A break inside a library belongs to the
innermost line of the user's code that led there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.experiment.state.user_code import is_user_file

Place = tuple[str, int, str]
"""File, line (counted from 1), function."""

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_STOPPED = re.compile(r"^Graph break in user code at (?P<file>.+):(?P<line>\d+)$", re.MULTILINE)
_REASON = re.compile(r"^Graph Break Reason: ", re.MULTILINE)
_STACK = re.compile(r"^(User code traceback|The graph break occurred in .*):$", re.MULTILINE)
_TRACEBACK = re.compile(r"^(Traceback \(most recent call last\):|NoneType: None)$", re.MULTILINE)
_LINK = re.compile(r"please visit: (\S+)")
_EXPLANATION = re.compile(r"^  Explanation: (?P<text>.*?)(?=^  Hint: |^\s*$|\Z)", re.M | re.S)
_HINT = re.compile(r"^  Hint: (?P<text>.*?)(?=^  Hint: |^\s*$|\Z)", re.M | re.S)
_GAVE_UP = ("Failed to handle graph break gracefully", "cannot properly resume")
_NO_HELP = ("Please report an issue to PyTorch",)
_MAX_TEXT = 600


@dataclass(frozen=True)
class Break:
    """One graph break of one compilation."""

    place: Place | None
    reason: str
    explanation: str = ""
    hints: tuple[str, ...] = ()
    link: str = ""
    skipped: bool = False


def read_break(text: str) -> Break:
    """Parse Dynamo's text about a break."""
    stack = _STACK.search(text)
    head = text[: stack.start()] if stack else _before_traceback(text)
    reason = _REASON.search(head)
    body = head[reason.end() :] if reason else text[stack.end() :] if stack else head
    frames = _before_traceback(text[stack.end() :]) if stack else ""
    return read_reason(
        body,
        _place(frames, _STOPPED.search(head)),
        skipped=any(phrase in head for phrase in _GAVE_UP),
    )


def read_reason(body: str, place: Place | None, *, skipped: bool) -> Break:
    """Parse a break from the message of Dynamo's error alone."""
    hints = (_plain(found["text"]) for found in _HINT.finditer(body))
    explanation = _EXPLANATION.search(body)
    link = _LINK.search(body)
    return Break(
        place=place,
        reason=_title(body),
        explanation=_plain(explanation["text"]) if explanation else "",
        hints=tuple(hint for hint in hints if hint and not hint.startswith(_NO_HELP)),
        link=link[1] if link else "",
        skipped=skipped,
    )


def _before_traceback(text: str) -> str:
    found = _TRACEBACK.search(text)
    return text[: found.start()] if found else text


def _title(body: str) -> str:
    """Return the line above the explanation, else the first; with what was raised, if given."""
    before = body.partition("\n  Explanation:")[0]
    lines = [line.strip() for line in before.strip().splitlines() if line.strip()]
    if not lines:
        return "unknown"
    title = lines[-1] if "\n  Explanation:" in body else lines[0]
    if title.endswith(" raised:"):
        title = " ".join(lines[:2])
    return title.rpartition("Unsupported: ")[2][:_MAX_TEXT]


def _plain(text: str) -> str:
    return " ".join(text.split())[:_MAX_TEXT]


def _place(frames: str, stopped: re.Match[str] | None) -> Place | None:
    """Return the innermost line of the user's code, else where Dynamo stopped."""
    places = [(f["file"], int(f["line"]), f["name"]) for f in _FRAME.finditer(frames)]
    own = [place for place in places if is_user_file(place[0])]
    if own:
        return own[-1]
    if places:
        return places[-1]
    return (stopped["file"], int(stopped["line"]), "") if stopped else None
