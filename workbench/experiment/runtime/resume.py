"""A training that continues from a checkpoint, bit for bit.

The model, the data and the optimizer are those that the code of the notebook has made again; a
checkpoint has their state. Everything is read and compared before anything is changed: a checkpoint
of another model, or of other data, is refused with what differs.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.experiment.checkpoint import folder as checkpoints
from workbench.experiment.checkpoint import training_state as state
from workbench.experiment.checkpoint.folder import Checkpoint
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.runtime.checkpoint_writer import best_of, settings_of, sources_of
from workbench.records import Marker
from workbench.torch_private.self_check import notes_of
from workbench.torch_private.tensor_table import Table
from workbench.trust import error_message, read_regular, write_whole

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_MOST_HISTORY = 1 << 30
_ROWS = 12
"""Maximum number of tensors that a message names."""
_SEGMENT = re.compile(r"(\d{8,12})\.npz", re.ASCII)


class ResumeError(RuntimeError):
    """A run cannot be continued here; the message says why, and what to do."""


def run_of(source: Path) -> Path:
    """Return the run directory of a path: the path itself, or that of one of its checkpoints."""
    inside = source.parent.name == "checkpoints" and (source / checkpoints.MANIFEST).exists()
    return source.parent.parent if inside else source


def find(source: Path, which: int | str = "last") -> tuple[Checkpoint, list[Checkpoint]]:
    """Return a checkpoint whose files are as they were written, and newer ones that are not.

    Args:
        source: the run directory, or one of its checkpoints.
        which: ``"last"``, ``"best"`` (by validation), or the number of a step.

    Raises:
        ResumeError: there is none.
    """
    folder = run_of(source)
    found = checkpoints.found_in(folder / "checkpoints")
    if not found:
        raise ResumeError(_why_none(folder))
    wanted = found
    if source != folder:
        wanted = [one for one in found if one.path == source]
    elif which == "best":
        best = best_of(found)
        if best is None:
            raise ResumeError(f"{folder} has no checkpoint of the end of a validated epoch")
        wanted = [best]
        if (known := found[0].best) is not None and known[2] != best.step:
            name, value, step = known
            raise ResumeError(
                f"the best epoch of {folder} ended at step {step:,} ({name} {value:.6g}), which "
                f"has no checkpoint: ranks write none of their epochs. It has: {_steps(found)}"
            )
    elif which != "last":
        wanted = [one for one in found if one.step == which]
    damaged: list[Checkpoint] = []
    for one in wanted:
        if one.is_intact():
            return one, damaged
        damaged.append(one)
    if damaged:
        names = ", ".join(one.path.name for one in damaged)
        raise ResumeError(f"{folder}: files of {names} are not as they were written")
    raise ResumeError(f"{folder} has no checkpoint of step {which!r}; it has: {_steps(found)}")


def _steps(found: list[Checkpoint]) -> str:
    return ", ".join(f"{one.step:,}" for one in reversed(found))


def _why_none(source: Path) -> str:
    if not source.is_dir():
        return f"{source} is no run directory: there is no such folder"
    folder = source / "checkpoints"
    paths = folder.iterdir() if folder.is_dir() else ()
    schemas = {checkpoints.schema_of(path) for path in paths}
    other = ", ".join(sorted(one for one in schemas if one and one != checkpoints.SCHEMA))
    if other:
        return (
            f"{source} has checkpoints of another version of Workbench ({other[:200]}); this one "
            f"reads {checkpoints.SCHEMA}: install the version that wrote them"
        )
    if checkpoints.SCHEMA in schemas:
        return f"{source} has no whole checkpoint: files of every one are missing or cut short"
    return (
        f"{source} has no checkpoint: one is written at the end of an epoch (every "
        "checkpoint_every steps, if set), and when a run pauses, fails or ends"
    )


class Loaded:
    """The state of a checkpoint, read and compared with a training; nothing is changed yet.

    Args:
        training: a training that has done no step.
        checkpoint: the checkpoint.
        trust: whether objects that another user may have pickled are loaded.

    Raises:
        CheckpointError: it cannot be read.
        ResumeError: it belongs to another model, other data or another optimizer.
    """

    def __init__(self, training: Training, checkpoint: Checkpoint, *, trust: bool) -> None:
        self._training = training
        for note in notes_of("saving"):
            training.note(note)
        self.saved = saved = checkpoint.read(trust=trust)
        if saved["step"] != checkpoint.step:
            raise ResumeError(f"{checkpoint.path} is damaged: two of its files name other steps")
        table = checkpoint.table
        _compare_settings(training, saved)
        _compare_tensors(training, table, saved)
        self._other = state.other_buffers(training, table, saved["buffers"])
        apart: dict[str, torch.Tensor] = saved["apart"]
        self._tensors: dict[str, torch.Tensor] = dict(apart)
        into: dict[str, torch.Tensor] = {}
        for name, tensor in state.all_tensors(training):
            if name not in apart and name.removeprefix("model.") not in self._other:
                into[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        into |= {f"model.{name}": one for name, one in self._other.items()}
        self._moments = state.empty_moments(training, table, saved["on_cpu"])
        of_optimizer = {
            f"optimizer.{name}.{key}": one for (name, key), one in self._moments.items()
        }
        self._averages = state.empty_averages(training, table)
        of_average = {f"ema.{name}": one for name, one in self._averages.items()}
        checkpoint.load(into | of_optimizer | of_average)
        self._tensors |= into

    @property
    def plan(self) -> Plan:
        """Where the run was to end."""
        until_step, until_epoch, from_epoch = self.saved["plan"]
        return Plan(until_step, until_epoch, from_epoch=from_epoch)

    @property
    def modes(self) -> str:
        """The modes of the run."""
        return self.saved["mode_text"]

    def take(self) -> None:
        """Give the training that state; its notes say what could not be as in the run."""
        training, saved = self._training, self.saved
        prefix = "model."
        of_model = {
            name.removeprefix(prefix): tensor
            for name, tensor in self._tensors.items()
            if name.startswith(prefix)
        }
        state.take_tensors(training, of_model, self._other)
        with torch.no_grad():
            for name, tensor in state.all_tensors(training):
                if not name.startswith(prefix):
                    tensor.detach().copy_(self._tensors[name])
        state.take_moments(training, self._moments, saved["moments"])
        state.take_wrapped_state(training, saved["wrapped"])
        if training.ema is not None:
            training.ema.take(self._averages, saved["ema"])
        state.take_rest(training, saved)
        training.cursor.repeat_pass(saved["pass"])
        training.schedule.load_state(saved["schedule"])
        for name, parameter in training.model.named_parameters():
            parameter.requires_grad_(saved["trained"].get(name, parameter.requires_grad))
        training.train_mode.load_state(saved["train_mode"], training.optimizer)
        self._take_values()
        self._note_differences()
        training.board.markers = tuple(Marker(**one) for one in saved["markers"])
        training.seeded = training.is_at_rest = True

    def _take_values(self) -> None:
        """Restore what modules, the data and loaders keep."""
        training, saved = self._training, self.saved
        values = saved["values"]
        for sentence in training.watch_values(set(values)).take(values):
            training.note(sentence)
        if saved["unsaved"]:
            training.note(saved["unsaved"])
        models = {"model": training.model, "loss": training.loss.module}
        modules = {
            f"{which}.{path}": module
            for which, model in models.items()
            if model is not None
            for path, module in model.named_modules()
        }
        for path, extra in saved["extra"].items():
            if path in modules:
                modules[path].set_extra_state(extra)
        training.watch_data()
        for held, state_then in zip(training.held or (), saved["held"], strict=False):
            for what in held.write(state_then):
                training.note(f"{what} of the data differs from the run's: it could not be stored")
        for source, states in zip(sources_of(training), saved["generators"], strict=True):
            for generator, state_then in zip(source.generators, states, strict=False):
                generator.set_state(state_then)

    def _note_differences(self) -> None:
        training, device, threads = self._training, self.saved["device"], self.saved["threads"]
        if device != training.device.type:
            training.random.forget_device()
            training.note(
                f"the checkpoint was made on {device}: random numbers drawn on "
                f"{training.device.type} (dropout) differ from those of the run there"
            )
        if threads != torch.get_num_threads():
            training.note(
                f"the run was computed with {threads} threads, and this process has "
                f"{torch.get_num_threads()}: sums may differ in their last bits. "
                f"torch.set_num_threads({threads}) makes them equal"
            )
        loader = getattr(training.cursor.source, "loader", None)
        if getattr(loader, "persistent_workers", False):
            training.note(
                "workers of this loader go on from epoch to epoch (persistent_workers=True), and "
                "begin anew here: if samples draw random numbers in them, these are others than "
                "the run's would have been"
            )


def _compare_settings(training: Training, saved: dict[str, Any]) -> None:
    """Refuse a checkpoint of other data or of another optimizer."""
    there, here = saved["settings"], settings_of(training)
    for name, (argument, value) in there.items():
        if name in here and here[name][1] != value:
            raise ResumeError(
                f"{name} of the run was {value}, and is {here[name][1]} here: create the "
                f"experiment with the {argument} of the run to continue it"
            )


def _compare_tensors(training: Training, table: Table, saved: dict[str, Any]) -> None:
    """Refuse a checkpoint whose tensors are not those of the model, its loss and its optimizer."""
    here = {
        name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.all_tensors(training)
    }
    fixed = {name for name, tensor in state.all_tensors(training) if tensor.requires_grad}
    fixed |= {f"model.{name}" for name, _ in training.model.named_parameters()}
    there = {
        name: (entry.size, entry.dtype)
        for name, entry in table.items()
        if name.partition(".")[0] in ("model", "loss", "parameter")
    }
    there |= {name: (tuple(one.shape), one.dtype) for name, one in saved["apart"].items()}
    modules = {name for name, _ in training.model.named_modules()}
    made = {f"model.{name}" for name in saved["buffers"] if name.rpartition(".")[0] in modules}
    rows: list[tuple[str, str, str]] = []
    for name, own in here.items():
        if name not in there:
            rows.append((name, "-", _kind(own)))
        elif own != there[name] and (name in fixed or not name.startswith("model.")):
            rows.append((name, _kind(there[name]), _kind(own)))
    rows += [
        (name, _kind(kind), "-")
        for name, kind in there.items()
        if name not in here and name not in made  # a buffer that a forward has made
    ]
    names = {name for name, _ in training.model.named_parameters()}
    known = names | {f"#{at}" for at in range(len(training.parameters))}
    trained = {
        name.removeprefix("optimizer.").rpartition(".")[0]
        for name in table
        if name.startswith("optimizer.")
    }
    rows += [(f"{name} (optimizer)", "trained", "-") for name in sorted(trained - known)]
    if rows:
        raise ResumeError(_different(rows))


def _kind(found: tuple[tuple[int, ...], torch.dtype]) -> str:
    shape, dtype = found
    size = "x".join(map(str, shape)) or "a number"
    return size if dtype is torch.float32 else f"{size} {str(dtype).removeprefix('torch.')}"


def _different(rows: list[tuple[str, str, str]]) -> str:
    shown = [(name.removeprefix("model."), there, here) for name, there, here in rows[:_ROWS]]
    width = max(len(name) for name, *_ in shown)
    lines = [f"{'':{width}}  {'checkpoint':>16}  {'this model':>16}"]
    lines += [f"{name:{width}}  {there:>16}  {here:>16}" for name, there, here in shown]
    if len(rows) > _ROWS:
        lines.append(f"and {len(rows) - _ROWS:,} more")
    return (
        "the checkpoint is of another model: define the model as in the run, or load its weights "
        "where they fit with exp.model = ...\n" + "\n".join(lines)
    )


# -- what a run directory has beside its checkpoints -------------------------------------------


Points = list[tuple[str, Any, Any]]
"""(name, steps int64[n], values float64[n])"""


def read_history(folder: Path, checkpoint: Checkpoint) -> tuple[Points, list[str]]:
    """Return the points that a run has logged up to a checkpoint, and what is missing of them."""
    points: Points = []
    problems: list[str] = []
    for serial, path in sorted(_segments(folder).items()):
        if serial > checkpoint.serial:
            break
        try:
            is_whole, found = _segment(path)
        except Exception as error:  # noqa: BLE001 - a damaged zip may raise anything
            problems.append(f"curves lack a part: {path} cannot be read: {error_message(error)}")
            continue
        points = found if is_whole else points + found
    return points, problems


def _segment(path: Path) -> tuple[bool, Points]:
    """Return whether a file has all points until then, and the points in it."""
    data = io.BytesIO(read_regular(path, _MOST_HISTORY))
    with zipfile.ZipFile(data) as packed:
        if any(one.compress_type != zipfile.ZIP_STORED for one in packed.infolist()):
            raise ValueError("it is compressed")
    data.seek(0)
    with np.load(data, allow_pickle=False) as found:
        about = json.loads(found["about"].tobytes())
        points = [
            (str(name), found[f"s{at}"], found[f"v{at}"]) for at, name in enumerate(about["names"])
        ]
    return bool(about["whole"]), points


def remove_after(folder: Path, checkpoint: Checkpoint, damaged: list[Checkpoint]) -> None:
    """Remove what a run wrote after the newest checkpoint that can be read; set those aside."""
    for one in damaged:
        checkpoints.set_aside(one)
    for serial, path in _segments(folder).items():
        if serial > checkpoint.serial:
            path.unlink(missing_ok=True)
    checkpoints.remove_parts(folder / "checkpoints")


def copy_history(source: Path, target: Path, checkpoint: Checkpoint) -> None:
    """Copy history, the checkpoint and the best until then into the directory of a forked run."""
    found = checkpoints.found_in(source / "checkpoints")
    best = best_of([one for one in found if one.serial <= checkpoint.serial])
    for one in {each.path: each for each in (checkpoint, best) if each is not None}.values():
        checkpoints.copy_to(one, target / "checkpoints")
    (target / "history").mkdir(parents=True, exist_ok=True)
    for serial, path in _segments(source).items():
        if serial <= checkpoint.serial:
            write_whole(target / "history" / path.name, read_regular(path, _MOST_HISTORY))


def _segments(folder: Path) -> dict[int, Path]:
    """Serial number -> file; nothing behind a link."""
    history = folder / "history"
    if history.is_symlink() or not history.is_dir():
        return {}
    named = {path: _SEGMENT.fullmatch(path.name) for path in history.iterdir()}
    return {int(found[1]): path for path, found in named.items() if found is not None}
