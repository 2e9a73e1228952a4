"""The state of a training as a distributed checkpoint: saved by any number of ranks, loaded by any.

Tensors go through `torch.distributed.checkpoint`, so that a sharded one is written by the ranks
that hold it and read into whatever sharding it is loaded for; a single process needs no process
group for either. The rest (scheduler, scaler, random states, position in the data) is the same on
every rank and is written once, next to it.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from workbench.experiment.checkpoint import training_state
from workbench.experiment.data.dataset_generators import Held, held_by
from workbench.modes.layout.layout import reshard
from workbench.parallel.data.rank_batches import RankSource
from workbench.parallel.exchange.files import REST
from workbench.parallel.sentences import listed
from workbench.parallel.transfer.job_pickle import from_known, to_known
from workbench.parallel.transfer.object_state import Changes, differing
from workbench.torch_private.tensor_files import of_torch
from workbench.trust import NotAFileError, Seal, SealError, open_regular, read_regular
from workbench.trust.opening import as_shown

if TYPE_CHECKING:
    from workbench.experiment.data.sources import DataSource
    from workbench.experiment.training import Training


_METADATA = ".metadata"
"""Torch's own name for its table of a checkpoint's tensors."""
_MOST_METADATA = 1 << 32
_BEFORE = ".before"


class NotSavedError(OSError):
    """A checkpoint could not be written, on any rank: the disk is full, or the folder is gone."""


class NotLoadedError(OSError):
    """A checkpoint exists, but its tensors cannot be read: a file is gone, or was truncated."""


_CHANGED = "its tensors are not as they were written"
_THEMSELVES = (KeyboardInterrupt, SystemExit, MemoryError, torch.OutOfMemoryError, SealError)
"""What torch wraps in its `CheckpointException`, and is not caused by the checkpoint."""


def save(training: Training, folder: Path, seal: Seal | None = None) -> None:
    """Write the state to ``folder``, which appears atomically; every rank must call it.

    What was in ``folder`` before is replaced.

    Args:
        training: the training whose state is written.
        folder: the checkpoint.
        seal: seal of the session; None: that of this process.

    Raises:
        NotSavedError: it cannot be written; raised on all ranks, and what was there before stays.
    """
    draft = folder.with_name(f"{folder.name}.part")
    first = not dist.is_initialized() or dist.get_rank() == 0
    reshard(training.model)
    objects = _objects(training)
    tensors, apart = training_state.tensors(training)

    def begin() -> None:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)

    def finish() -> None:
        on_cpu = {name for name, tensor in tensors.items() if tensor.device.type == "cpu"}
        rest = {
            **_rest(training),
            "objects": objects,
            "moments": apart["moments"],
            "on_cpu": on_cpu,
        }
        rest["metadata"] = sha256((draft / _METADATA).read_bytes()).digest()
        written = io.BytesIO()
        torch.save(rest, written)
        (seal or Seal.of_this_process()).write(draft / REST, written.getvalue(), _what(folder))
        before = folder.with_name(f"{folder.name}{_BEFORE}")  # `Folder.latest` finds it meanwhile
        shutil.rmtree(before, ignore_errors=True)
        if folder.exists():
            folder.replace(before)
        draft.replace(folder)
        shutil.rmtree(before, ignore_errors=True)

    try:
        _by_first_rank(begin)
        with _quiet():
            state_dict_saver.save(tensors, checkpoint_id=draft, no_dist=not dist.is_initialized())
        _by_first_rank(finish)
    except (OSError, CheckpointException) as error:
        if first:
            shutil.rmtree(draft, ignore_errors=True)
        problem = f"no checkpoint could be written to {folder}: {_why(error)}"
        raise NotSavedError(_as_shown(problem, folder)) from error


def load(training: Training, folder: Path, seal: Seal | None = None) -> None:
    """Load the state in ``folder``; where there are several ranks, every one must call it.

    Everything but tensors is unpickled, and so is torch's own table of the tensors: both have the
    seal of the session. The tensors themselves are read as such (``weights_only``), separately from
    those of the model, which are written once all are read.

    Args:
        training: the training that takes over the state.
        folder: the checkpoint.
        seal: seal of the session; None: that of this process.

    Raises:
        FileNotFoundError: there is no whole checkpoint in ``folder``.
        SealError: another user may have written it; nothing of it was run.
        NotLoadedError: its tensors are not all there, or cannot be read. The training is unchanged.
    """
    if not (folder / REST).is_file():
        problem = f"{folder} holds no whole checkpoint: {REST} is missing"
        raise FileNotFoundError(_as_shown(problem, folder))
    sealed = (seal or Seal.of_this_process()).read(folder / REST, _what(folder))
    rest = torch.load(io.BytesIO(sealed), weights_only=False, map_location="cpu")
    reader = _SealedReader(folder, rest["metadata"])
    saved = of_torch(reader.whole())
    other = training_state.other_buffers(training, saved, rest["buffers"])
    read = dict(other)
    for name, tensor in training_state.tensors_of(training.model):
        if f"model.{name}" in saved and name not in read:
            read[name] = torch.empty_like(tensor.detach())
    moments = training_state.empty_moments(training, saved, rest["on_cpu"])
    tensors: dict[str, Any] = {f"model.{name}": tensor for name, tensor in read.items()}
    tensors |= {f"optimizer.{name}.{key}": value for (name, key), value in moments.items()}
    averages = training_state.empty_averages(training, saved)
    tensors |= {f"ema.{name}": average for name, average in averages.items()}
    try:
        with _quiet():
            no_dist = not dist.is_initialized()
            state_dict_loader.load(tensors, storage_reader=reader, no_dist=no_dist)
    except CheckpointException as error:  # which is no `Exception`
        problem = f"the checkpoint {folder} cannot be read whole: {_why(error, reads=True)}"
        raise NotLoadedError(_as_shown(problem, folder)) from error
    training_state.take_tensors(training, read, other)
    training_state.take_moments(training, moments, rest["moments"])
    if training.ema is not None:
        training.ema.take(averages, rest["ema"])
    _take_rest(training, rest)


def _what(folder: Path) -> str:
    """Return what a checkpoint is sealed for: it is not accepted in another place."""
    return f"checkpoint {folder.name.removesuffix(_BEFORE)}"


class _SealedReader(FileSystemReader):
    """Unpickles torch's table of the tensors only if it is the one that was written.

    Args:
        folder: the checkpoint.
        digest: SHA-256 of that file.
    """

    def __init__(self, folder: Path, digest: bytes) -> None:
        super().__init__(folder)
        self._file, self._digest = folder / _METADATA, digest
        self.fs = _RegularFiles()

    def read_metadata(self, *_args: Any, **_options: Any) -> Metadata:
        """Read the table as torch does.

        Raises:
            SealError: another user may have written it.
        """
        data = read_regular(self._file, _MOST_METADATA)
        if not compare_digest(sha256(data).digest(), self._digest):
            raise SealError(
                errno.EACCES,
                "it is not the file that was written with this checkpoint",
                as_shown(self._file),
            )
        found: Metadata = pickle.loads(data)  # noqa: S301 - the digest of it has our seal
        storage = getattr(found, "storage_meta", None) or StorageMeta()
        storage.load_id = self.load_id
        found.storage_meta = storage
        return found

    def whole(self) -> Metadata:
        """Call `read_metadata`, and check that all bytes of the tensors are there.

        A checkpoint with a part of them is not loaded.

        Raises:
            SealError: another user may have written it.
            NotLoadedError: a file is missing, or was truncated.
        """
        folder = self._file.parent
        try:
            found = self.read_metadata()
        except (FileNotFoundError, NotAFileError) as error:
            problem = f"{folder} holds no whole checkpoint: {error.strerror}: {_METADATA}"
            raise NotLoadedError(_as_shown(problem, folder)) from error
        ends: dict[str, int] = {}
        for one in found.storage_data.values():
            name, end = one.relative_path, one.offset + one.length
            ends[name] = max(end, ends.get(name, 0))
        for name, end in ends.items():
            try:
                with open_regular(folder / name) as stream:
                    size = os.fstat(stream.fileno()).st_size
            except OSError as error:
                problem = f"{folder} holds no whole checkpoint: {error.strerror}: {name}"
                raise NotLoadedError(_as_shown(problem, folder)) from error
            if size < end:
                problem = f"{name} has {size:,} of its {end:,} bytes"
                problem = f"{folder} holds no whole checkpoint: {problem}"
                raise NotLoadedError(_as_shown(problem, folder))
        return found


class _RegularFiles(FileSystem):
    """Opens no link, and waits for no pipe."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase]:
        """Open a file as torch does, for reading."""
        if mode != "rb":
            raise ValueError(f"mode is {mode!r}; checkpoints are read here, in mode 'rb'")
        with open_regular(path) as stream:
            yield cast("io.IOBase", stream)


