"""List of the run directories below a folder, for the side panel.

A run directory is one that contains a ``run.json`` (`docs/architecture.md`, "A run directory"). The
file may be half-written, damaged or written by another user: such a run is listed as ``damaged``,
and never hides the others. The number of folders and files, their bytes and the time are limited,
because the folder may be a home directory, and its contents may be made to keep a reader busy. The
newest runs come first, and what was read is cached for the next time.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import platform
import re
import stat
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import psutil

from workbench.records import RunSummary
from workbench.server.paths import DELETED_FOLDER
from workbench.trust import Seal, printable, read_regular

RUN_FILE = "run.json"
_MAX_DEPTH = 6
_MAX_FOLDERS = 200_000
_MAX_RUNS = 1_000
_MAX_FILE_BYTES = 4_000_000
"""Maximum size of one ``run.json``: one with the sources of a long notebook has some 100 kB."""
_MAX_BYTES = 64_000_000
"""Maximum size of all files that are read for one listing."""
_MAX_WALK_S = _MAX_READ_S = 5.0
_MAX_SESSIONS = 64
_MAX_ENTRIES = 200_000
"""Maximum number of entries that are read of one folder."""
_MOST_KNOWN = 10_000
_MAX_CHECKPOINTS = 10_000
_CHECKPOINT = re.compile(r"step-(\d{8,15})(?:-\d{1,15})?", re.ASCII)
"""Name of the folder of a checkpoint."""
_MAX_TEXT = 200
_MAX_LAUNCHER_BYTES = 1 << 16
_UNCHECKED = Seal.unchecked()
"""Seal that checks nothing: whether processes exist is only shown, and has no further effect."""
_SHOWN = (
    "name", "status", "model", "modes", "best_accuracy", "step", "updated_at", "process",
)  # fmt: skip
_UNDER_WAY = ("training", "paused")
_INTERRUPTED = "interrupted"
DETACHED = "detached"
"""Status of a run whose kernel died and whose ranks keep training: for `wb.attach`."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


class Listing(NamedTuple):
    """The runs found below a folder."""

    runs: list[RunSummary]
    """The runs, the one changed last first."""
    truncated: bool
    """Whether the walk reached a limit before it saw everything."""
    deleted: list[Path]
    """Folders of runs that can be restored."""


class Lister:
    """Lists runs, and caches what was read of every ``run.json``."""

    def __init__(self) -> None:
        self._entries: dict[Path, tuple[_Stamp, dict[str, Any] | None]] = {}

    def list(self, folder: Path, root: Path) -> Listing:
        """Return the newest runs in ``folder`` and below.

        Args:
            folder: Where to look; inside ``root`` and free of symbolic links.
            root: The server's root, which the listed paths are relative to.
        """
        runs: list[tuple[float, Path, _Stamp]] = []
        deleted: list[Path] = []
        truncated, ends = False, time.monotonic() + _MAX_WALK_S
        for num_folders, (path, found) in enumerate(_walk(folder), start=1):
            if found is _DELETED:
                deleted.append(path)
            elif found is not None:
                runs.append((found.changed_ns / 1e9, path, found))
            if num_folders >= _MAX_FOLDERS or time.monotonic() > ends:
                truncated = True
                break
        newest = heapq.nlargest(_MAX_RUNS, runs, key=lambda run: run[0])
        read = list(self._read(newest, root.resolve()))
        # more runs, or larger files, than are read at once
        truncated = truncated or len(read) < len(runs)
        return Listing(_newest_first(read), truncated, deleted)

    def _read(self, runs: list[tuple[float, Path, _Stamp]], top: Path) -> Iterator[RunSummary]:
        ends, num_bytes, known = time.monotonic() + _MAX_READ_S, 0, self._entries
        for _, path, stamp in runs:
            stamped = known.get(path)
            if stamped is None or stamped[0] != stamp:
                num_bytes += min(stamp.size, _MAX_FILE_BYTES)
                if num_bytes > _MAX_BYTES:
                    return
                stamped = stamp, _kept(_read(path))
            if time.monotonic() > ends:
                return
            known[path] = stamped
            yield _summary(stamped[1], path, top)
        if len(known) > _MOST_KNOWN:
            self._entries = {path: known[path] for _, path, _ in runs}


def list_runs(folder: Path, root: Path) -> Listing:
    """List runs like `Lister.list`, for a single call."""
    return Lister().list(folder, root)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run directory."""
    file = folder / RUN_FILE
    return file.is_file() and not file.is_symlink()


def read_run(path: Path, top: Path) -> RunSummary:
    """Return what ``run.json`` of a run directory says, with status ``damaged`` if unreadable.

    Args:
        path: The run directory, below ``top``.
        top: The server's root, resolved.
    """
    return _summary(_read(path), path, top)


def _summary(entry: dict[str, Any] | None, path: Path, top: Path) -> RunSummary:
    relative = path.relative_to(top).as_posix()
    if entry is None:
        return _damaged(path, relative)
    said = _status(entry)
    return RunSummary(
        name=_text(entry.get("name")) or path.name,
        path=relative,
        status=DETACHED if said == _INTERRUPTED and _ranks_run(path) else said,
        model=_text(entry.get("model")),
        modes=_text(entry.get("modes")),
        best_accuracy=_number(entry.get("best_accuracy")),
        step=int(_number(entry.get("step")) or 0),
        updated_at=_number(entry.get("updated_at")) or _changed_at(path),
        checkpoint=_checkpoint(path / "checkpoints"),
    )


def _checkpoint(folder: Path) -> int | None:
    """Return the step of the newest checkpoint, going by names: whoever reads it looks into it."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return None
        with os.scandir(folder) as entries:
            names = [_CHECKPOINT.fullmatch(one.name) for one in islice(entries, _MAX_CHECKPOINTS)]
    except OSError:
        return None
    return max((int(found[1]) for found in names if found is not None), default=None)


