"""What a child process needs of the environment to find this package."""

from __future__ import annotations

import os
import site
import sysconfig
from pathlib import Path


def python_path() -> str:
    """PYTHONPATH of a child: what it is here, and the folder that has this package.

    Not where every Python here finds the package by itself: what is on PYTHONPATH comes before the
    standard library, and ``site-packages`` must not.
    """
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), _checkout()]))


def _checkout() -> str:
    root = Path(__file__).resolve().parents[2]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    installed |= {
        Path(one).resolve() for one in [*site.getsitepackages(), site.getusersitepackages()]
    }
    return "" if root in installed else str(root)
