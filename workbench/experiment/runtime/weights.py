"""The weights of a run on disk: in any model, or in a file that other tools read.

A checkpoint is read as plain data; nothing in it is run, whoever wrote it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from safetensors.torch import save
from torch import nn
from torch.nn.parameter import is_lazy

from workbench.experiment.checkpoint.folder import Checkpoint
from workbench.experiment.checkpoint.training_state import names_in_state_dict, tensors_of
from workbench.experiment.loop.model_use import at_work_on
from workbench.experiment.recipe.arguments import uncompiled
from workbench.experiment.recipe.hot_swap import shape_text
from workbench.experiment.runtime.checkpoint_writer import EVALUATED
from workbench.experiment.runtime.resume import ResumeError, find
from workbench.records import CarryRow
from workbench.torch_private.tensor_table import Entry
from workbench.trust import whole_file

Which = int | Literal["last", "best"]
_MODEL, _AVERAGE = "model.", "ema."
_ROWS = 40


class HasPath(Protocol):
    """A run: what ``exp.run()`` returns."""

    @property
    def path(self) -> Path:
        """The run directory."""
        ...


class LoadedWeights(NamedTuple):
    """What became of every parameter and buffer; printed as a table."""

    step: int
    """The step of the checkpoint."""
    rows: tuple[CarryRow, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the model's tensors that the checkpoint does not have in that shape."""
        return tuple(
            row.name for row in self.rows if row.outcome in ("new", "reshaped") and not row.note
        )

    def __repr__(self) -> str:
        carried = sum(row.outcome == "carried" for row in self.rows)
        own = sum(row.outcome != "dropped" for row in self.rows)
        head = f"step {self.step:,}: {carried:,} of {own:,} parameters and buffers loaded"
        others = [row for row in self.rows if row.outcome != "carried"]
        return "\n".join([head, *_lines(others)])


def load_weights(
    model: nn.Module,
    run: HasPath | str | Path,
    step: Which = "last",
    *,
    strict: bool = True,
    averaged: bool = False,
) -> LoadedWeights:
    """Load the weights of a run into a model; nothing else of it changes.

    Parameters and buffers are found by name and have to have the same shape; values are converted
    to the model's type and device. If an optimizer evaluates other weights than it trains
    (schedule-free), those are loaded.

    Args:
        model: any module; its ``requires_grad`` flags and modes stay.
        run: a run, its directory, or a checkpoint in it.
        step: ``"last"``, ``"best"`` (by the metric that the run goes by), or the number of a step
            that has a checkpoint.
        strict: whether a model that has a tensor more, or one of another shape, is refused.
        averaged: whether the moving averages of the weights are loaded (`ema`).

    Returns:
        What became of every parameter and buffer.

    Raises:
        TypeError: ``model`` is no module.
        ResumeError: there is no such checkpoint; or ``strict``, and something is missing: the
            message lists it, and nothing was loaded.
        CheckpointError: a file of the checkpoint is damaged.
        RuntimeError: an experiment trains the model at the moment.
    """
    given: Any = uncompiled(model)
    if not isinstance(given, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(given).__name__}")
    model = given
    for name in at_work_on(model):
        raise RuntimeError(f"{name} trains this model at the moment: pause it first, exp.pause()")
    return weights_into(model, run_directory(run), step, strict=strict, averaged=averaged)


def weights_into(
    model: nn.Module, run: Path, step: Which, *, strict: bool, averaged: bool = False
) -> LoadedWeights:
    """Do what `load_weights` does to a model on which nobody else works."""
    checkpoint, _ = find(run, step)
    if averaged:
        _refuse_without_averages(checkpoint)
    found = LoadedWeights(checkpoint.step, tuple(_rows(model, checkpoint)))
    if strict and found.missing:
        raise ResumeError(
            "the checkpoint does not have all of the model's weights; strict=False loads those "
            f"that fit. {found!r}"
        )
    own = dict(tensors_of(model))
    fitting = {row.name for row in found.rows if row.outcome == "carried"}
    sources = {name: _source(checkpoint, name, averaged=averaged) for name in fitting}
    read = {key: _empty(checkpoint.table[key]) for key in sources.values()}
    checkpoint.load(read)
    with torch.no_grad():
        for name, key in sources.items():
            tensor: Any = own[name]
            if is_lazy(tensor):
                tensor.materialize(tuple(read[key].shape))
            tensor.copy_(read[key])
    return found


