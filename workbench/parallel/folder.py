"""Where workers and the kernel that started them meet: a folder, and the names of its files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ARRAY = "array-"
"""Name of a file with a large array of the data, before its number."""
REST = "rest.pt"
"""In a checkpoint, what is no tensor of the model or the optimizer. It is written last, so its
presence says that the checkpoint is whole."""


SAVE_EVERY_S = 30.0
_FAILED = re.compile(r"^ +rank +: (\d+) \(local_rank: \d+\)\n +exitcode +: (-?\d+)", re.MULTILINE)
"""In the summary that ``torch.distributed.run`` prints; the one that failed first is its last."""
_ENDED = str(-signal.SIGTERM)
"""Exit code of a rank that the launcher has ended for another's sake."""


@dataclass(frozen=True)
class Job:
    """What workers are to do."""

    layout: str
    """As `workbench.modes.layout.Layout` prints it."""
    until_step: int | None
    until_epoch: int | None
    """Where the run ends by itself, counted from its very first step and epoch."""
    save_every_s: float | None = SAVE_EVERY_S
    """The least time between checkpoints of a run that goes on; None: it writes none."""
    companions: tuple[str, ...] = ()
    """Modules that know of ranks, and ranks not of them: each has ``accompany(rank)``, a context
    manager in which every rank trains."""


def write_whole(path: Path, text: str) -> None:
    """Write a file that others read meanwhile: they find it whole, or not at all.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


class Folder:
    """The files of one stretch of parallel training, in a run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def payload(self) -> Path:
        """What is trained (`workbench.parallel.payload`)."""
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
        """What the run was before (`workbench.parallel.history`)."""
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

    def write_job(self, job: Job) -> None:
        """Say what is to be done."""
        (self.path / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")

    def read_job(self) -> Job:
        """What is to be done."""
        found: dict[str, Any] = json.loads((self.path / "job.json").read_text(encoding="utf-8"))
        found["companions"] = tuple(found.get("companions", ()))
        return Job(**found)

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
        write_whole(self.pid(rank), str(os.getpid()))

    def report(self, rank: int) -> Path:
        """What a rank tells of itself (`workbench.parallel.ranks`)."""
        return self.path / f"rank-{rank}.report.json"

    def last_words(self) -> str:
        """The last line that was printed, as a sentence; ``""`` where nothing was."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return ""
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{said[:300].rstrip('.')}." if said else ""

    @property
    def failed(self) -> set[int]:
        """The ranks that failed by the launcher's account: not those it ended for their sake."""
        try:
            said = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return set()
        found: list[tuple[str, str]] = _FAILED.findall(said)
        return {int(rank) for rank, code in found if code != _ENDED or (rank, code) == found[-1]}

    def fault(self, rank: int) -> Path:
        """Where a rank writes down what it died of."""
        return self.path / f"rank-{rank}.error.json"

    def faults(self) -> dict[int, dict[str, Any]]:
        """What ranks died of, by rank."""
        found: dict[int, dict[str, Any]] = {}
        for path in sorted(self.path.glob("rank-*.error.json")):
            rank = int(path.name.removeprefix("rank-").removesuffix(".error.json"))
            found[rank] = json.loads(path.read_text(encoding="utf-8"))
        return found
