"""Where a line of the user's code is: a notebook cell or a file. Shared by every record.

ipykernel compiles every cell under a file name of its own and registers the text with `linecache`;
IPython's compiler remembers which execution count a file name belongs to (`compile._filename_map`,
the map its own tracebacks read). Both are read here and nowhere else.
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from typing import Any


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


def source_line(filename: str, lineno: int, function: str = "") -> SourceLine:
    """The line ``lineno`` (from 1) of ``filename``, with its text and its cell where it has one."""
    return SourceLine(
        filename=filename,
        line=lineno,
        cell=cell_number(filename),
        function="" if function == "<module>" else function,
        text=linecache.getline(filename, lineno).strip(),
    )


def cell_number(filename: str) -> int | None:
    """The execution count of the notebook cell compiled as ``filename``, None for a file.

    Not cached: running an unchanged cell again gives its file name a new count.
    """
    found = getattr(getattr(shell(), "compile", None), "_filename_map", {})
    number = found.get(filename)
    return number if isinstance(number, int) else None


def shell() -> Any:
    """IPython's, where this is a notebook or a terminal of it; None elsewhere."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
