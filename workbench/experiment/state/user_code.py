"""Which lines are the user's own: neither a library's nor this package's.

What a line is called, and which notebook cell it is in, is `workbench.records.source_line`'s.
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


def is_user_module(name: str) -> bool:
    """Whether the module of this name is the notebook's, the script's or a person's own file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return name == "__main__" or (isinstance(file, str) and is_user_file(file))


def may_be_user_module(name: str | None) -> bool:
    """As `is_user_module`, but true of a module that cannot be found, which is no library's."""
    return sys.modules.get(name or "") is None or is_user_module(name or "")


def is_own_name(module: str) -> bool:
    """Whether a module of this name belongs to this package."""
    return module.partition(".")[0] == "workbench"


def callers_level() -> int:
    """The ``stacklevel`` with which `warnings.warn`, where this is called, names the caller's line.

    That is the innermost frame that is not this package's.
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
