"""The state of a training as a distributed checkpoint: saved by any number of ranks, loaded by any.

Tensors go through `torch.distributed.checkpoint`, so that a sharded one is written by the ranks
that hold it and read into whatever sharding it is loaded for; a single process needs no process
group for either. The rest (scheduler, scaler, random states, position in the data) is the same on
every rank and is written once, next to it.

Moments are named by their parameter: ``optimizer.encoder.weight.exp_avg``. Torch's own
``get_optimizer_state_dict`` steps an optimizer that has no state to create some, and expects it for
every parameter; here a parameter that no step has reached yet has none, before and after.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from workbench.experiment.data.dataset_generators import Held, held_by
from workbench.modes.layout.layout import reshard
from workbench.parallel.data.rank_batches import RankSource
from workbench.parallel.exchange.files import REST
from workbench.parallel.sentences import listed
from workbench.parallel.transfer.job_pickle import from_known, to_known
from workbench.parallel.transfer.object_state import Changes, differing
from workbench.trust import NotAFileError, Seal, SealError, open_regular, read_regular
from workbench.trust.opening import as_shown

if TYPE_CHECKING:
    from workbench.experiment.data.sources import DataSource
    from workbench.experiment.recipe.schedules import Schedule
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
    tensors, plain = _optimizer_state(training)
    tensors |= {f"model.{name}": tensor for name, tensor in _tensors_of(training.model)}

    def begin() -> None:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)

    def finish() -> None:
        on_cpu = {name for name, tensor in tensors.items() if tensor.device.type == "cpu"}
        rest = {**_rest(training), "objects": objects, "moments": plain, "on_cpu": on_cpu}
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
    saved = reader.whole().state_dict_metadata
    other = _other_buffers(training, saved, rest["buffers"])
    read = dict(other)
    for name, tensor in _tensors_of(training.model):
        if f"model.{name}" in saved and name not in read:
            read[name] = torch.empty_like(tensor.detach())
    moments = _empty_moments(training, saved, rest["on_cpu"])
    tensors: dict[str, Any] = {f"model.{name}": tensor for name, tensor in read.items()}
    tensors |= {f"optimizer.{name}.{key}": value for (name, key), value in moments.items()}
    try:
        with _quiet():
            no_dist = not dist.is_initialized()
            state_dict_loader.load(tensors, storage_reader=reader, no_dist=no_dist)
    except CheckpointException as error:  # which is no `Exception`
        problem = f"the checkpoint {folder} cannot be read whole: {_why(error, reads=True)}"
        raise NotLoadedError(_as_shown(problem, folder)) from error
    _take_tensors(training, read, other)
    _take_moments(training, moments, rest["moments"])
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


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every parameter and buffer once, including buffers that are in no ``state_dict``."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _other_buffers(
    training: Training, saved: dict[str, Any], names: list[str]
) -> dict[str, torch.Tensor]:
    """Return a tensor for each buffer that a forward made, or gave another shape or type."""
    found: dict[str, torch.Tensor] = {}
    modules = dict(training.model.named_modules())
    for full in names:
        entry = saved[f"model.{full}"]
        path, _, name = full.rpartition(".")
        module = modules.get(path)
        if module is None:
            continue
        buffers: dict[str, torch.Tensor | None] = vars(module)["_buffers"]
        now, dtype = buffers.get(name), entry.properties.dtype
        if now is None or now.shape != entry.size or now.dtype is not dtype:
            device = training.device if now is None else now.device
            found[full] = torch.empty(entry.size, dtype=dtype, device=device)
    return found


@torch.no_grad()
def _take_tensors(
    training: Training, read: dict[str, torch.Tensor], other: dict[str, torch.Tensor]
) -> None:
    modules = dict(training.model.named_modules())
    for full, buffer in other.items():
        path, _, name = full.rpartition(".")
        vars(modules[path])["_buffers"][name] = buffer
    for name, tensor in _tensors_of(training.model):
        if name in read and name not in other:
            tensor.detach().copy_(read[name])


def _names(training: Training) -> dict[torch.Tensor, str]:
    """Return the name of every trained parameter; those of a loss or of no module are numbered."""
    names: dict[torch.Tensor, str] = {
        parameter: name for name, parameter in training.model.named_parameters()
    }
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    for at, parameter in enumerate(p for group in groups for p in group["params"]):
        names.setdefault(parameter, training.stand_ins.get(parameter, f"#{at}"))
    return names


def _optimizer_state(training: Training) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    """Return moments that are dense tensors, by full name, and what else the optimizer keeps."""
    names = _names(training)
    tensors: dict[str, Any] = {}
    plain: dict[tuple[str, str], Any] = {}
    for parameter, state in training.optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                tensors[f"optimizer.{names[parameter]}.{key}"] = value
            else:
                plain[names[parameter], key] = value
    return tensors, plain


def _empty_moments(
    training: Training, saved: dict[str, Any], on_cpu: set[str]
) -> dict[tuple[str, str], torch.Tensor]:
    """Return a tensor for every moment in a checkpoint, sharded like its parameter if as large.

    Moments of a parameter on a GPU are there or in host memory. The ``step`` of a fused or a
    capturable optimizer must be on the GPU, though it was saved in host memory where shards were
    offloaded.
    """
    by_name = {name: parameter for parameter, name in _names(training).items()}
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    beside = {
        id(parameter)
        for group in groups
        if group.get("fused") or group.get("capturable")
        for parameter in group["params"]
    }
    found: dict[tuple[str, str], torch.Tensor] = {}
    for full, entry in saved.items():
        if not full.startswith("optimizer.") or not isinstance(entry, TensorStorageMetadata):
            continue
        name, _, key = full.removeprefix("optimizer.").rpartition(".")
        parameter, dtype = by_name[name], entry.properties.dtype
        if entry.size == parameter.shape:
            found[name, key] = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
        else:
            is_beside = key == "step" and id(parameter) in beside
            on_host = full in on_cpu and not is_beside
            device = torch.device("cpu") if on_host else parameter.device
            found[name, key] = torch.empty(entry.size, dtype=dtype, device=device)
    return found


def _take_moments(
    training: Training,
    tensors: dict[tuple[str, str], torch.Tensor],
    plain: dict[tuple[str, str], Any],
) -> None:
    by_name = {name: parameter for parameter, name in _names(training).items()}
    state = cast("dict[torch.Tensor, dict[str, Any]]", training.optimizer.state)
    state.clear()
    for (name, key), value in {**tensors, **plain}.items():
        is_sparse = isinstance(value, torch.Tensor) and value.is_sparse
        kept = value.to(by_name[name].device) if is_sparse else value
        state.setdefault(by_name[name], {})[key] = kept


def _rest(training: Training) -> dict[str, Any]:
    scheduler: Any = training.schedule.scheduler
    cursor = training.cursor
    groups: list[dict[str, Any]] = training.optimizer.param_groups
    training.random.save()
    trained = {name: one.requires_grad for name, one in training.model.named_parameters()}
    return {
        "groups": [{key: group[key] for key in group if key != "params"} for group in groups],
        "has_scheduler": scheduler is not None,
        "scheduler": scheduler.state_dict() if hasattr(scheduler, "state_dict") else None,
        "modes": training.modeset.state_dict(),
        "step": training.step_count,
        "position": cursor.position(),
        "random": training.random.state_dict(),
        "held": [held.read() for held in _held(training)],
        "train_mode": training.train_mode.state(),
        "trained": trained,
        "trained_at_start": training.trained_at_start or trained,
        "buffers": [name for name, _ in training.model.named_buffers()],
        "steps_in_epoch": training.steps_in_epoch,
        "answers": training.measures.accuracy.state(),
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
    for group, settings in zip(training.optimizer.param_groups, rest["groups"], strict=True):
        group.update(settings)
    _take_schedule(training.schedule, rest)
    training.modeset.load_state_dict(rest["modes"])
    training.step_count, training.steps_in_epoch = rest["step"], rest["steps_in_epoch"]
    training.cursor.go_to(rest["position"])
    training.random.load_state_dict(rest["random"])
    training.random.restore()
    for held, states in zip(_held(training), rest["held"], strict=True):
        if lost := held.write(states):
            training.note(
                f"{listed(lost)} changed on the ranks and could not be brought back: it is too "
                "large, or holds what another process cannot have"
            )
    training.measures.accuracy.load_state(rest["answers"])
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


def _take_schedule(schedule: Schedule, rest: dict[str, Any]) -> None:
    """Load a schedule's state; one that was removed, there or here meanwhile, stays removed."""
    if schedule.is_removed or (schedule.scheduler is not None and not rest["has_scheduler"]):
        schedule.end()
    elif rest["scheduler"] is not None:
        scheduler: Any = schedule.scheduler
        scheduler.load_state_dict(rest["scheduler"])


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
