"""Text of a file that anybody may have written, made safe for where it is shown.

A name of an operation, a reason, a path can carry what a terminal obeys (ESC, OSC 52, which writes
the clipboard), marks that turn the reading order round, and characters that XML does not have. One
character is put in place of each, so that a reader sees that something was there.

What is read of a file is made `harmless` where it is read, once, so that whatever shows it later, a
terminal, a picture, a table, a page, can do so. Where a line is wanted, it is made `printable`.
"""

from __future__ import annotations

import math
import re
from typing import Any, cast

_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_HARMFUL = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that turn the reading order round
    "\u2028\u2029\u206a-\u206f\ufeff\ufff9-\ufffb"  # ends of lines, and what nothing shows
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # halves of characters, and none at all
    "\U000e0000-\U000e007f"  # tags
    "]"
)
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Before what a spreadsheet computes: it takes full-width signs too, and ``;`` parts its cells in
countries where the comma is a number's."""


def harmless(text: str) -> str:
    """``text`` without what a terminal obeys, XML refuses, or nobody sees; its lines are kept."""
    return _HARMFUL.sub(_INSTEAD, text)


def printable(text: str) -> str:
    """``text`` as `harmless`, on one line."""
    return harmless(text).replace("\n", _INSTEAD).replace("\t", _INSTEAD)


def harmless_json(value: Any) -> Any:
    """What JSON has said, every text of it as `harmless`, names of fields too."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, list):
        return [harmless_json(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {harmless(name): harmless_json(one) for name, one in items}
    return value


def csv_cell(text: str) -> str:
    """``text`` as `printable`, and none that a spreadsheet takes for a formula: with ``'`` before.

    A number is no formula, whatever its sign.
    """
    plain = printable(text)
    return plain if _is_number(plain) else _FORMULA.sub(r"\1'", plain)


def _is_number(text: str) -> bool:
    """Whether a spreadsheet takes it for one: it knows neither ``-inf`` nor ``1_000``."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def error_message(error: BaseException) -> str:
    """What ``error`` says; ``""`` for nothing. An exception of the user's may fail at that, too."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - whatever its `__str__` raises
        return f"its __str__ raises {type(another).__name__}"
