"""Lines of the user's code: which files are theirs, and which notebook cell a line is in."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from typing import Any

from workbench.records import SourceLine

_OURS = str(Path(__file__).parent.parent)
_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple({_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_user_file(filename: str) -> bool:
    """Whether ``filename`` (a code object's) is a notebook cell or a file the user wrote.

    False for this package, installed packages, the standard library and code without a file.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython-input", "<stdin>"))
    if filename.startswith((_OURS, *_LIBRARIES)):
        return False
    return "site-packages" not in filename and "dist-packages" not in filename


def source_line(filename: str, lineno: int, function: str = "") -> SourceLine:
    """The line ``lineno`` (from 1) of ``filename``, with the cell it belongs to, if it is one."""
    return SourceLine(
        filename=filename,
        line=lineno,
        cell=_execution_count(filename),
        function="" if function == "<module>" else function,
        text=linecache.getline(filename, lineno).strip(),
    )


def _execution_count(filename: str) -> int | None:
    """Execution count of the notebook cell compiled under ``filename``."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return None
    # private in IPython 8 and 9: the one place where file names meet execution counts
    cells: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    return cells.get(filename)
