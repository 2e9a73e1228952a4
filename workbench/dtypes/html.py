"""Static form of a record for a cell: sentences and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.dtypes.text import HEADINGS, MOST_ROWS, NOTHING, heading, sentences, table
from workbench.html import render

if TYPE_CHECKING:
    from workbench.records.dtypes import DtypeRecord

_NUMBERS_FROM = 5
"""First of the columns that contain numbers."""


def types_html(record: DtypeRecord) -> str:
    """Return the record as HTML, under 30 kB."""
    return render(
        "dtypes/types.html",
        heading=heading(record),
        sentences=sentences(record),
        headings=HEADINGS,
        rows=table(record.rows),
        numbers_from=_NUMBERS_FROM,
        most_rows=MOST_ROWS,
        nothing=NOTHING,
        notes=record.notes,
    )
