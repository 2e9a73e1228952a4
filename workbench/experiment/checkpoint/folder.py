"""A checkpoint in a run directory: a folder that is whole, or is not there.

| file | content |
| --- | --- |
| ``__0_0.distcp``, ``.metadata`` | the tensors, as `torch.distributed.checkpoint` writes them |
| ``training.json`` | the rest in plain values, and a table of the tensors |
| ``objects.pt`` | what has to be pickled (a schedule with functions in it), if anything |
| ``checkpoint.json`` | step, epoch, time, metrics; size and checksum of the other files |

It is written next to its place, flushed to the disk, and moved there: a process that is killed, and
a disk that is full, leave no part of one. Whether it is whole is decided by its contents: every
file has the size and, when it is loaded, the checksum that ``checkpoint.json`` says. The newest is
the one with the highest serial number, so a clock that goes back changes nothing.

Anybody may have written a run directory, and reading one runs nothing. ``.metadata``, a pickle, is
there for torch and is not read. Tensors are read with ``weights_only=True``. ``objects.pt`` has the
seal of the user who wrote it, and is unpickled for that user alone, unless the reader trusts it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pickle
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import cloudpickle
import torch

from workbench.experiment.checkpoint.plain_values import DamagedError, Reader, Writer
from workbench.torch_private.tensor_table import Table, TableError, extent, from_values, to_values
from workbench.trust import Seal, SealError, error_message, open_regular, read_regular
from workbench.trust.opening import as_shown

SCHEMA = "workbench.checkpoint/1"
MANIFEST = "checkpoint.json"
REST, OBJECTS = "training.json", "objects.pt"
DAMAGED = "damaged-"
"""Prefix of the name of a checkpoint that was set aside."""
_MOST_MANIFEST = 1 << 20
_MOST_REST = 1 << 30
_MOST_FILES = 100_000
_MOST_FOLDERS = 10_000
_CHUNK = 1 << 24
_OF_REST = "rest."
"""Prefix of the names of tensors that are in the plain values."""


class CheckpointError(OSError):
    """A checkpoint cannot be written, or cannot be read; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    path: Path
    serial: int
    """Counts the checkpoints of a run, from 1."""
    step: int
    epoch: int
    """Number of completed epochs."""
    created_at: float
    """Unix time, in seconds."""
    metrics: dict[str, float]
    """Values of the run's own scalars that were logged at that step."""
    monitored: tuple[str, str, float] | None
    """Name, direction and value of the metric that the run goes by, if an epoch ended there."""
    best: tuple[str, float, int] | None
    """Name, value and step of the best epoch until then."""
    files: dict[str, tuple[int, int]]
    """Name -> (size in bytes, CRC-32)."""

    def is_intact(self) -> bool:
        """Whether all of its files are as they were written; reads all of them."""
        try:
            return all(_sum_of(self.path / name) == was for name, was in self.files.items())
        except OSError:
            return False

    def read(self, *, trust: bool = False) -> dict[str, Any]:
        """Return everything but the tensors of the training.

        Args:
            trust: whether objects that another user may have written are unpickled, which runs what
                is in them.

        Raises:
            CheckpointError: a file is damaged, or has objects that are not trusted.
        """
        found = self.plain()
        if OBJECTS in self.files:
            found |= self._objects(trust=trust)
        return found

    def plain(self) -> dict[str, Any]:
        """Return what of it is stored as plain values.

        Raises:
            CheckpointError: a file is damaged.
        """
        stored = {
            name: torch.empty(entry.size, dtype=entry.dtype)
            for name, entry in self.table.items()
            if name.startswith(_OF_REST)
        }
        self.load(stored)
        try:
            reader = Reader(lambda number: stored[f"{_OF_REST}{number}"])
            return cast("dict[str, Any]", reader.decode(self._rest["values"]))
        except (DamagedError, LookupError) as error:
            raise self._damaged(f"{REST} cannot be read: {error_message(error)}") from error

    @cached_property
    def table(self) -> Table:
        """The tensors, all of whose bytes are there.

        Raises:
            CheckpointError: the table is damaged.
        """
        try:
            found = from_values(self._rest["tensors"])
        except (TableError, LookupError) as error:
            raise self._damaged(f"{REST} has no table of tensors: {error}") from error
        for name, end in extent(found).items():
            if self.files.get(name, (0, 0))[0] < end:
                raise self._damaged(f"{name} has fewer bytes than {REST} says")
        return found

    def load(self, into: dict[str, torch.Tensor]) -> None:
        """Read tensors into those given by name; no pickle of objects is read.

        Raises:
            CheckpointError: one is missing, has another shape, or cannot be read.
        """
        for name, tensor in into.items():
            entry = self.table.get(name)
            if entry is None or entry.size != tuple(tensor.shape):
                size = "is missing" if entry is None else f"has shape {entry.size}"
                raise self._damaged(f"{name} {size}, and {tuple(tensor.shape)} is needed")
        for name in sorted({one.file for key in into for one in self.table[key].chunks}):
            self._check_sum(name)
        from workbench.torch_private.tensor_files import read_tensors  # takes half as long as torch

        try:
            read_tensors(self.path, self.table, into)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise self._damaged("its tensors are not as they were written") from error

    @cached_property
    def _rest(self) -> dict[str, Any]:
        data = self._checked(REST, _MOST_REST)
        try:
            return dict(json.loads(data))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"{REST} cannot be read: {error_message(error)}") from error

    def _objects(self, *, trust: bool) -> dict[str, Any]:
        self._check_sum(OBJECTS)
        own = Seal.of_this_process().of_no_session
        try:
            seal = Seal.unchecked() if trust else own
            data = seal.read(self.path / OBJECTS, _purpose(self.files[REST]))
        except SealError as error:
            raise CheckpointError(
                errno.EACCES,
                f"{OBJECTS} holds objects that have to be unpickled, and was not written by you on "
                "this machine: unpickling runs what is in it. If you know who wrote it, load it "
                "with trust=True",
                as_shown(self.path),
            ) from error
        try:
            return cast("dict[str, Any]", pickle.loads(data))  # noqa: S301 - sealed by this user, or trusted
        except Exception as error:
            raise CheckpointError(
                errno.EINVAL,
                f"{OBJECTS} cannot be unpickled here: {error_message(error)}",
                as_shown(self.path),
            ) from error

    def _checked(self, name: str, most: int) -> bytes:
        data = read_regular(self.path / name, most)
        if (len(data), zlib.crc32(data)) != self.files.get(name):
            raise self._damaged(f"{name} is not as it was written")
        return data

    def _check_sum(self, name: str) -> None:
        if _sum_of(self.path / name) != self.files.get(name):
            raise self._damaged(f"{name} is not as it was written")

    def _damaged(self, problem: str) -> CheckpointError:
        return CheckpointError(errno.EINVAL, problem, as_shown(self.path))