def why_in_use(path: Path) -> str:
    """Return why a run must not be changed, in one sentence; ``""`` if nothing trains in it."""
    entry = _read(path) or {}
    name, said = _text(entry.get("name")) or path.name, _status(entry)
    if said in _UNDER_WAY:
        does = "is training" if said == "training" else "is paused"
        process = entry.get("process")
        host = cast("dict[str, Any]", process).get("host") if isinstance(process, dict) else None
        where = "" if host in (None, platform.node()) else f" on {_text(host)}"
        return f"{name} {does}{where}: stop it first."
    if _ranks_run(path):
        return f"The ranks of {name} still train without their kernel: wb.attach it and stop it."
    return ""


def _ranks_run(path: Path) -> bool:
    """Whether processes of a run that outlived its kernel (`docs/parallel.md`) are running."""
    for number in _sessions(path / "parallel"):
        file = path / "parallel" / number / "launcher.json"
        try:
            said: Any = json.loads(
                _UNCHECKED.opened(read_regular(file, _MAX_LAUNCHER_BYTES), "", file)
            )
            pid, created, host = said["pid"], said["created"], said["host"]
            if host == platform.node() and _is_alive(int(pid), float(created) + 1):
                return True
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
            continue
    return False


def _sessions(folder: Path) -> list[str]:
    """Return the newest sessions of a run's parallel training, among the entries that are read."""
    try:
        with os.scandir(folder) as entries:
            found = [one.name for one in islice(entries, _MAX_ENTRIES) if one.name.isdecimal()]
    except OSError:
        return []
    return sorted(found, key=len)[-_MAX_SESSIONS:]


def _read(path: Path) -> dict[str, Any] | None:
    """Return the contents of ``run.json``; None if it is unreadable."""
    try:
        found = json.loads(read_regular(path / RUN_FILE, _MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _kept(entry: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the part of it that is shown."""
    return entry and {key: entry[key] for key in _SHOWN if key in entry}


def _changed_at(path: Path) -> float:
    try:
        return (path / RUN_FILE).stat().st_mtime
    except OSError:
        return 0.0


def _status(entry: dict[str, Any]) -> str:
    """Return the status in the run's file; ``interrupted`` if its process ended unannounced."""
    said = _text(entry.get("status")) or "unknown"
    process = entry.get("process")
    if said not in _UNDER_WAY or not isinstance(process, dict):
        return said
    known = cast("dict[str, Any]", process)
    pid, here = known.get("pid"), known.get("host") == platform.node()
    if not here or not isinstance(pid, int) or _is_alive(pid, _number(entry.get("updated_at"))):
        return said
    return _INTERRUPTED


def _is_alive(pid: int, seen_at: float | None) -> bool:
    """Whether the process that wrote at ``seen_at`` still runs: its id may have been reused."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.create_time() <= (seen_at or math.inf)
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.Error:  # it exists, and belongs to another user
        return True


def _damaged(path: Path, relative: str) -> RunSummary:
    return RunSummary(
        name=path.name,
        path=relative,
        status="damaged",
        model="",
        modes="",
        best_accuracy=None,
        step=0,
        updated_at=_changed_at(path),
    )


class _Stamp(NamedTuple):
    """Identifies the version of a file, to detect that it has not changed."""

    inode: int
    size: int
    changed_ns: int


_DELETED = _Stamp(-1, -1, -1)
"""Stamp of a folder that keeps deleted runs."""


def _walk(folder: Path) -> Iterator[tuple[Path, _Stamp | None]]:
    """Yield folders breadth first, with the stamp of a run; runs, also deleted, are not entered."""
    level = [folder]
    for _depth in range(_MAX_DEPTH + 1):
        below: list[Path] = []
        for path in level:
            if path.name == DELETED_FOLDER:
                yield path, _DELETED
                continue
            stamp, children = _inspect(path)
            yield path, stamp
            if stamp is None:
                below.extend(children)
        level = below


def _inspect(path: Path) -> tuple[_Stamp | None, list[Path]]:
    """Return the stamp of ``path`` if it is a run, and the folders in it worth entering."""
    try:
        found = (path / RUN_FILE).lstat()
        if stat.S_ISREG(found.st_mode):
            return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns), []
    except OSError:
        pass
    try:
        with os.scandir(path) as entries:
            children: list[Path] = []
            for entry in islice(entries, _MAX_ENTRIES):
                hidden = entry.name.startswith(".") or entry.name in _SKIPPED
                # a symbolic link may lead out of the root or form a cycle
                wanted = not hidden or entry.name == DELETED_FOLDER
                if wanted and entry.is_dir(follow_symlinks=False):
                    children.append(Path(entry.path))
    except OSError:
        return None, []
    return None, sorted(children)


def _newest_first(runs: list[RunSummary]) -> list[RunSummary]:
    return sorted(runs, key=lambda run: (-run.updated_at, run.path))


def _text(value: object) -> str:
    return printable(value[:_MAX_TEXT]) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
