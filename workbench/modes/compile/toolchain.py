"""What ``torch.compile`` needs from this machine, determined in the way that Inductor does it.

Inductor's own look-ups are called through `workbench.torch_private.compiler`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.modes.core.machine_probes import first_line, once
from workbench.torch_private.compiler import (
    has_triton_package,
    missing_cpp_compiler,
    triton_supports_device,
)
from workbench.trust import made_private, private_folder


@dataclass(frozen=True)
class Missing:
    """Something the compiler needs and this machine lacks."""

    short: str
    """For a badge: ``needs a C++ compiler``."""
    why: str
    remedy: str
    commands: tuple[str, ...] = ()


@once
def missing_for_compile(device: torch.device) -> Missing | None:
    """What prevents Inductor from compiling for ``device``, or None if nothing does."""
    if device.type == "cuda":
        return _missing_triton()
    if device.type == "cpu":
        return _missing_compiler() or _missing_python_headers()
    return None


def use_persistent_cache() -> None:
    """Keep compiled code across kernels, unless the user has already set where.

    Inductor's own default is in the system's temporary folder and is lost at a reboot. A first step
    that found its code in the cache took 1.7 s, a cold one took 20 s. The contents of the folder
    are executed, so it belongs to the user alone. If that is not possible, or it cannot be written,
    this process has a folder of its own, which is lost with it: Inductor's default would take one
    that another user has made.
    """
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return
    kept = _kept_cache()
    if kept is not None and _can_run_from(kept):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(kept)
        return
    try:
        folder = private_folder("workbench-inductor-")
    except OSError:
        return
    if kept is not None and not _can_run_from(folder):  # nowhere: at least it is kept
        folder.rmdir()
        folder = kept
    else:
        atexit.register(_remove, folder, os.getpid())
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def _kept_cache() -> Path | None:
    """The user's own folder for compiled code; None if it cannot exist or cannot be written."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        folder = made_private(Path(cache) / "workbench" / "inductor")
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: the home directory is unknown
        return None


def _can_run_from(folder: Path) -> bool:
    """Whether it is not on a ``noexec`` mount: what Inductor builds is loaded from its cache."""
    return not (hasattr(os, "statvfs") and os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not by a fork of it
        shutil.rmtree(folder, ignore_errors=True)


def _missing_compiler() -> Missing | None:
    found = missing_cpp_compiler()
    if found is None:
        return None
    return Missing(
        short="needs a C++ compiler",
        why=f"Compiled modules are built as C++ for this CPU. {_compiler_why(*found)}",
        remedy="Install one, then check again. The kernel and the training keep running.",
        commands=_compiler_commands(),
    )


def _compiler_why(error: BaseException, names: tuple[str, ...]) -> str:
    command = os.environ.get("CXX")
    if command:
        return f"CXX is set to {command}, which does not run."
    if sys.platform == "win32":
        return f"{first_line(error)}."
    return f"No {' or '.join(names)} is on PATH and CXX is not set."


def _compiler_commands() -> tuple[str, ...]:
    conda = "conda install -c conda-forge cxx-compiler"
    if sys.platform == "darwin":
        return conda, "xcode-select --install"
    if sys.platform == "win32":
        return ("winget install Microsoft.VisualStudio.2022.BuildTools",)
    return conda, "sudo apt install g++"


def _missing_python_headers() -> Missing | None:
    include = Path(sysconfig.get_path("include"))
    if (include / "Python.h").exists():
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Missing(
        short="needs Python headers",
        why=f"Compiled modules include Python.h, and {include} has none.",
        remedy="Install this Python's headers, then check again. The training keeps running.",
        commands=(f"sudo apt install python{version}-dev",),
    )


def _missing_triton() -> Missing | None:
    if not has_triton_package():
        return Missing(
            short="needs Triton",
            why="Compiled modules are built as Triton kernels for this GPU, and Triton is not "
            "installed.",
            remedy="Install it, then check again.",
            commands=("pip install triton",),
        )
    if triton_supports_device():
        return None
    return Missing(
        short="GPU too old for Triton",
        why="Triton does not support this GPU: it needs compute capability 7.0 or newer.",
        remedy="Leave compile off here.",
    )
