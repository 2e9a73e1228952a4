"""Check whether a step can be divided among ranks: whether it is the sum over its samples.

A model that computes for each sample what it would compute for that sample alone can be computed in
parts, and the gradients of the parts summed. Many models do more: a mean over the batch is
subtracted, a layer's backward divides by a norm or by the number of samples, a buffer follows the
mean of a batch, samples are counted, a loss reads what the model has kept of its forward. On ranks
that see one part each, all of these would silently have other values.

Nothing is assumed about a model from its names. Instead, a batch is computed as a whole and in two
parts, with its samples in another order, and the results are compared: outputs, gradients (for the
loss's own gradient, and for one a thousand times as large, which shows clipping), and what modules
and objects keep afterwards. In a further run some samples are NaN, which must not spread to others:
it would do so even through a coefficient that is still 0. Everything is undone. Random operations
draw nothing meanwhile (`workbench.parallel.checks.without_randomness`), and batch norm, whose
behaviour is known (`workbench.parallel.rank.rank`), uses its running statistics.

Where Python reads a value of the data, or a random number, it is also given another answer
(`workbench.parallel.checks.tensor_decisions`).

What is kept only of the last batch (its features or its mean, for inspection) may differ: ranks
report it when the training comes back. It matters where the loss reads it, so that the loss's graph
continues into that of the forward, or where the next forward reads it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from workbench.experiment.data.data import split, to_device
from workbench.experiment.loop.step import call
from workbench.experiment.loop.step_undo import forward_undone
from workbench.experiment.recipe.losses import logits_of
from workbench.experiment.state.attachments import TENSOR_HOOKS
from workbench.modes.core.machine_probes import first_line
from workbench.parallel.checks.branches import nodes_below
from workbench.parallel.checks.tensor_decisions import Decisions, Kind, Other
from workbench.parallel.checks.without_randomness import WithoutChance
from workbench.parallel.data.batch_dimension import (
    Rows,
    RowsError,
    find_rows,
    first_rows,
    leaves,
    taken,
    with_leaves,
)
from workbench.parallel.sentences import listed
from workbench.parallel.transfer.kept_values import CLOSE, LENGTH, is_same, kept_values
from workbench.parallel.transfer.object_state import ObjectState
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.pytree import tree_leaves, tree_map
from workbench.torch_private.tensors import version_of

if TYPE_CHECKING:
    from workbench.experiment.recipe.losses import Loss
    from workbench.experiment.training import Training

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_CLOSE = 1e-3
"""Tolerance, relative to the largest value: a kernel may sum another number of samples in another
order."""
_COARSE = 3e-2
"""The same tolerance where products are computed in 16 bits, or in TF32."""
_NOISE = 1e-5
"""Tolerance of a gradient, relative to the largest of all: what remains where terms cancel out."""
_STRENGTHS = (1.0, 1e3)
_CELLS = 64
_MOST_READINGS = 8
_MOST_DRAWN = 4
"""Number of readings of random numbers that are given another answer: the first and the last."""
_GUARDS = (AssertionError, ValueError)
"""What a forward itself raises to refuse some data: it would do so in one process, too."""


_DEPENDS = (
    "what the model returns for a sample depends on the samples beside it, or on its place among "
    "them"
)
_DECIDES = "the model reads a value of its data, by which it decides for all samples of a batch"


class Verdict(NamedTuple):
    """Result of checking whether a step is the sum over its samples."""

    why: str = ""
    """Why it is not, as the beginning of a sentence; ``""`` if it is."""
    unknown: str = ""
    """Why that cannot be determined."""


def by_samples(training: Training, batch: Any, count: int, rows: Rows = None) -> Verdict:
    """Check whether a step is the sum over its samples, as far as this batch shows.

    What the model raises for the whole batch, it raises again in the step.

    Args:
        training: its model is whole here; everything is restored afterwards.
        batch: a batch as its source yields it.
        count: number of samples in it.
        rows: where the samples are; None: in the first dimension of everything.
    """
    if count < 2:
        return Verdict()
    # on the host, whatever the default device is
    source = torch.Generator("cpu").manual_seed(count)
    order = torch.randperm(count, generator=source, device="cpu").tolist()
    first = order[: 2 if count > 3 else 1]
    places = first, order[len(first) :]
    try:
        rows = first_rows(batch, count) if rows is None else rows
        parts = [taken(batch, rows, indices, count) for indices in places]
    except Exception:  # noqa: BLE001 - tensors of other kinds raise errors of their own
        return Verdict(unknown="its samples cannot be found in a batch")
    try:
        with _set_aside(training), WithoutChance() as chance:
            compared = zip(parts, places, strict=True)
            found = _Comparison(training, batch, count, rows, list(compared)).verdict()
    except torch.OutOfMemoryError:
        return Verdict(unknown="there is not the memory to compute a batch in parts beside it")
    except Exception as error:  # noqa: BLE001 - tensors and objects of the user may raise anything
        return Verdict(unknown=f"comparing raises {type(error).__name__}: {first_line(error)}")
    if not chance.is_known and not found.why:
        return Verdict(unknown="a forward draws random numbers in an operation of its own kind")
    return found


class _Seen(NamedTuple):
    """What was computed for a batch, or for a part of one."""

    logits: torch.Tensor
    gradients: list[torch.Tensor]
    """For each strength, a sketch of the gradient of each parameter, [parameters, `_CELLS`]."""
    kept: dict[str, Any]
    """What is kept afterwards, by the path to it."""
    loss: float | None
    """Loss of the whole batch's outputs, with what is kept now; None where it cannot be
    computed."""
    loss_reads: bool = False
    """Whether the loss's graph continues into that of the forward by a path other than the
    outputs."""


class _Part(NamedTuple):
    batch: Any
    places: list[int]
    """Positions of its samples in the whole batch."""


class _Comparison:
    def __init__(
        self,
        training: Training,
        batch: Any,
        count: int,
        rows: Rows,
        parts: Iterable[tuple[Any, list[int]]],
    ) -> None:
        self._training, self._batch, self._count = training, batch, count
        self._rows_of_batch = rows
        self._parts = [_Part(*one) for one in parts]
        self._values = ParameterValues(training.model)
        self._objects: ObjectState = training.object_state or ObjectState.of(training)
        self._strengths: Sequence[float] = _STRENGTHS
        self._by_modes = False
        """Whether forward runs in the modes' contexts, because it raises without them."""
        self._logits = self._gradient = torch.empty(0)
        """The outputs of the whole batch, and the loss's gradient with respect to them."""
        self._loss: Loss | None = None
        self._rows: Rows = None
        """Where the samples are in outputs."""
        self._decisions: Decisions | None = None
        """What observes the computation of a part."""
        self._unknown = ""

    def verdict(self) -> Verdict:
        whole = self._see_whole()
        if whole is None:  # it raises in the step too, or because nothing is random
            return Verdict(unknown="a forward without chance raises")
        if not bool(whole.logits.isfinite().all()):
            return Verdict(unknown="outputs of the first batch are not finite")
        why = self._why(whole)
        return Verdict(why, "" if why else self._unknown)

    def _why(self, whole: _Seen) -> str:
        try:
            self._rows = find_rows(
                whole.logits, self._outputs(self._parts[0]), self._count, len(self._parts[0].places)
            )
            if not isinstance(self._rows, int):
                return f"the model returns {list(whole.logits.shape)} for any number of samples"
            found = [self._see_part(part) for part in self._parts]
        except RowsError as error:
            return f"what the model returns {error}"
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            line = str(error).strip().partition("\n")[0]
            return f"a part of a batch raises {type(error).__name__}: {line[:120]}"
        return (
            self._apart(whole, found)
            or self._spreads()
            or self._decides_for_all(whole)
            or self._decides_by_chance()
            or self._loss_reads(whole, found)
            or self._kept_apart(whole, found)
        )

    # -- what differs -----------------------------------------------------------------------

    def _outputs_apart(self, whole: _Seen, found: list[_Seen]) -> str:
        most = self._close * float(whole.logits.float().abs().max())
        for part, seen in zip(self._parts, found, strict=True):
            same = taken(whole.logits, self._rows, part.places, self._count)
            if same.shape != seen.logits.shape or _off(same, seen.logits) > most:
                return _DEPENDS
        return ""

    def _spreads(self) -> str:
        """Whether NaN in some samples spreads to the outputs of others."""
        batch = tree_map(_finite, self._batch)
        without = [
            _with_nan(tensor, dim, self._parts[0].places, self._count)
            for tensor, dim in leaves(batch, self._rows_of_batch)
        ]
        batch = with_leaves(batch, self._rows_of_batch, without)
        try:
            with self._undone(), torch.no_grad():
                logits = self._called(to_device(split(batch)[0], self._training.device)).detach()
                others = taken(logits, self._rows, self._parts[1].places, self._count)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - it may refuse what is not finite
            return ""
        return "" if bool(others.isfinite().all()) else _DEPENDS

    def _decides_for_all(self, whole: _Seen) -> str:
        """Whether a value of the data that Python reads decides for all samples together."""
        _, counted = self._answered(None)
        if counted.unanswered:
            self._unknown = f"it reads {counted.unanswered}, and may decide by it"
        if len(counted.readings) > _MOST_READINGS:
            self._unknown = f"it reads {len(counted.readings)} values of its data"
        for reading, kind in _first_and_last(counted.readings, _MOST_READINGS):
            kept: list[set[str]] = []
            for other in _others(reading, kind):
                found, _ = self._answered(other)
                if isinstance(found, _GUARDS):
                    continue
                if isinstance(found, Exception) or self._is_apart(whole, found):
                    return _DECIDES
                kept.append(_kept_otherwise(whole, found))
            # what is only logged differs with either answer
            if kept and set.union(*kept) - (set.intersection(*kept) if len(kept) > 1 else set()):
                return _DECIDES
        return ""

    def _answered(self, other: Other | None) -> tuple[_Seen | Exception, Decisions]:
        """Return what a batch gives, or raises, with this answer replaced."""
        data = [one for one in tree_leaves(self._batch) if isinstance(one, torch.Tensor)]
        decisions = Decisions(data, other=other)
        return self._watched(decisions, None), decisions

    def _decides_by_chance(self) -> str:
        """Whether a step is no longer a sum where a random number leads to another decision."""
        counted = Decisions(chance=True)
        self._watched(counted, None)
        for reading, kind in _first_and_last(counted.readings, _MOST_DRAWN):
            for other in _others(reading, kind):
                whole, *found = [
                    self._watched(Decisions(chance=True, other=other), part)
                    for part in (None, *self._parts)
                ]
                parts = [one for one in found if isinstance(one, _Seen)]
                if isinstance(whole, Exception) or len(parts) < len(found):
                    self._unknown = "it raises where a number that it draws is another"
                elif why := self._apart(whole, parts):
                    return why
        return ""

    def _watched(self, decisions: Decisions, part: _Part | None) -> _Seen | Exception:
        """Return what a part gives, or raises, while these observe it; None: the whole batch."""
        self._decisions = decisions
        try:
            with self._undone():
                if part is not None:
                    return self._see(part.batch, part.places)
                return self._see(self._batch, range(self._count))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            return error
        finally:
            self._decisions = None

    def _apart(self, whole: _Seen, found: list[_Seen]) -> str:
        return self._outputs_apart(whole, found) or self._gradients_apart(whole, found)

    def _is_apart(self, whole: _Seen, found: _Seen) -> bool:
        """Whether the same batch gives other outputs or gradients."""
        if whole.logits.shape != found.logits.shape:
            return True
        most = self._close * float(whole.logits.float().abs().max())
        if _off(whole.logits, found.logits) > most:
            return True
        return bool(self._gradients_apart(whole, [found]))

    def _gradients_apart(self, whole: _Seen, found: list[_Seen]) -> str:
        names = [name for name, _ in self._training.model.named_parameters()]
        for at in range(len(self._strengths)):
            of_whole, of_parts = whole.gradients[at], [seen.gradients[at] for seen in found]
            sizes = torch.stack([one.norm(dim=1) for one in (of_whole, *of_parts)]).amax(0)
            off = (of_whole - sum(of_parts)).norm(dim=1)
            if not bool(sizes.isfinite().all()) or not len(sizes):
                continue
            differ = off > self._close * sizes + _NOISE * float(sizes.max())
            if apart := [name for name, one in zip(names, differ.tolist(), strict=True) if one]:
                return (
                    f"the gradient of {listed(apart)} is not the sum of what it is for the samples "
                    "of a batch, as backward goes by all of them"
                )
        return ""

    def _loss_reads(self, whole: _Seen, found: list[_Seen]) -> str:
        if whole.loss is None or not math.isfinite(whole.loss):
            return ""
        if whole.loss_reads:
            return f"{self._training.loss.name} reads what the model has kept of its forward"
        for seen in found:
            if seen.loss is None or not math.isclose(
                seen.loss, whole.loss, rel_tol=CLOSE, abs_tol=1e-7
            ):
                return f"{self._training.loss.name} reads what the model has kept of its forward"
        return ""

    def _kept_apart(self, whole: _Seen, found: list[_Seen]) -> str:
        names = dict.fromkeys(name for seen in (whole, *found) for name in seen.kept)
        apart = [
            name
            for name in names
            if any(not is_same(whole.kept.get(name), seen.kept.get(name)) for seen in found)
        ]
        reads = "a forward reads what the forward before it has kept of its batch"
        if apart:
            reads = f"a forward reads {listed(apart)}, which the forward before it has kept"
        try:
            after_whole, after_first = self._after(None), self._after(self._parts[0])
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - it may fail on what a batch of another size has kept
            return reads if apart else ""
        if self._is_apart(after_whole, after_first):  # possibly kept where nothing is compared
            return reads
        alone = found[1].kept
        follows = [
            name for name in apart if not is_same(after_first.kept.get(name), alone.get(name))
        ]
        grown = tuple(f"{name.removeprefix(LENGTH)}[" for name in follows if LENGTH in name)
        follows = [name for name in follows if not (grown and name.startswith(grown))]
        return f"{listed(follows)} {_goes(follows)} by all samples of a batch" if follows else ""

    # -- what is computed -------------------------------------------------------------------

    @property
    def _close(self) -> float:
        is_exact = self._training.device.type == "cpu" and not self._by_modes
        return _CLOSE if is_exact and self._logits.dtype.itemsize >= 4 else _COARSE

    def _see_whole(self) -> _Seen | None:
        """Compute the whole batch; None where it raises, in the modes' contexts too."""
        for self._by_modes in (False, True):
            for self._strengths in (_STRENGTHS, _STRENGTHS[:1]):
                try:
                    with self._undone():
                        return self._see(self._batch, None)
                except torch.OutOfMemoryError:
                    raise
                except Exception:  # noqa: BLE001, S112 - whatever the user's code raises
                    continue
        return None

    def _see_part(self, part: _Part) -> _Seen:
        with self._undone():
            return self._see(part.batch, part.places)

    def _outputs(self, part: _Part) -> torch.Tensor:
        with self._undone():
            return self._forward(part.batch).detach()

    def _after(self, before: _Part | None) -> _Seen:
        """What the second part gives after the first one, or after the whole batch."""
        with self._undone():
            logits = self._forward(self._batch if before is None else before.batch)
            if logits.requires_grad:
                gradient = self._gradient
                if before is not None:
                    gradient = taken(gradient, self._rows, before.places, self._count)
                torch.autograd.backward(logits, gradient)
                _sketches(self._training.model)
            return self._see(self._parts[1].batch, self._parts[1].places)

    @contextmanager
    def _undone(self) -> Generator[None]:
        with self._objects.undone(), forward_undone(self._training):
            try:
                yield
            finally:
                self._values.restore()

    def _forward(self, batch: Any) -> torch.Tensor:
        return self._called(self._inputs(batch))

    def _inputs(self, batch: Any) -> Any:
        return to_device(split(tree_map(_finite, batch))[0], self._training.device)

    def _called(self, inputs: Any) -> torch.Tensor:
        training = self._training
        with training.modeset.forward_context() if self._by_modes else nullcontext():
            return logits_of(call(training.model, inputs))

    def _see(self, batch: Any, places: Sequence[int] | None) -> _Seen:
        """Compute a part with these samples of the whole batch; None: the whole batch, first."""
        model, loss_reads = self._training.model, False
        versions = [(name, one, version_of(one)) for name, one in model.named_parameters()]
        inputs = self._inputs(batch)
        if self._decisions is not None and not self._decisions.chance:
            self._decisions.follow(tree_leaves(inputs))
        watching = nullcontext() if self._decisions is None else self._decisions
        with watching:
            logits = self._called(inputs)
        if places is None:
            loss, loss_reads = self._begin(logits)
            gradient = self._gradient
        else:
            loss = self._loss_see_whole()
            gradient = taken(self._gradient, self._rows, places, self._count)
        gradients: list[torch.Tensor] = []
        for strength in self._strengths if logits.requires_grad else ():
            is_last = strength == self._strengths[-1]
            with watching:
                torch.autograd.backward(logits, gradient * strength, retain_graph=not is_last)
            gradients.append(_sketches(model))
        if not gradients:
            gradients = [torch.zeros(0, _CELLS)] * len(self._strengths)
        kept = kept_values(model, self._objects) | {
            f"model.{name}": one.detach().clone()
            for name, one, version in versions
            if version_of(one) != version
        }
        return _Seen(logits.detach(), gradients, kept, loss, loss_reads)

    def _begin(self, outputs: torch.Tensor) -> tuple[float | None, bool]:
        """Keep the outputs of the whole batch, and the gradient that the loss gives them.

        Returns: the loss, and whether its graph continues into the forward's by another path.
        """
        training, logits = self._training, outputs.detach()
        self._logits, self._gradient = logits, torch.ones_like(logits)
        self._loss = training.loss.for_inspection(is_first=not training.checked)
        leaf = logits.clone().requires_grad_()
        try:
            loss = self._loss_from(leaf)
            given: Sequence[Any] = torch.autograd.grad(loss, leaf, allow_unused=True)
        except Exception:  # noqa: BLE001 - the step raises it, or reports what is wrong with it
            self._loss = None
            return None, False
        gradient = cast("torch.Tensor | None", given[0])
        if gradient is not None and bool(gradient.isfinite().all()) and bool(gradient.any()):
            self._gradient = gradient
        inside = {node for node in nodes_below(outputs) if leaf_of(node) is None}
        return float(loss.detach()), any(node in inside for node in nodes_below(loss))

    def _loss_see_whole(self) -> float | None:
        """Return the loss of the whole batch's outputs, with what was kept of a part."""
        if self._loss is None:
            return None
        try:
            with torch.no_grad():
                return float(self._loss_from(self._logits.clone()))
        except Exception:  # noqa: BLE001 - what it reads has another shape
            return None

    def _loss_from(self, logits: torch.Tensor) -> torch.Tensor:
        loss = cast("Loss", self._loss)
        targets = split(tree_map(_finite, self._batch))[1]
        targets = to_device(targets, self._training.device)
        loss.choose(logits, targets)
        with self._training.modeset.forward_context() if self._by_modes else nullcontext():
            return loss(logits, targets)


