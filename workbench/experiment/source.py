"""Which lines are the user's, and how to name them: a notebook cell or a file.

ipykernel compiles every cell under a file name of its own and registers the text with `linecache`;
IPython's compiler remembers which execution count a file name belongs to (`compile._filename_map`,
the map its own tracebacks read). Both are read here and nowhere else.
"""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
from functools import lru_cache
from typing import Any

from workbench.records import SourceLine

_CELL_PREFIXES = ("<ipython-input", "<stdin>", "<cell")


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
    shell = _shell()
    found = getattr(getattr(shell, "compile", None), "_filename_map", {})
    number = found.get(filename)
    return number if isinstance(number, int) else None


@lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Whether a person who opens a notebook would call ``filename`` their own code.

    False for the standard library, everything installed in site-packages, torch and this package.
    """
    if filename.startswith("<"):
        return filename.startswith(_CELL_PREFIXES)
    path = os.path.realpath(filename)
    return not path.startswith(_library_folders())


def is_own_file(filename: str) -> bool:
    """Whether ``filename`` belongs to this package: such frames are shown to nobody."""
    return os.path.realpath(filename).startswith(_own_folder())


@lru_cache(maxsize=1)
def _own_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep  # noqa: PTH120 - string prefixes are compared, a Path per frame would be slow


@lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(kind) for kind in kinds}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), _own_folder()}
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        folders.add(os.path.dirname(torch.__file__))  # noqa: PTH120 - as above
    return tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
