"""Where a line of the user's code is: a notebook cell or a file. Shared by every record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """One line of the user's code.

    ``cell`` is the execution count of the notebook cell the line belongs to (``[2]`` in the
    notebook's margin) or None for a file. ``line`` counts from 1 within the cell or file.
    """

    filename: str
    line: int
    cell: int | None = None
    function: str = ""
    text: str = ""

    @property
    def label(self) -> str:
        """``cell [2], line 11`` or ``model.py:11``."""
        if self.cell is not None:
            return f"cell [{self.cell}], line {self.line}"
        return f"{self.filename.rsplit('/', 1)[-1]}:{self.line}"