def export_weights(
    run: HasPath | str | Path, file: str | Path, step: Which = "last", *, averaged: bool = False
) -> Path:
    """Write the weights of a run to a safetensors file, by the names of the model's ``state_dict``.

    ``model.load_state_dict(safetensors.torch.load_file(file))`` reads it. Tensors that are tied are
    written under each of their names; buffers that are not persistent are left out.

    Args:
        run: as for `load_weights`.
        file: the file; it appears whole, and replaces one that is there.
        step: as for `load_weights`.
        averaged: as for `load_weights`.

    Returns:
        The absolute path of the file.

    Raises:
        ResumeError: there is no such checkpoint.
        CheckpointError: a file of the checkpoint is damaged.
        ValueError: the name does not end in ``.safetensors``.
        OSError: the file cannot be written.
    """
    path = Path(file).expanduser().absolute()
    if path.suffix != ".safetensors":
        raise ValueError(f"the file is {path.name!r}; its name must end in .safetensors")
    checkpoint, _ = find(run_directory(run), step)
    names: dict[str, str] = checkpoint.plain()["state_dict"]
    if averaged:
        _refuse_without_averages(checkpoint)
    keys = {name: _source(checkpoint, own, averaged=averaged) for name, own in names.items()}
    sparse = [name for name, key in keys.items() if key not in checkpoint.table]
    if sparse:
        raise ResumeError(f"{', '.join(sparse)}: sparse, which no safetensors file can hold")
    read = {key: _empty(checkpoint.table[key]) for key in keys.values()}
    checkpoint.load(read)
    tensors = {name: read[key].clone() for name, key in keys.items()}
    about = {"format": "pt", "step": str(checkpoint.step), "epoch": str(checkpoint.epoch)}
    with whole_file(path) as out:
        out.write(save(tensors, about))
        out.flush()
        os.fsync(out.fileno())
    return path


def run_directory(run: HasPath | str | Path) -> Path:
    """Return the absolute path of a run, given as the run itself or by its path."""
    found: Any = getattr(run, "path", run)
    return Path(found).expanduser().absolute()


def _refuse_without_averages(checkpoint: Checkpoint) -> None:
    if not any(name.startswith(_AVERAGE) for name in checkpoint.table):
        raise ResumeError(
            f"{checkpoint.path} has no averages of weights: wb.Experiment(..., ema=0.999) makes "
            "them"
        )


def _source(checkpoint: Checkpoint, name: str, *, averaged: bool) -> str:
    """Full name of a tensor in a checkpoint: that which is evaluated, if there are two."""
    if averaged and f"{_AVERAGE}{name}" in checkpoint.table:
        return f"{_AVERAGE}{name}"
    evaluated = f"{EVALUATED}{name}"
    return evaluated if evaluated in checkpoint.table else f"{_MODEL}{name}"


def _empty(entry: Entry) -> torch.Tensor:
    return torch.empty(entry.size, dtype=entry.dtype)


def _rows(model: nn.Module, checkpoint: Checkpoint) -> Iterator[CarryRow]:
    table = checkpoint.table
    there = {
        key.removeprefix(_MODEL): "×".join(map(str, entry.size)) or "scalar"
        for key, entry in table.items()
        if key.startswith(_MODEL)
    }
    persistent = set(names_in_state_dict(model))
    names = {name for name, _ in model.named_parameters()}
    own = dict(tensors_of(model))
    for name, tensor in own.items():
        lazy = is_lazy(tensor)
        kept = name in names or name in persistent  # as `load_state_dict` leaves others
        same = (
            kept
            and name in there
            and (lazy or tuple(tensor.shape) == table[f"{_MODEL}{name}"].size)
        )
        known = name in there
        yield CarryRow(
            name=name,
            outcome="carried" if same else ("reshaped" if known and kept else "new"),
            old_shape=there.get(name, ""),
            new_shape=there.get(name, "") if lazy else shape_text(tensor),
            kind="parameter" if name in names else "buffer",
            note="" if same or name in persistent else "not persistent: the model's own value",
        )
    for name, shape in there.items():
        if name not in own:
            yield CarryRow(name=name, outcome="dropped", old_shape=shape)


def _lines(rows: list[CarryRow]) -> Iterator[str]:
    if not rows:
        return
    width = max(len(row.name) for row in rows[:_ROWS])
    yield f"{'':{width}}  {'checkpoint':>16}  {'this model':>16}"
    for row in rows[:_ROWS]:
        old, new = row.old_shape or "-", row.new_shape or "-"
        yield f"{row.name:{width}}  {old:>16}  {new:>16}" + (f"  {row.note}" if row.note else "")
    if len(rows) > _ROWS:
        yield f"and {len(rows) - _ROWS:,} more"