class ParameterValues:
    """Values of the parameters of a model, which a forward may write.

    A guard only knows those that a step has written before.

    Args:
        model: the model on this rank; for sharded parameters, the values are those of the shards.
    """

    def __init__(self, model: nn.Module) -> None:
        found = [_local(one) for one in model.parameters() if not is_lazy(one)]
        self._values = [(one, one.clone()) for one in found]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the values that the parameters had."""
        for parameter, value in self._values:
            if not torch.equal(parameter, value):
                parameter.data.copy_(value)


def _local(parameter: torch.Tensor) -> torch.Tensor:
    whole = parameter.detach()
    return whole.to_local() if isinstance(whole, DTensor) else whole


@contextmanager
def _set_aside(training: Training) -> Generator[None]:
    """Set aside gradients and hooks of parameters; batch norm uses its running statistics."""
    model = training.model
    parameters = list(model.parameters())
    gradients = [one.grad for one in parameters]
    hooks = [[getattr(one, kind) for kind in TENSOR_HOOKS] for one in parameters]
    norms = [one for one in model.modules() if isinstance(one, BATCH_NORMS) and one.training]
    for parameter in parameters:
        parameter.grad = None
        for kind in TENSOR_HOOKS:
            if getattr(parameter, kind):
                setattr(parameter, kind, OrderedDict())
    for norm in norms:
        norm.training = False
    try:
        with torch.enable_grad():
            yield
    finally:
        for norm in norms:
            norm.training = True
        for parameter, gradient, of_kinds in zip(parameters, gradients, hooks, strict=True):
            parameter.grad = gradient
            for kind, before in zip(TENSOR_HOOKS, of_kinds, strict=True):
                if getattr(parameter, kind) is not before:
                    setattr(parameter, kind, before)


def _finite(value: Any) -> Any:
    """Return a copy without NaN: one in the data would hide what else the model does."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.nan_to_num() if value.is_floating_point() else value.clone()


