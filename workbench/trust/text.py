"""Text of a file that anybody may have written, made safe for where it is shown.

A name of an operation, a reason, a path can carry what a terminal obeys (ESC, OSC 52, which writes
the clipboard), marks that turn the reading order round, and characters that XML does not have. One
character is put in place of each, so that a reader sees that something was there.
"""

from __future__ import annotations

_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """``text`` as one line without control characters, lone surrogates and marks of direction.

    Source lines, file names and graphs saved by somebody else can hold any of them, and each would
    break the table, the picture or the terminal.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """``text`` as `printable`, its lines kept."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def csv_cell(text: str) -> str:
    """``text`` as `printable`, and none that a spreadsheet takes for a formula: with ``'`` before.

    A number is no formula, whatever its sign.
    """
    plain = printable(text)
    if not plain.startswith(_FORMULA) or _is_number(plain):
        return plain
    return f"'{plain}"


def _shown(character: str) -> str:
    return character if character.isprintable() else _INSTEAD


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
