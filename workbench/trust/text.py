"""Text of a file that anyone may have written, made safe for where it is shown.

A name of an operation, a reason or a path can contain what a terminal executes (ESC, OSC 52, which
writes the clipboard), marks that reverse the reading order, and characters that XML does not allow.
Each of them is replaced by one character, so that a reader sees that something was there.

Text from a file is made `harmless` once, where it is read, so that anything that shows it later, a
terminal, a picture, a table, a page, can do so safely. If a single line is needed, it is made
`printable`.
"""

from __future__ import annotations

import math
import re
from typing import Any, cast

_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_HARMFUL = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that reverse the reading order
    "\u2028\u2029\u206a-\u206f\ufeff\ufff9-\ufffb"  # line ends, and invisible characters
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # surrogates and noncharacters
    "\U000e0000-\U000e007f"  # tags
    "]"
)
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Position before what a spreadsheet computes: it accepts full-width signs too, and ``;`` separates
its cells in countries where the comma is the decimal separator."""


def harmless(text: str) -> str:
    """Return ``text`` without what a terminal obeys, XML rejects or is invisible; keeps lines."""
    return _HARMFUL.sub(_INSTEAD, text)


def printable(text: str) -> str:
    """Return ``text`` as `harmless`, on one line."""
    return harmless(text).replace("\n", _INSTEAD).replace("\t", _INSTEAD)


def harmless_json(value: Any) -> Any:
    """Return parsed JSON with every text of it as `harmless`, including names of fields."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, list):
        return [harmless_json(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {harmless(name): harmless_json(one) for name, one in items}
    return value


def csv_cell(text: str) -> str:
    """Return ``text`` as `printable`, with ``'`` in front if a spreadsheet would compute it.

    A number is not a formula, whatever its sign.
    """
    plain = printable(text)
    return plain if _is_number(plain) else _FORMULA.sub(r"\1'", plain)


def _is_number(text: str) -> bool:
    """Whether a spreadsheet takes it for a number: it accepts neither ``-inf`` nor ``1_000``."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def error_message(error: BaseException) -> str:
    """Return the message of ``error``, or ``""``; a user's exception may fail at that, too."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - any error of its `__str__`
        return f"its __str__ raises {type(another).__name__}"
