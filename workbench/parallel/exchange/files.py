"""The folder through which workers and the kernel that started them communicate, and its files.

What is in it is unpickled and executed as commands, so each process holds the folder open from the
beginning, and every file but the log has the session's seal (`workbench.trust`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.trust import (
    HeldFolder,
    NotAFileError,
    Seal,
    SealError,
    open_regular,
    write_whole,
)

ARRAY = "array-"
"""Prefix of the name of a file with a large array of the data; the array's number follows."""
REST = "rest.pt"
"""File of a checkpoint with everything that is no tensor of the model or the optimizer. It is
written last, so its presence shows that the checkpoint is whole."""


_JOB = "job.json"
FAULT, REPORT, LAUNCHER, FOLLOWED = "fault", "report", "launcher", "followed"
"""Purposes that files are sealed for."""
_END_OF_LOG = 1 << 20
"""Number of bytes at the end of what ranks print that are searched."""

SAVE_EVERY_S = 30.0
_FAILED = re.compile(r"^ +rank +: (\d+) \(local_rank: \d+\)\n +exitcode +: (-?\d+)", re.MULTILINE)
"""A rank in the summary that ``torch.distributed.run`` prints; the one that failed first is the
last."""
_ENDED = str(-signal.SIGTERM)
"""Exit code of a rank that the launcher has ended because another one failed."""


@dataclass(frozen=True)
class Job:
    """The job of the workers."""

    layout: str
    """The layout, as `workbench.modes.layout.layout.Layout` prints it."""
    until_step: int | None
    until_epoch: int | None
    """Where the run ends by itself, counted from its very first step and epoch."""
    save_every_s: float | None = SAVE_EVERY_S
    """Minimum time between checkpoints while the run continues; None: it writes none."""
    companions: tuple[str, ...] = ()
    """Modules that depend on ranks, while ranks do not depend on them: each has
    ``accompany(rank)``, a context manager in which every rank trains."""


