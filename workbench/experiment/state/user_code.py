"""Determine which lines are the user's own: neither a library's nor this package's.

The name of a line, and the notebook cell that it is in, come from `workbench.records.source_line`.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import lru_cache

_CELL_PREFIXES = ("<ipython-input", "<stdin>", "<cell")


@lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Return whether the user of a notebook would call ``filename`` their own code.

    False for the standard library, everything installed in site-packages, torch and this package.
    """
    if filename.startswith("<"):
        return filename.startswith(_CELL_PREFIXES)
    path = os.path.realpath(filename)
    return not path.startswith(_library_folders())


def is_own_file(filename: str) -> bool:
    """Return whether ``filename`` belongs to this package: such frames are never shown."""
    return os.path.realpath(filename).startswith(_own_folder())


def is_user_module(name: str) -> bool:
    """Return whether the module ``name`` is the notebook, the script or a file of the user's."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return name == "__main__" or (isinstance(file, str) and is_user_file(file))


def may_be_user_module(name: str | None) -> bool:
    """Return the same as `is_user_module`, but True for a module that cannot be found.

    Such a module is not a library's.
    """
    return sys.modules.get(name or "") is None or is_user_module(name or "")


def is_own_name(module: str) -> bool:
    """Return whether a module of this name belongs to this package."""
    return module.partition(".")[0] == "workbench"


def callers_level() -> int:
    """Return the ``stacklevel`` with which `warnings.warn` reports the caller's line.

    It holds where this function is called; the line is that of the innermost frame outside this
    package.
    """
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage] - `inspect.stack` reads source files
    while frame.f_back is not None and is_own_file(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


@lru_cache(maxsize=1)
def _own_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))) + os.sep  # noqa: PTH120 - string prefixes are compared, a Path per frame would be slow


@lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(kind) for kind in kinds}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), _own_folder()}
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        folders.add(os.path.dirname(torch.__file__))  # noqa: PTH120 - as above
    return tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)
