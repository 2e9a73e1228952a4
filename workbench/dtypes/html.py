"""The static form for a cell: sentences and a table. No script and no style sheet."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from workbench.dtypes.text import HEADINGS, MOST_ROWS, NOTHING, heading, sentences, table

if TYPE_CHECKING:
    from workbench.records.dtypes import DtypeRecord

_LEFT = 'style="text-align:left"'
_NUMBERS = 5
"""From this column on there are numbers."""


def types_html(record: DtypeRecord) -> str:
    """The record as HTML, under 30 kB."""
    parts = [f"<div><strong>{escape(heading(record))}</strong>"]
    rows = table(record.rows)
    if not rows:
        parts.append(f"<p>{escape(NOTHING)}</p>")
    parts += [f"<div>{escape(line)}</div>" for line in sentences(record)]
    if rows:
        head = "".join(f"<th {_left(at)}>{name}</th>" for at, name in enumerate(HEADINGS))
        body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:MOST_ROWS])
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    if len(rows) > MOST_ROWS:
        parts.append(f"<p>{len(rows) - MOST_ROWS} more lines: view.record.rows.</p>")
    parts += [f"<p>Note: {escape(note)}</p>" for note in record.notes]
    return "\n".join([*parts, "</div>"])


def _cells(row: tuple[str, ...]) -> str:
    return "".join(f"<td {_left(at)}>{escape(text[:120])}</td>" for at, text in enumerate(row))


def _left(at: int) -> str:
    return _LEFT if at < _NUMBERS else ""
