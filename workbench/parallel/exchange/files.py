"""Where workers and the kernel that started them meet: a folder, and the names of its files.

What is in it is unpickled and obeyed, so each process holds the folder open from the beginning, and
every file but the log has the session's seal (`workbench.trust`).
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
"""Name of a file with a large array of the data, before its number."""
REST = "rest.pt"
"""In a checkpoint, what is no tensor of the model or the optimizer. It is written last, so its
presence says that the checkpoint is whole."""


_JOB = "job.json"
FAULT, REPORT, LAUNCHER, FOLLOWED = "fault", "report", "launcher", "followed"
"""What sealed files are for."""
_END_OF_LOG = 1 << 20
"""Of what ranks print, so many bytes are looked through."""

SAVE_EVERY_S = 30.0
_FAILED = re.compile(r"^ +rank +: (\d+) \(local_rank: \d+\)\n +exitcode +: (-?\d+)", re.MULTILINE)
"""In the summary that ``torch.distributed.run`` prints; the one that failed first is its last."""
_ENDED = str(-signal.SIGTERM)
"""Exit code of a rank that the launcher has ended for another's sake."""


@dataclass(frozen=True)
class Job:
    """What workers are to do."""

    layout: str
    """As `workbench.modes.layout.layout.Layout` prints it."""
    until_step: int | None
    until_epoch: int | None
    """Where the run ends by itself, counted from its very first step and epoch."""
    save_every_s: float | None = SAVE_EVERY_S
    """The least time between checkpoints of a run that goes on; None: it writes none."""
    companions: tuple[str, ...] = ()
    """Modules that know of ranks, and ranks not of them: each has ``accompany(rank)``, a context
    manager in which every rank trains."""


class Folder:
    """The files of one stretch of parallel training, in a run's directory.

    Its paths are good for as long as this object is there, and in this process.

    Args:
        path: of the folder, which may be made later.
        seal: of what is in it; None: that of this process.
        held: the folder, where this process has made it.
    """

    def __init__(
        self, path: Path, seal: Seal | None = None, held: HeldFolder | None = None
    ) -> None:
        self.shown = path.absolute()
        """What a person, and another process, knows it by."""
        self.seal = seal or Seal.of_this_process()
        self._held = held

    @property
    def path(self) -> Path:
        """Where this process finds it, whoever moves it meanwhile, once it is there."""
        if self._held is None:
            try:
                self._held = HeldFolder(self.shown)
            except OSError:
                return self.shown
        return self._held.path

    @property
    def payload(self) -> Path:
        """What is trained (`workbench.parallel.transfer.job_pickle`)."""
        return self.path / "payload.pkl"

    @property
    def start(self) -> Path:
        """The checkpoint that workers begin with."""
        return self.path / "start"

    @property
    def last(self) -> Path:
        """The newest checkpoint that they wrote."""
        return self.path / "last"

    @property
    def control(self) -> Path:
        """Commands for the workers, one a line."""
        return self.path / "control.jsonl"

    @property
    def events(self) -> Path:
        """What rank 0 tells, one message a line."""
        return self.path / "events.jsonl"

    @property
    def history(self) -> Path:
        """What the run was before (`workbench.parallel.session.history`)."""
        return self.path / "history"

    @property
    def launcher(self) -> Path:
        """Which process looks after the ranks."""
        return self.path / "launcher.json"

    @property
    def followed(self) -> Path:
        """How many of the events a kernel has read, about a second ago."""
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
        """Whether nobody has removed it."""
        try:
            return self.path.is_dir() and self.path.stat().st_nlink > 0
        except OSError:
            return False

    def remove(self) -> None:
        """Remove it with all that is in it, as far as that can be."""
        for one in self.path.iterdir() if self.is_there else ():
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one, ignore_errors=True)
            else:
                one.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.shown.rmdir()

    def write_job(self, job: Job) -> None:
        """Say what is to be done."""
        said = {**asdict(job), "session": self.seal.session}
        self.seal.of_no_session.write_json(self.path / _JOB, said, "job")

    def read_job(self) -> Job:
        """What is to be done.

        Raises:
            SealError: somebody else may have said it, or of another session.
        """
        found = self._read_job()
        if found.pop("session") != self.seal.session and self.seal.checks:
            raise SealError(errno.EACCES, "it belongs to another session", str(self.shown / _JOB))
        found["companions"] = tuple(found.get("companions", ()))
        return Job(**found)

    def take_session(self) -> None:
        """Go by the session that its job was sealed for: of a folder that was found.

        Raises:
            SealError: somebody else may have written the job.
        """
        session = str(self._read_job()["session"])
        self.seal = self.seal.for_session(session)

    def _read_job(self) -> dict[str, Any]:
        return self.seal.of_no_session.read_json(self.path / _JOB, "job")

    def clear(self, *, checkpoints: bool = True) -> None:
        """Remove what is large, once the training is home: what was told and printed stays.

        Without its payload nobody attaches to it any more.

        Args:
            checkpoints: whether those go as well; of ranks that died they are kept.
        """
        before = self.last.with_name("last.before")
        for path in (self.start, self.last, before, self.history) if checkpoints else ():
            shutil.rmtree(path, ignore_errors=True)
        for path in (self.payload, *self.path.glob(f"{ARRAY}*")):
            path.unlink(missing_ok=True)

    def pid(self, rank: int) -> Path:
        """Number of a rank's process."""
        return self.path / f"rank-{rank}.pid"

    def introduce(self, rank: int) -> None:
        """Say that this process is the rank."""
        write_whole(self.pid(rank), str(os.getpid()).encode())

    def report(self, rank: int) -> Path:
        """What a rank tells of itself (`workbench.parallel.exchange.rank_reports`)."""
        return self.path / f"rank-{rank}.report.json"

    def last_words(self) -> str:
        """The last line that was printed, as a sentence; ``""`` where nothing was."""
        lines = self._printed().split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{said[:300].rstrip('.')}." if said else ""

    @property
    def log_shown(self) -> Path:
        """The log, as a person finds it."""
        return self.shown / self.log.name

    @property
    def failed(self) -> set[int]:
        """The ranks that failed by the launcher's account: not those it ended for their sake."""
        said = self._printed()
        found: list[tuple[str, str]] = _FAILED.findall(said)
        return {int(rank) for rank, code in found if code != _ENDED or (rank, code) == found[-1]}

    def _printed(self) -> str:
        """The end of the log, which is of any size."""
        try:
            with open_regular(self.log) as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - _END_OF_LOG))
                return stream.read(_END_OF_LOG).decode("utf-8", "replace")
        except (FileNotFoundError, NotAFileError):
            return ""

    def fault(self, rank: int) -> Path:
        """Where a rank writes down what it died of."""
        return self.path / f"rank-{rank}.error.json"

    def faults(self) -> dict[int, dict[str, Any]]:
        """What ranks died of, by rank."""
        found: dict[int, dict[str, Any]] = {}
        for path in sorted(self.path.glob("rank-*.error.json")):
            rank = int(path.name.removeprefix("rank-").removesuffix(".error.json"))
            with contextlib.suppress(OSError):  # nobody knows what somebody else wrote there
                found[rank] = self.seal.read_json(path, FAULT)
        return found