def _with_nan(tensor: torch.Tensor, dim: int, places: Sequence[int], count: int) -> torch.Tensor:
    """Return it with NaN for the samples in these places of ``count``, if its dtype has NaN."""
    if not tensor.is_floating_point():
        return tensor
    each = tensor.shape[dim] // count
    first = torch.tensor(places, device=tensor.device)[:, None] * each
    every = (first + torch.arange(each, device=tensor.device)).reshape(-1)
    return tensor.index_fill(dim, every, math.nan)


def _first_and_last(readings: Sequence[Kind], most: int) -> list[tuple[int, Kind]]:
    """Return at most ``most`` of them, the first and the last, with their indices."""
    numbered = list(enumerate(readings))
    if len(numbered) <= most:
        return numbered
    return numbered[: most // 2] + numbered[-(most // 2) :]


def _others(reading: int, kind: Kind) -> list[Other]:
    """The other answers to a reading."""
    return [Other(reading)] if kind == "yes or no" else [Other(reading), Other(reading, below=True)]


def _kept_otherwise(whole: _Seen, found: _Seen) -> set[str]:
    """Return the names of what is kept of the same batch, but not the same."""
    names = {*whole.kept, *found.kept}
    return {one for one in names if not is_same(whole.kept.get(one), found.kept.get(one))}


def _off(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference; infinite where only one of the two is NaN."""
    off = (one.float() - other.float()).abs().nan_to_num(nan=math.inf)
    return float(off.max()) if off.numel() else 0.0


def _goes(names: Sequence[str]) -> str:
    return "go" if len(names) > 1 else "goes"


# -- gradients ------------------------------------------------------------------------------


def _sketches(model: nn.Module) -> torch.Tensor:
    """Sum each parameter's gradient with random signs, and release the gradient.

    The sums add up as gradients do, and differ by as much as these, to within a fifth.
    """
    parameters = list(model.parameters())
    found = np.zeros((len(parameters), _CELLS))
    for row, parameter in zip(found, parameters, strict=True):
        gradient, parameter.grad = parameter.grad, None
        if gradient is not None:
            row[:] = _sketch(gradient)
    return torch.from_numpy(found)


def _sketch(gradient: torch.Tensor) -> Any:
    """Return ``[_CELLS]`` of NumPy: torch's operations are without randomness and observed here."""
    dense = gradient.to_dense() if gradient.layout is not torch.strided else gradient
    dense = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
    dense = dense.float() if dense.dtype.itemsize < 4 else dense
    if dense.device.type != "cpu":
        return _sketch_on_device(dense.detach().reshape(-1))
    flat = dense.detach().resolve_neg().numpy().reshape(-1)
    flat = np.pad(flat, (0, -len(flat) % _CELLS)) if len(flat) % _CELLS else flat
    table = flat.reshape(-1, _CELLS)
    with np.errstate(all="ignore"):  # what is not finite is found by the comparison
        return (table * _signs(len(table)).astype(table.dtype)).sum(0, dtype=np.float64)


def _sketch_on_device(flat: torch.Tensor) -> Any:
    table = nn.functional.pad(flat, (0, -len(flat) % _CELLS)).view(-1, _CELLS)
    signs = torch.from_numpy(_signs(len(table))).to(table.device, table.dtype)
    return (table * signs).sum(0, dtype=torch.float64).cpu().numpy()


def _signs(count: int) -> Any:
    """``[count, 1]`` of 1 and -1, the same each time."""
    drawn = np.random.default_rng(count).integers(0, 2, (count, 1), dtype=np.int8)
    return drawn * 2 - 1
