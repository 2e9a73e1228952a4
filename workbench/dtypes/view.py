"""View of a record of types: a table in a cell, text, a figure, a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import with_images
from workbench.dtypes.figure import types_figure
from workbench.dtypes.html import types_html
from workbench.dtypes.text import describe, heading, sentences
from workbench.records.file import RECORD, suffix_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.records.dtypes import DtypeRecord, DtypeRow

_PICTURES = (".png", ".pdf", ".svg")


class DtypeView:
    """What `workbench.dtypes` returns: ``.record``, ``.save(path)``, ``.figure()``, a display.

    Args:
        record: returns the record to show; called each time it is shown.
    """

    def __init__(self, record: Callable[[], DtypeRecord]) -> None:
        self._record = record

    @property
    def record(self) -> DtypeRecord:
        """The record: plain data, no tensor."""
        return self._record()

    def rows(self, module: str = "") -> tuple[DtypeRow, ...]:
        """Return every operation, or those of a module and everything inside it.

        Args:
            module: a path (``encoder.layers.0``), or ``loss``.

        Raises:
            ValueError: nothing ran there; the message lists the existing paths.
        """
        rows = self.record.rows
        if not module:
            return rows
        found = tuple(
            row for row in rows if row.module == module or row.module.startswith(f"{module}.")
        )
        if not found:
            valid = ", ".join(sorted({row.module for row in rows} - {""})) or "none"
            raise ValueError(f"no operation of {module!r} was seen; modules are: {valid}")
        return found

    def save(self, path: str | Path) -> Path:
        """Write the record in the format that the suffix names; returns the path.

        ``.safetensors`` is the record, which ``wb.open(path)`` opens again; ``.txt`` and ``.html``
        are the table to read; ``.svg``, ``.png`` and ``.pdf`` are the figure.

        Raises:
            ValueError: the suffix is not supported; the message lists those that are.
        """
        target = Path(path).expanduser()
        suffix = suffix_of(target.name, (RECORD, ".txt", ".html", *_PICTURES), "a table of types")
        record = self.record
        if suffix == RECORD:
            return record.save(target)
        if suffix in _PICTURES:
            types_figure(record).savefig(target)
        else:
            text = describe(record) + "\n" if suffix == ".txt" else types_html(record)
            target.write_text(text, encoding="utf-8")
        return target

    def figure(self) -> Figure:
        """Return the share of each type, by phase, as a matplotlib figure."""
        return types_figure(self.record)

    def __str__(self) -> str:
        return describe(self.record)

    def __repr__(self) -> str:
        record = self.record
        return " ".join([f"{heading(record)}:", *sentences(record)])

    def _repr_mimebundle_(self, **_options: Any) -> Any:
        record = self.record
        html = with_images(types_html(record))
        return {"text/plain": describe(record), "text/html": html}, {}
