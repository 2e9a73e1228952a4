"""The static picture of a diff: both timelines, one above the other, and a table of changes.

It is shown if no widget can run; every text is escaped, the colours are those of all views.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from workbench.memory.reading.text import format_bytes, peak_sentence, shorten
from workbench.memory.render.diff import BY, Change, signed
from workbench.memory.render.svg import FONT, to_svg

if TYPE_CHECKING:
    from workbench.memory.render.diff import MemoryDiff

_ROWS = 5


def diff_html(diff: MemoryDiff) -> str:
    """Return the sentence, A and B, and a table by category, module, line and stack."""
    parts = [f"<p style='margin:4px 0'><b>{html.escape(diff.sentence)}</b></p>"]
    for name, record in (("A", diff.a), ("B", diff.b)):
        sentence = html.escape(f"{name}  {peak_sentence(record)}")
        parts.append(f"<p style='margin:8px 0 2px'>{sentence}</p>{to_svg(record)}")
    parts += [_table(kind, [row for row in diff.by(kind) if row.change]) for kind in BY]
    return f"<div style='{FONT}'>{''.join(parts)}</div>"


def _table(kind: str, rows: list[Change]) -> str:
    if not rows:
        return f"<p style='margin:4px 0'>By {kind}: nothing differs.</p>"
    head = "".join(f"<th>{text}</th>" for text in (f"by {kind}", "A", "B", "change"))
    body = "".join(_row(row) for row in rows[:_ROWS])
    more = (
        f"<p style='margin:2px 0'>and {len(rows) - _ROWS:,} more</p>" if len(rows) > _ROWS else ""
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _row(row: Change) -> str:
    sizes = (format_bytes(row.before), format_bytes(row.after), signed(row.change))
    cells = "".join(f"<td>{size}</td>" for size in sizes)
    name = row.what if len(row.what) <= 70 else f"…{row.what[-69:]}"
    return f"<tr><td style='text-align:left'>{html.escape(shorten(name, 70))}</td>{cells}</tr>"
