"""Width of a text in a picture whose font is not known yet.

A static picture is laid out here and drawn by whatever program shows the notebook. The widths are
those of DejaVu Sans, among the widest of the fonts in use, so that text which fits in it fits in
the others.
"""

from __future__ import annotations

from workbench.graph.core.number_format import short

_BOLD = {
    **dict.fromkeys("ijlI'|", 0.37),
    **dict.fromkeys(" .,:;·", 0.38),
    **dict.fromkeys("!()[]", 0.46),
    **dict.fromkeys("frt_-", 0.5),
    **dict.fromkeys("csz", 0.6),
    **dict.fromkeys("×→−+≠", 0.84),
    **dict.fromkeys("mwMW…", 1.06),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ", 0.8),
}
"""Width of a bold letter relative to the font size; other letters 0.71, regular ones 0.89 of it."""


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of ``text`` in px, at a font size of ``size`` px."""
    return sum(_BOLD.get(letter, 0.71) for letter in text) * size * (1 if bold else 0.89)


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """``text`` on one line of at most ``room`` px, shortened to a path's end or to both ends."""
    line = short(text, 200)
    for at, letter in enumerate(line):
        shown = line if not at else f"…{line[at + 1 :]}"
        is_path_end = letter == "." and " × " not in line
        if (not at or is_path_end) and text_width(shown, size, bold=bold) <= room:
            return shown
    for letters in range(len(line), 1, -1):
        line = short(text, letters)
        if text_width(line, size, bold=bold) <= room:
            break
    return line