class Folder:
    """The files of one session of parallel training, in a run's directory.

    Its paths are valid as long as this object exists, and in this process only.

    Args:
        path: path of the folder, which may be made later.
        seal: seal of the files in it; None: that of this process.
        held: the folder, if this process has made it.
    """

    def __init__(
        self, path: Path, seal: Seal | None = None, held: HeldFolder | None = None
    ) -> None:
        self.shown = path.absolute()
        """The path that the user, and another process, knows it by."""
        self.seal = seal or Seal.of_this_process()
        self._held = held

    @property
    def path(self) -> Path:
        """The path for this process, once it exists, no matter who moves it meanwhile."""
        if self._held is None:
            try:
                self._held = HeldFolder(self.shown)
            except OSError:
                return self.shown
        return self._held.path

    @property
    def payload(self) -> Path:
        """The training (`workbench.parallel.transfer.job_pickle`)."""
        return self.path / "payload.pkl"

    @property
    def start(self) -> Path:
        """The checkpoint that workers begin with."""
        return self.path / "start"

    @property
    def last(self) -> Path:
        """The newest checkpoint that the workers wrote."""
        return self.path / "last"

    @property
    def control(self) -> Path:
        """Commands for the workers, one per line."""
        return self.path / "control.jsonl"

    @property
    def events(self) -> Path:
        """Messages that rank 0 reports, one per line."""
        return self.path / "events.jsonl"

    @property
    def history(self) -> Path:
        """History of the run before this session (`workbench.parallel.session.history`)."""
        return self.path / "history"

    @property
    def launcher(self) -> Path:
        """Which process supervises the ranks."""
        return self.path / "launcher.json"

    @property
    def followed(self) -> Path:
        """Number of events that a kernel had read about a second ago."""
        return self.path / "followed"

    @property
    def log(self) -> Path:
        """What all workers print."""
        return self.path / "log.txt"

    @property
    def latest(self) -> Path | None:
        """The newest whole checkpoint, of the workers or of the start; None where there is none."""
        for found in (self.last, self.last.with_name("last.before"), self.start):
            if (found / REST).is_file():
                return found
        return None

    @property
    def is_there(self) -> bool:
        """Whether the folder exists, and has not been removed."""
        try:
            return self.path.is_dir() and self.path.stat().st_nlink > 0
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the folder with everything in it, as far as possible."""
        for one in self.path.iterdir() if self.is_there else ():
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one, ignore_errors=True)
            else:
                one.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.shown.rmdir()

    def write_job(self, job: Job) -> None:
        """Write what is to be done."""
        content = {**asdict(job), "session": self.seal.session}
        self.seal.of_no_session.write_json(self.path / _JOB, content, "job")

    def read_job(self) -> Job:
        """Read what is to be done.

        Raises:
            SealError: another user may have written it, or it belongs to another session.
        """
        found = self._read_job()
        if found.pop("session") != self.seal.session and self.seal.checks:
            raise SealError(errno.EACCES, "it belongs to another session", str(self.shown / _JOB))
        found["companions"] = tuple(found.get("companions", ()))
        return Job(**found)

    def take_session(self) -> None:
        """Adopt the session that its job was sealed for; for a folder that was found.

        Raises:
            SealError: another user may have written the job.
        """
        session = str(self._read_job()["session"])
        self.seal = self.seal.for_session(session)

    def _read_job(self) -> dict[str, Any]:
        return self.seal.of_no_session.read_json(self.path / _JOB, "job")

    def clear(self, *, checkpoints: bool = True) -> None:
        """Remove large files once the training is back in the kernel; messages and the log stay.

        Without its payload, no kernel can attach to it any more.

        Args:
            checkpoints: whether checkpoints are removed as well; those of ranks that died are kept.
        """
        before = self.last.with_name("last.before")
        for path in (self.start, self.last, before, self.history) if checkpoints else ():
            shutil.rmtree(path, ignore_errors=True)
        for path in (self.payload, *self.path.glob(f"{ARRAY}*")):
            path.unlink(missing_ok=True)

    def pid(self, rank: int) -> Path:
        """File with the process id of a rank."""
        return self.path / f"rank-{rank}.pid"

    def record_pid(self, rank: int) -> None:
        """Record this process's id as that of the rank."""
        write_whole(self.pid(rank), str(os.getpid()).encode())

    def report(self, rank: int) -> Path:
        """File with the report of a rank (`workbench.parallel.exchange.rank_reports`)."""
        return self.path / f"rank-{rank}.report.json"

    def last_printed_line(self) -> str:
        """Return the last line that was printed, as a sentence; ``""`` if there is none."""
        lines = self._printed().split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{last[:300].rstrip('.')}." if last else ""

    @property
    def log_shown(self) -> Path:
        """The log, by the path that the user knows."""
        return self.shown / self.log.name

    @property
    def failed(self) -> set[int]:
        """The ranks that the launcher reports as failed, not those it ended because of them."""
        found: list[tuple[str, str]] = _FAILED.findall(self._printed())
        return {int(rank) for rank, code in found if code != _ENDED or (rank, code) == found[-1]}

    def _printed(self) -> str:
        """Return the end of the log, which may have any size."""
        try:
            with open_regular(self.log) as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - _END_OF_LOG))
                return stream.read(_END_OF_LOG).decode("utf-8", "replace")
        except (FileNotFoundError, NotAFileError):
            return ""

    def fault(self, rank: int) -> Path:
        """File in which a rank records the error that ended it."""
        return self.path / f"rank-{rank}.error.json"

    def faults(self) -> dict[int, dict[str, Any]]:
        """Return the errors that ended ranks, by rank."""
        found: dict[int, dict[str, Any]] = {}
        for path in sorted(self.path.glob("rank-*.error.json")):
            rank = int(path.name.removeprefix("rank-").removesuffix(".error.json"))
            with contextlib.suppress(OSError):  # another user may have written anything there
                found[rank] = self.seal.read_json(path, FAULT)
        return found
