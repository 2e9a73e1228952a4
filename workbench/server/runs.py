"""The run directories below a folder, for the side panel.

A run directory is one that holds a ``run.json`` (`docs/architecture.md`, "A run directory"). The
file may be half-written, damaged or written by someone else: such a run is listed as ``damaged``,
and never hides the others. The walk is bounded, because the folder may be somebody's home.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil

from workbench.records import RunSummary

RUN_FILE = "run.json"
_MAX_DEPTH = 6
_MAX_FOLDERS = 5_000
_MAX_RUNS = 1_000
_MAX_FILE_BYTES = 16_000_000
_MAX_TEXT = 200
_UNDER_WAY = ("training", "paused")
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


def list_runs(folder: Path, root: Path) -> tuple[list[RunSummary], bool]:
    """The runs in ``folder`` and below, the one changed last first.

    Args:
        folder: Where to look; inside ``root`` and free of symbolic links.
        root: The server's root, which the listed paths are relative to.

    Returns:
        The runs, and whether the walk ended at a limit before it saw everything.
    """
    runs: list[RunSummary] = []
    home = root.resolve()
    for num_folders, (path, is_run) in enumerate(_walk(folder), start=1):
        if is_run:
            runs.append(read_run(path, home))
        if num_folders >= _MAX_FOLDERS or len(runs) >= _MAX_RUNS:
            return _newest_first(runs), True
    return _newest_first(runs), False


def read_run(path: Path, home: Path) -> RunSummary:
    """What ``run.json`` of a run directory says, with ``damaged`` as status when it is unreadable.

    Args:
        path: The run directory, below ``home``.
        home: The server's root, resolved.
    """
    file = path / RUN_FILE
    relative = path.relative_to(home).as_posix()
    try:
        stat = file.stat()
        fits = stat.st_size <= _MAX_FILE_BYTES
        found = json.loads(file.read_bytes()) if fits else None
    except (OSError, ValueError, RecursionError):
        return _damaged(path, relative)
    if not isinstance(found, dict):
        return _damaged(path, relative)
    entry = cast("dict[str, Any]", found)
    return RunSummary(
        name=_text(entry.get("name")) or path.name,
        path=relative,
        status=_status(entry),
        model=_text(entry.get("model")),
        modes=_text(entry.get("modes")),
        best_accuracy=_number(entry.get("best_accuracy")),
        step=int(_number(entry.get("step")) or 0),
        updated_at=_number(entry.get("updated_at")) or stat.st_mtime,
    )


def _status(entry: dict[str, Any]) -> str:
    """What the run says of itself; ``interrupted`` when its process ended without a word."""
    said = _text(entry.get("status")) or "unknown"
    process = entry.get("process")
    if said not in _UNDER_WAY or not isinstance(process, dict):
        return said
    known = cast("dict[str, Any]", process)
    pid, here = known.get("pid"), known.get("host") == platform.node()
    if not here or not isinstance(pid, int) or _is_alive(pid, _number(entry.get("updated_at"))):
        return said
    return "interrupted"


def _is_alive(pid: int, seen_at: float | None) -> bool:
    """Whether the process that wrote at ``seen_at`` is there: a number may have a new owner."""
    try:
        return psutil.Process(pid).create_time() <= (seen_at or math.inf)
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.Error:  # it is there, and somebody else's
        return True


def _damaged(path: Path, relative: str) -> RunSummary:
    try:
        changed = (path / RUN_FILE).stat().st_mtime
    except OSError:
        changed = 0.0
    return RunSummary(
        name=path.name,
        path=relative,
        status="damaged",
        model="",
        modes="",
        best_accuracy=None,
        step=0,
        updated_at=changed,
    )


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Folders breadth first, with whether each is a run; a run is not entered."""
    level = [folder]
    for _depth in range(_MAX_DEPTH + 1):
        below: list[Path] = []
        for path in level:
            is_run, children = _look(path)
            yield path, is_run
            if not is_run:
                below.extend(children)
        level = below


def _look(path: Path) -> tuple[bool, list[Path]]:
    """Whether ``path`` is a run, and the folders in it worth entering."""
    try:
        with os.scandir(path) as entries:
            children: list[Path] = []
            for entry in entries:
                if entry.name == RUN_FILE and entry.is_file(follow_symlinks=False):
                    return True, []
                hidden = entry.name.startswith(".") or entry.name in _SKIPPED
                # a symbolic link may lead out of the root or in a circle
                if not hidden and entry.is_dir(follow_symlinks=False):
                    children.append(Path(entry.path))
    except OSError:
        return False, []
    return False, sorted(children)


def _newest_first(runs: list[RunSummary]) -> list[RunSummary]:
    return sorted(runs, key=lambda run: (-run.updated_at, run.path))


def _text(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
