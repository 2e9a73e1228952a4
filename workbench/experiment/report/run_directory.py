"""The run directory: a unique folder with a ``run.json`` that is never half written.

A disk that cannot be written to never stops a training: the folder then says why in one sentence
(`RunFolder.problem`) and everything else continues.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workbench.experiment.report.facts import run_facts
from workbench.experiment.report.run_lock import InUseError, RunLock
from workbench.trust import read_regular, write_whole

if TYPE_CHECKING:
    from workbench.experiment.runtime.runner import Runner


SCHEMA = "workbench.run/1"
_ATTEMPTS = 10_000
_MOST_BYTES = 1 << 28
_MOST_PID = 1 << 31


class RunFolder:
    """``<runs>/<name>/``; two experiments of one name get ``name``, ``name-2``, ..."""

    def __init__(self, runs: str | os.PathLike[str], name: str) -> None:
        self.problem = ""
        """Why nothing is written, in one sentence, or ``""``."""
        self.lineage: dict[str, Any] = {}
        """What the run continues: ``{"forked_from": path, "forked_at": step}``."""
        self._writing, self._lock = threading.Lock(), None
        root = Path(runs).expanduser().absolute()
        self.path = root / slug(name)
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.path = _claim(root, slug(name))
        except OSError as error:
            # should the disk recover, the folder of an earlier run must not be written over
            self.path = next(p for p in _candidates(root, slug(name)) if not os.path.lexists(p))
            self.problem = _sentence(root, error)

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """Return the existing directory of a run."""
        self = cls.__new__(cls)
        self.path, self.problem, self.lineage = path, "", {}
        self._writing, self._lock = threading.Lock(), None
        return self

    _lock: RunLock | None

    def lock(self) -> None:
        """Let no other experiment write it, until `unlock` or the end of the process.

        Raises:
            InUseError: another one does.
        """
        if self._lock is None:
            self._lock = RunLock(self.path)

    def unlock(self) -> None:
        """Let others write it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    @contextmanager
    def kept_locked(self) -> Generator[None]:
        """Context in which it stays locked, though the experiment may be closed meanwhile."""
        lock = self._lock
        if lock is not None:
            lock.share()
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def was_replaced(self) -> bool:
        """Whether the folder was deleted since it was locked; a new one is locked then."""
        lock = self._lock
        if lock is None or lock.is_of(self.path):
            return False
        self.unlock()
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock()
        return True

    def move(self, path: Path, lock: RunLock) -> None:
        """Write to the directory of another run from now on; an empty one is removed.

        Args:
            path: the other directory.
            lock: the lock on it.
        """
        before = self.path
        with self._writing:
            self.unlock()
            self.path, self.problem, self._lock = path, "", lock
        remove_if_empty(before)

    def read(self) -> dict[str, Any]:
        """Return the content of ``run.json``.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is not one that this version wrote.
        """
        try:
            facts = json.loads(read_regular(self.path / "run.json", _MOST_BYTES))
            process = facts["process"]
            is_run = (
                isinstance(process["host"], str)
                and isinstance(process["pid"], int)
                and 0 < process["pid"] < _MOST_PID
                and isinstance(facts["created_at"], (int, float))
            )
        except (ValueError, TypeError, LookupError, RecursionError):
            facts, is_run = None, False
        if not is_run:
            raise ValueError(f"{self.path / 'run.json'} describes no run")
        return cast("dict[str, Any]", facts)

    def write(self, facts: Mapping[str, Any]) -> bool:
        """Replace ``run.json`` atomically; False, and `problem` says why, if it could not be."""
        with self._writing:
            return self._write(facts)

    def _write(self, facts: Mapping[str, Any]) -> bool:
        target = self.path / "run.json"
        try:
            self.path.mkdir(exist_ok=True)
            self.lock()
            write_whole(
                target, json.dumps({"schema": SCHEMA, **facts, **self.lineage}, indent=1).encode()
            )
        except OSError as error:
            self.problem = _sentence(self.path, error)
            return False
        self.problem = ""
        return True

    def mark_abandoned(self) -> None:
        """Record that a paused run of this process has stopped, as it can no longer be resumed."""
        try:
            facts = self.read()
        except (OSError, ValueError):
            return  # it never ran
        if facts.get("status") == "paused" and facts["process"].get("pid") == os.getpid():
            with contextlib.suppress(InUseError):  # another experiment has taken it up
                self.write({**facts, "status": "stopped"})

    def remove_if_empty(self) -> None:
        """Remove the folder of an experiment that never ran."""
        remove_if_empty(self.path)


def remove_if_empty(path: Path) -> None:
    """Remove ``path`` if it is an empty folder."""
    try:
        path.rmdir()
    except OSError:
        return  # it holds something, or is gone: both are fine


def slug(name: str) -> str:
    """``name`` as a folder name that every file system accepts."""
    safe = re.sub(r"[^\w.\-]+", "-", name).strip("-.")[:80]
    return safe or "run"


def _claim(root: Path, name: str) -> Path:
    for path in islice(_candidates(root, name), _ATTEMPTS):
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise OSError(f"{_ATTEMPTS} runs are called {name}; choose another name")


def _candidates(root: Path, name: str) -> Iterator[Path]:
    yield root / name
    yield from (root / f"{name}-{number}" for number in count(2))


def _sentence(path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    return (
        f"nothing is written to disk: {path}: {reason}; training goes on without it, "
        f"give a writable folder with runs=..."
    )


# ``run.json`` of an experiment is written if its content has changed, and not too often.

_EVERY_S = 1.0
"""Minimum time between two writes while training, in seconds."""


class RunFile:
    """``run.json`` of one experiment, in its run directory. Can be used from any thread.

    It knows the run and not the experiment, which may be deleted before its run has ended.

    Args:
        folder: the run directory.
        created_at: creation time of the experiment, Unix time in seconds.
    """

    def __init__(self, folder: RunFolder, created_at: float) -> None:
        self._folder, self._created_at = folder, created_at
        self._written_at: float | None = None
        self._said: tuple[Any, ...] = ()

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self._folder.path

    def continues(self) -> None:
        """Keep creation time and lineage of the run that the folder was moved to."""
        try:
            facts = self._folder.read()
        except (OSError, ValueError):
            return  # damaged: it is written anew
        self._created_at = float(facts["created_at"])
        self._folder.lineage = {
            name: facts[name] for name in ("forked_from", "forked_at") if name in facts
        }

    def update(self, runner: Runner) -> None:
        """Write it if its content has changed; a disk that refuses is reported to the user once."""
        training, now = runner.training, time.monotonic()
        board, step = training.board, training.step_count
        status = board.status
        says = (status, training.modes, runner.epoch, step, id(training.model))
        if status == "idle" or self._said == says:
            return
        recent = self._written_at is not None and now - self._written_at < _EVERY_S
        if recent and status == "training":
            return
        self._written_at, self._said = now, says
        written = self._folder.write(run_facts(runner, self._created_at))
        problem = "" if written else self._folder.problem
        if problem and problem not in board.notes:
            board.notes.append(problem)
            board.say(problem, step)