def _rest(training: Training) -> dict[str, Any]:
    return {
        **training_state.rest(training),
        "held": [held.read() for held in _held(training)],
        "hooks": _hooks(training),
    }


def _hooks(training: Training) -> tuple[bytes, list[str]]:
    """Return what hooks have changed on this rank, and the paths to what cannot be sent back."""
    state = training.hook_state
    if state is None or not dist.is_initialized():
        return b"", []
    changes, lost = state.changes(), list[str]()
    try:
        return to_known(changes, state.references), lost
    except Exception:  # noqa: BLE001 - a __reduce__ of the user's may raise anything
        kept: list[tuple[int, Any]] = []
        for number, change in changes:
            try:
                to_known(change, state.references)
                kept.append((number, change))
            except Exception:  # noqa: BLE001 - as above
                lost.append(state.names[number])
        return to_known(kept, state.references), lost


def _take_hooks(training: Training, changed: bytes, lost: list[str]) -> None:
    state = training.hook_state
    if state is not None and changed:
        state.take(from_known(changed, state.references))
    for name in lost:
        training.note(
            f"{name} has changed on the ranks and could not be brought back, as it cannot be "
            "pickled"
        )


def _objects(training: Training) -> Changes | None:
    """Return what the objects of a training have kept on ranks; every rank must call it."""
    if training.object_state is None or not dist.is_initialized():
        return None
    own, digests = training.object_state.changes()
    of_all: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, (digests, own.lost))
    lost = dict.fromkeys(name for _, names in of_all for name in names)
    return Changes(own.changed, differing([one for one, _ in of_all]), list(lost))


