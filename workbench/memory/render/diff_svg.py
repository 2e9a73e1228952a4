"""The static picture of a diff: both timelines, one above the other, and a table of changes.

It is shown if no widget can run; the colours are those of all views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.html import markup, render
from workbench.memory.reading.text import format_bytes, peak_sentence, shorten
from workbench.memory.render.diff_groups import BY, Change, signed
from workbench.memory.render.svg import FONT, to_svg

if TYPE_CHECKING:
    from workbench.memory.render.diff import MemoryDiff

_ROWS = 5
_WIDTH = 70


def diff_html(diff: MemoryDiff) -> str:
    """Return the sentence, A and B, and a table by category, module, line and stack."""
    return render(
        "memory/render/diff.html",
        font=FONT,
        sentence=diff.sentence,
        sides=[
            {"name": name, "sentence": peak_sentence(record), "picture": markup(to_svg(record))}
            for name, record in (("A", diff.a), ("B", diff.b))
        ],
        tables=[(kind, [_row(row) for row in diff.by(kind) if row.change]) for kind in BY],
        most_rows=_ROWS,
    )


def _row(row: Change) -> dict[str, Any]:
    name = row.what if len(row.what) <= _WIDTH else f"…{row.what[-_WIDTH + 1 :]}"
    sizes = [format_bytes(row.before), format_bytes(row.after), signed(row.change)]
    return {"what": shorten(name, _WIDTH), "sizes": sizes}