@dataclass(frozen=True)
class Contents:
    """What a checkpoint is to hold: copies, which no later step changes."""

    tensors: dict[str, torch.Tensor]
    """Name -> tensor on the CPU."""
    values: dict[str, Any]
    """Plain values; their tensors are with the others."""
    objects: bytes
    """Pickled; empty if there is none."""
    step: int
    epoch: int
    metrics: dict[str, float]
    monitored: tuple[str, str, float] | None = None
    best: Sequence[Any] | None = None

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, torch.Tensor],
        rest: dict[str, Any],
        *,
        step: int,
        epoch: int,
        metrics: Mapping[str, float],
        monitored: tuple[str, str, float] | None = None,
        best: Sequence[Any] | None = None,
    ) -> Contents:
        """Copy what is given.

        Args:
            tensors: name -> tensor, on any device.
            rest: everything else.
            step: number of steps done.
            epoch: number of epochs completed.
            metrics: value of every scalar; those that are not finite are left out.
            monitored: name, direction and value of the metric that the run goes by.
            best: name, value and step of the best epoch.

        Raises:
            Exception: ``rest`` holds something that cannot be pickled.
        """
        writer = Writer()
        plain, other = writer.split(rest)
        of_rest = {f"{_OF_REST}{at}": tensor for at, tensor in enumerate(writer.tensors)}
        every = {**tensors, **of_rest}
        return cls(
            {name: tensor.detach().to("cpu", copy=True) for name, tensor in every.items()},
            plain,
            cloudpickle.dumps(other) if other else b"",
            step,
            epoch,
            {name: value for name, value in metrics.items() if math.isfinite(value)},
            monitored,
            best and tuple(best[:3]),
        )