def _take_rest(training: Training, rest: dict[str, Any]) -> None:
    training_state.take_rest(training, rest)
    training.random.restore()
    for held, states in zip(_held(training), rest["held"], strict=True):
        if lost := held.write(states):
            training.note(
                f"{listed(lost)} changed on the ranks and could not be brought back: it is too "
                "large, or holds what another process cannot have"
            )
    _take_hooks(training, *rest.get("hooks", (b"", [])))
    _take_trained(training, rest["trained"], rest["trained_at_start"])
    training.train_mode.load_state(rest["train_mode"], training.optimizer)
    if training.object_state is not None:
        for note in training.object_state.take(rest["objects"]):
            training.note(note)


def _take_trained(training: Training, now: dict[str, bool], begun: dict[str, bool]) -> None:
    """Freeze and unfreeze what ranks have; what a cell has set here meanwhile stays."""
    for name, parameter in training.model.named_parameters():
        if name in now and now[name] is not begun.get(name):
            parameter.requires_grad_(now[name])
    if dist.is_initialized():
        training.trained_at_start = now


def _held(training: Training) -> list[Held]:
    """What the data sets of training and of validation hold and keep."""
    sources: tuple[DataSource | None, ...] = training.cursor.source, training.val
    return [one.drawn_from.held if isinstance(one, RankSource) else held_by(one) for one in sources]


@contextmanager
def _quiet() -> Generator[None]:
    """Silence torch's warning that there is no process group, which is what ``no_dist`` says."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _by_first_rank(write: Callable[[], None]) -> None:
    """Have rank 0 write while the others wait.

    Raises:
        OSError: it could not; on all ranks.
    """
    if not dist.is_initialized():
        return _written(write)
    failed: list[OSError | None] = [None]
    if dist.get_rank() == 0:
        try:
            _written(write)
        except OSError as error:
            failed = [error]
    dist.broadcast_object_list(failed, 0)
    if failed[0] is not None:
        raise failed[0]
    return None


def _written(write: Callable[[], None]) -> None:
    try:
        write()
    except RuntimeError as error:  # what torch.save raises on a full disk
        raise OSError(str(error)) from error


def _as_shown(text: str, folder: Path) -> str:
    """Use the path that the user knows, where a folder is named by its open descriptor."""
    return text.replace(f"{folder.parent}/", f"{os.path.realpath(folder.parent)}/")


def _why(error: OSError | CheckpointException, *, reads: bool = False) -> str:
    """Return what went wrong on which rank, in words.

    Torch's own message about tensors that it cannot read advises to load them with
    ``weights_only=False``, which runs what another user may have put there.

    Raises:
        KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, SealError: one of these occurred,
            which torch wraps like anything else.
    """
    if isinstance(error, OSError):
        return str(error)
    problems: list[str] = []
    for rank, (one, _) in error.failures.items():
        if isinstance(one, _THEMSELVES):
            raise one from error
        reason = str(one) if isinstance(one, OSError) or not reads else _CHANGED
        problems.append(f"rank {rank}: {reason}")
    return "; ".join(problems)
