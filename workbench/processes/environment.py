"""Environment that a child process needs to find this package."""

from __future__ import annotations

import os
import site
import sysconfig
from pathlib import Path


def python_path() -> str:
    """Return the PYTHONPATH of a child: the one of this process, plus the folder of this package.

    The folder is not added if every Python of this environment finds the package by itself:
    PYTHONPATH comes before the standard library, and ``site-packages`` must not.
    """
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), _checkout()]))


def _checkout() -> str:
    root = Path(__file__).resolve().parents[2]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    installed |= {
        Path(one).resolve() for one in [*site.getsitepackages(), site.getusersitepackages()]
    }
    return "" if root in installed else str(root)
