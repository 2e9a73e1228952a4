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
    told = 0

    def tell() -> None:
        nonlocal told
        if (heard := recorder.heard) == told:
            return
        try:
            _write(path, recorder, seal)
            told = heard
        except Exception:
            # a full disk, or an unknown format of torch's trace: not an error of the training
            log.exception("what rank 0 compiled could not be written to %s", path)

    def tell_on() -> None:
        while not done.wait(_EVERY_S):
            tell()

    thread = threading.Thread(target=tell_on, name="workbench: what is compiled", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tell()
        unlisten()


def compilations_of_ranks(folder: Path, *, newest: bool = False) -> list[Compilation]:
    """Return what ranks of an experiment compiled, session by session, the oldest first.

    Args:
        folder: the folder of all sessions.
        newest: whether to return only those of the last session.
    """
    stretches = _stretches(folder)
    return [
        compilation
        for stretch in (stretches[-1:] if newest else stretches)
        for compilation in _read(stretch / _FILE)
    ]


def ranks_wrote(folder: Path) -> tuple[str, int]:
    """Return the name of the last session, and when its file was written (ns); 0 if not yet."""
    stretches = _stretches(folder)
    if not stretches:
        return "", 0
    try:
        return stretches[-1].name, (stretches[-1] / _FILE).stat().st_mtime_ns
    except OSError:
        return stretches[-1].name, 0


def _stretches(folder: Path) -> list[Path]:
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
        told: list[dict[str, Any]] = seal.read_json(path, _FILE)
    except OSError:  # nothing was compiled, the run's folder is gone, or another user wrote it
        return
    for one in told:
        yield _compilation(one, path.parent.name)


def _compilation(told: Mapping[str, Any], stretch: str) -> Compilation:
    fields: dict[str, Any] = {
        "number": -1,  # no number of this process: the order is given by time
        "region": _region(told["region"], stretch),
        "place": _place(told["place"]),
        "caches": Counter(told["caches"]),
        "breaks": [_break(one) for one in told["breaks"]],
        "reasons": tuple(told["reasons"]),
        "generated": [Generated(**one) for one in told["generated"]],
    }
    return Compilation(**{**told, **fields})


def _region(told: Mapping[str, Any] | None, stretch: str) -> Region | None:
    """Include the session in its key: another process may use the same name for another region."""
    if told is None:
        return None
    file, name, line = told["key"]
    fields: dict[str, Any] = {
        "key": (file, f"{name} of ranks {stretch}", line),
        "paths": tuple(told["paths"]),
        "parameters": tuple(told["parameters"]),
        "place": _place(told["place"]),
        "where": "rank 0",
    }
    return Region(**{**told, **fields})


def _break(told: Mapping[str, Any]) -> Break:
    fields: dict[str, Any] = {"place": _place(told["place"]), "hints": tuple(told["hints"])}
    return Break(**{**told, **fields})


def _place(told: list[Any] | None) -> Place | None:
    return None if told is None else (told[0], told[1], told[2])
