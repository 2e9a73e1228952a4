"""Compilations of the ranks of a parallel training, for the report of its experiment.

Every rank compiles for itself, and all ranks compile the same except for their part of the data.
Rank 0 listens as the kernel does, and stores what it recorded in a file next to its other reports;
the kernel combines that and its own recordings in one report.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.dynamo.listen.graph_breaks import Break, Place
from workbench.dynamo.listen.model_owners import own
from workbench.dynamo.listen.recorder import Compilation, Generated, Recorder, listen, unlisten
from workbench.dynamo.listen.regions import Region
from workbench.trust import Seal

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.parallel.rank.rank import Rank

COMPANION = __name__
"""Companion module of ranks that compile (`workbench.parallel.exchange.files.Job`)."""
_FILE = "rank-0.compiled.json"
_EVERY_S = 1.0
_OWNER = "rank"

log = logging.getLogger("workbench")


def companions(training: Training) -> tuple[str, ...]:
    """Return the companion modules of the ranks of ``training``."""
    return (COMPANION,) if training.modeset.compiled else ()


@contextmanager
def accompany(rank: Rank) -> Generator[None]:
    """Write what rank 0 compiles inside the block to its file, about once a second."""
    if not rank.leads:
        yield
        return
    path, recorder, done = rank.folder.path / _FILE, listen(), threading.Event()
    seal = rank.folder.seal.of_no_session
    own(rank.training.model, _OWNER)
    written = 0

    def write_new() -> None:
        nonlocal written
        if (num_events := recorder.num_events) == written:
            return
        try:
            _write(path, recorder, seal)
            written = num_events
        except Exception:
            # a full disk, or an unknown format of torch's trace: not an error of the training
            log.exception("what rank 0 compiled could not be written to %s", path)

    def write_regularly() -> None:
        while not done.wait(_EVERY_S):
            write_new()

    thread = threading.Thread(
        target=write_regularly, name="workbench: what is compiled", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        write_new()
        unlisten()


def compilations_of_ranks(folder: Path, *, newest: bool = False) -> list[Compilation]:
    """Return what ranks of an experiment compiled, session by session, the oldest first.

    Args:
        folder: the folder of all sessions.
        newest: whether to return only those of the last session.
    """
    sessions = _sessions(folder)
    return [
        compilation
        for session in (sessions[-1:] if newest else sessions)
        for compilation in _read(session / _FILE)
    ]


def ranks_wrote(folder: Path) -> tuple[str, int]:
    """Return the name of the last session, and when its file was written (ns); 0 if not yet."""
    sessions = _sessions(folder)
    if not sessions:
        return "", 0
    try:
        return sessions[-1].name, (sessions[-1] / _FILE).stat().st_mtime_ns
    except OSError:
        return sessions[-1].name, 0


def _sessions(folder: Path) -> list[Path]:
    numbered = [path for path in folder.glob("*") if path.name.isdigit()]
    return sorted(numbered, key=lambda path: int(path.name))


def _write(path: Path, recorder: Recorder, seal: Seal) -> None:
    seal.write_json(path, [_plain(one) for one in recorder.compilations(0)], _FILE)


def _plain(one: Compilation) -> dict[str, Any]:
    """Return it without what was parsed from generated code, which is parsed again."""
    generated = [replace(made, module=None) for made in one.generated]
    return {**asdict(replace(one, generated=generated, caches=Counter())), "caches": one.caches}


def _read(path: Path) -> Iterator[Compilation]:
    seal = Seal.of_this_process().of_no_session
    try:
        stored: list[dict[str, Any]] = seal.read_json(path, _FILE)
    except OSError:  # nothing was compiled, the run's folder is gone, or another user wrote it
        return
    for one in stored:
        yield _compilation(one, path.parent.name)


def _compilation(stored: Mapping[str, Any], session: str) -> Compilation:
    fields: dict[str, Any] = {
        "number": -1,  # no number of this process: the order is given by time
        "region": _region(stored["region"], session),
        "place": _place(stored["place"]),
        "caches": Counter(stored["caches"]),
        "breaks": [_break(one) for one in stored["breaks"]],
        "reasons": tuple(stored["reasons"]),
        "generated": [Generated(**one) for one in stored["generated"]],
    }
    return Compilation(**{**stored, **fields})


def _region(stored: Mapping[str, Any] | None, session: str) -> Region | None:
    """Include the session in its key: another process may use the same name for another region."""
    if stored is None:
        return None
    file, name, line = stored["key"]
    fields: dict[str, Any] = {
        "key": (file, f"{name} of ranks {session}", line),
        "paths": tuple(stored["paths"]),
        "parameters": tuple(stored["parameters"]),
        "place": _place(stored["place"]),
        "where": "rank 0",
    }
    return Region(**{**stored, **fields})


def _break(stored: Mapping[str, Any]) -> Break:
    fields: dict[str, Any] = {"place": _place(stored["place"]), "hints": tuple(stored["hints"])}
    return Break(**{**stored, **fields})


def _place(stored: list[Any] | None) -> Place | None:
    return None if stored is None else (stored[0], stored[1], stored[2])