def write(folder: Path, contents: Contents, serial: int) -> Checkpoint:
    """Write a checkpoint of one process into ``folder``, which holds all of a run.

    Args:
        folder: the folder of the run's checkpoints; created if it is not there.
        contents: what it holds.
        serial: number of the checkpoint.

    Raises:
        CheckpointError: it cannot be written; nothing of it is left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{secrets.token_hex(8)}.part"
        draft.mkdir()
    except OSError as error:
        raise _not_written(folder, error) from error
    from workbench.torch_private.tensor_files import write_tensors  # takes half as long as torch

    try:
        table = write_tensors(draft, contents.tensors)
        return _finished(draft, folder, contents, table, serial)
    except (OSError, RuntimeError) as error:  # the second: torch's own for a disk that is full
        raise _not_written(folder, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _finished(
    draft: Path, folder: Path, contents: Contents, table: Table, serial: int
) -> Checkpoint:
    """Complete a folder in which the tensors are, and move it to its place."""
    rest = {"values": contents.values, "tensors": to_values(table)}
    (draft / REST).write_text(json.dumps(rest))
    if contents.objects:
        seal = Seal.of_this_process().of_no_session
        seal.write(draft / OBJECTS, contents.objects, _purpose(_sum_of(draft / REST)))
    files = {path.name: _sum_of(path) for path in sorted(draft.iterdir())}
    facts: dict[str, Any] = {
        "schema": SCHEMA, "serial": serial, "step": contents.step, "epoch": contents.epoch,
        "created_at": time.time(), "metrics": contents.metrics,
        "monitored": contents.monitored, "best": contents.best,
        "files": {name: list(size) for name, size in files.items()},
    }  # fmt: skip
    (draft / MANIFEST).write_text(json.dumps(facts, indent=1))
    for path in draft.iterdir():
        _to_disk(path)
    _to_disk(draft)
    place = folder / f"step-{contents.step:08d}"
    if os.path.lexists(place):
        place = folder / f"{place.name}-{serial}"
    draft.rename(place)
    _to_disk(folder)
    return _checkpoint(place, facts)


def found_in(folder: Path) -> list[Checkpoint]:
    """Return all whole checkpoints in a folder, the newest first; what else is there is ignored."""
    found = [one for path in _folders(folder) if (one := at(path)) is not None]
    return sorted(found, key=lambda one: one.serial, reverse=True)


def at(path: Path) -> Checkpoint | None:
    """Return the checkpoint at ``path``; None if there is none, or it is not whole."""
    try:
        facts = json.loads(read_regular(path / MANIFEST, _MOST_MANIFEST))
        one = _checkpoint(path, facts)
        for name, (size, _) in one.files.items():
            with open_regular(path / name) as stream:
                if os.fstat(stream.fileno()).st_size != size:
                    return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return one


def schema_of(path: Path) -> str:
    """Return the schema of a checkpoint that may be of another version; ``""`` if it has none."""
    try:
        return str(json.loads(read_regular(path / MANIFEST, _MOST_MANIFEST))["schema"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return ""


def remove(checkpoint: Checkpoint) -> None:
    """Remove a checkpoint; at no moment is a part of it taken for one."""
    gone = checkpoint.path.with_name(f".{secrets.token_hex(8)}.part")
    with contextlib.suppress(OSError):
        checkpoint.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def copy_to(checkpoint: Checkpoint, folder: Path) -> None:
    """Have the same checkpoint in the folder of another run; its files never change."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{secrets.token_hex(8)}.part"
    draft.mkdir()
    for name in (*checkpoint.files, MANIFEST):
        with open_regular(checkpoint.path / name) as source, (draft / name).open("xb") as target:
            shutil.copyfileobj(source, target)
    for path in (*draft.iterdir(), draft):
        _to_disk(path)
    draft.rename(folder / checkpoint.path.name)
    _to_disk(folder)


def set_aside(checkpoint: Checkpoint) -> None:
    """Keep a damaged checkpoint under a name by which it is not found any more."""
    name = f"{DAMAGED}{secrets.token_hex(2)}-{checkpoint.path.name}"
    with contextlib.suppress(OSError):
        checkpoint.path.rename(checkpoint.path.with_name(name))


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed have left; nobody else may write meanwhile."""
    for path in _folders(folder, parts=True):
        shutil.rmtree(path, ignore_errors=True)


def _checkpoint(path: Path, facts: Any) -> Checkpoint:
    if facts["schema"] != SCHEMA:
        raise ValueError(facts["schema"])
    files = {str(name): (int(size), int(crc)) for name, (size, crc) in facts["files"].items()}
    if REST not in files or len(files) > _MOST_FILES:
        raise ValueError("files are missing")
    if any(os.sep in name or name in ("..", MANIFEST) for name in files):
        raise ValueError("a file elsewhere")
    serial, step, epoch = (int(facts[name]) for name in ("serial", "step", "epoch"))
    if min(serial, step, epoch) < 0:
        raise ValueError("a count below zero")
    metrics = {str(name): float(value) for name, value in facts["metrics"].items()}
    by, top = facts["monitored"], facts["best"]
    monitored = by and (str(by[0]), "max" if by[1] == "max" else "min", float(by[2]))
    best = top and (str(top[0]), float(top[1]), int(top[2]))
    return Checkpoint(
        path, serial, step, epoch, float(facts["created_at"]), metrics, monitored, best, files
    )


def _folders(folder: Path, *, parts: bool = False) -> Iterator[Path]:
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return  # a link of another user's
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_FOLDERS:
                    return
                is_part = entry.name.startswith(".") and entry.name.endswith(".part")
                if entry.name.startswith(DAMAGED):
                    continue
                if is_part is parts and entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
    except OSError:
        return


def _sum_of(path: Path) -> tuple[int, int]:
    size = crc = 0
    with open_regular(path) as stream:
        while chunk := stream.read(_CHUNK):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return size, crc


def _to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk, where the file system can say so."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # folders of some network mounts
            raise
    finally:
        os.close(descriptor)


def _purpose(rest: tuple[int, int]) -> str:
    """Objects are those of one checkpoint: of the one with these plain values."""
    return f"objects of a checkpoint, {rest[0]} {rest[1]}"


def _not_written(folder: Path, error: BaseException) -> CheckpointError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CheckpointError(errno.EIO, f"no checkpoint was written: {why}", as_shown(folder))
