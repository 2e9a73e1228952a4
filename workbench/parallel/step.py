"""One training step of one rank: its part of the batch, the whole batch's gradient.

A loss is a mean over the samples of a batch, and ranks may have different numbers of them: the last
batch of an epoch rarely divides, and labels may be ignored. So each rank's loss is weighed by what
it averages over, and what the ranks average then is the gradient of the mean over the whole batch,
as a single process has it. Weights, losses, right answers and the command to obey next are summed
in one small collective.
"""

from __future__ import annotations

import itertools
import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.experiment.data import batch_size_of, split, to_device
from workbench.experiment.guard import Guard, NonFiniteError
from workbench.experiment.step import forward
from workbench.parallel.branches import reached, zero_for
from workbench.parallel.same_numbers import numbers_of_first_rank

if TYPE_CHECKING:
    from workbench.experiment.losses import Loss
    from workbench.experiment.training import Training
    from workbench.parallel.batches import Part
    from workbench.parallel.parameter_hooks import ParameterHooks
    from workbench.parallel.whole_step import WholeStep


_FLAGS = 7
"""Numbers in a step's collective before those of single parameters."""
_ROUNDED = (torch.float16, torch.bfloat16)
"""Gradients of these are averaged in float32, and rounded once."""


class Summed(NamedTuple):
    """What is known of a step once all ranks have said their part."""

    loss: float
    """Of the whole batch."""
    right: float
    """Right answers in it."""
    answers: float
    """Answers in it; 0 where the notion does not apply."""
    gradient_norm: float | None
    """Before clipping; None where nothing is clipped."""
    obey: int
    """How many commands all ranks have carried out before the next step."""
    save: bool
    """Whether rank 0 wants a checkpoint after it, which all write together."""
    applied: bool
    """False where a gradient scaler skipped the update."""
    samples: int
    """Of the whole batch."""
    logits: torch.Tensor
    """Of this rank's part, detached: to be looked at, not to be kept."""


def rank_step(
    training: Training,
    called: nn.Module,
    part: Part,
    obey: int,
    *,
    save: bool,
    sharded: bool,
    fill: bool,
    hooks: ParameterHooks,
    whole: WholeStep | None = None,
    alike: bool = False,
) -> Summed:
    """Train on one rank's part of a batch.

    Args:
        training: this rank's.
        called: the model as it lies over the ranks (`workbench.modes.layout.lay_out`).
        part: of the batch.
        obey: how many commands are to be carried out before the next step; rank 0 is heard.
        save: whether there is to be a checkpoint after this one; rank 0 is heard.
        sharded: whether the model is, and ranks average what is not by themselves.
        fill: whether parameters that another rank alone has reached have gradients of zero here.
        hooks: on the gradients of parameters.
        whole: has parameters and gradients gathered for the update.
        alike: whether all ranks are to draw the same random numbers in the update.

    Raises:
        NonFiniteError: on all ranks, as the sum of losses or a gradient is not finite.
    """
    inputs, targets = split(part.batch)
    inputs, targets = to_device(inputs, training.device), to_device(targets, training.device)
    logits, targets, loss = forward(training, called, inputs, targets)
    weight = averaged_over(training.loss, logits, inputs, targets) if part.num_samples else 0.0
    own = [*_share(training.loss, loss, weight), *_right(training, logits, targets, weight)]
    told = [float(obey), float(save)] if dist.get_rank() == 0 else [0.0, 0.0]
    here = reached(training.model, loss) if fill else []
    sums = _summed([*own, *told, float(part.num_samples), *map(float, here)], training.device)
    value, factor = _mean(training.loss, sums, weight)
    if not math.isfinite(value):
        raise NonFiniteError("loss", value)
    loss = loss * factor
    if fill:
        others = [bool(ranks) and not mine for ranks, mine in zip(sums[_FLAGS:], here, strict=True)]
        zero = zero_for(training.model, others)
        loss = loss if zero is None else loss + zero
    training.modeset.backward(loss)
    if sharded:
        _average_whole(training.model)
    if whole is not None:
        whole.gather()
    hooks.call()
    training.modeset.before_clip(training.optimizer)
    if training.scaler is not None and training.beside:
        training.scaler.unscale_more(training.beside)
    norm = _clipped(training)
    training.guard.check_gradients(scaled=training.scaled)
    if training.scaler is not None:
        training.scaler.decide()
    training.guard.before_update()
    with numbers_of_first_rank(training.device) if alike else nullcontext():
        applied = training.modeset.optimizer_step(training.optimizer)
    if whole is not None:
        whole.scatter()
    obeyed, saves, samples = int(sums[4]), bool(sums[5]), int(sums[6])
    return Summed(value, sums[2], sums[3], norm, obeyed, saves, applied, samples, logits.detach())


class RankGuard(Guard):
    """A guard whose answer about gradients is the same on every rank.

    Args:
        training: of this rank, its model laid over the ranks.
        whole: where the update sees parameters that are gathered for it, their gradients are looked
            at; what a forward writes is looked for in the model's own.
    """

    def __init__(self, training: Training, whole: WholeStep | None = None) -> None:
        gathered = [] if whole is None else whole.parameters
        known = set(map(id, gathered))
        parameters = [one for one in training.parameters if id(one) not in known]
        super().__init__(training.model, training.device, parameters, training.loss.module)
        self._looked_at = [*parameters, *gathered]

    def _flag_gradients(self) -> None:
        sharded = False
        for parameter in self._looked_at:
            gradient = parameter.grad
            if gradient is None:
                continue
            sharded = sharded or isinstance(gradient, DTensor)
            own = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            self._flag += ~_values(own).isfinite().all()
        if sharded:  # averaged ones are the same everywhere
            dist.all_reduce(self._flag)

    def _gradients(self) -> list[torch.Tensor]:
        return [g for p in self._looked_at if (g := p.grad) is not None]

    def _worst(self) -> float:
        own = [g.to_local() if isinstance(g, DTensor) else g for g in self._gradients()]
        found = torch.zeros_like(self._one)
        found += float(any(bool(_values(g).isnan().any()) for g in own))
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return math.nan if found else math.inf


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def averaged_over(loss: Loss, logits: torch.Tensor, inputs: Any, targets: Any) -> float:
    """What the mean in a loss divides by: samples, labels that count, or their classes' weights.

    For a loss of the user's own it is the number of samples; that it is a mean over them cannot be
    checked.
    """
    found = loss.known.divisor(logits, targets)
    return float(batch_size_of(inputs, targets) if found is None else found)


def _mean(loss: Loss, sums: list[float], weight: float) -> tuple[float, float]:
    """Loss of the whole batch, and what this rank's is multiplied by before ranks are averaged."""
    ranks = dist.get_world_size()
    if loss.sums:
        return sums[0], float(ranks if weight else 0)
    if not sums[1]:
        return math.nan, 0.0  # as a mean over no label is in a single process
    return sums[0] / sums[1], weight * ranks / sums[1]


def _share(loss_of: Loss, loss: torch.Tensor, weight: float) -> tuple[float, float]:
    """This rank's part of the sum of losses, and of what it is divided by."""
    if not weight:
        return 0.0, 0.0  # what a stand-in gives may be anything
    return loss.item() * (1.0 if loss_of.sums else weight), weight


def _right(
    training: Training, logits: torch.Tensor, targets: Any, weight: float
) -> tuple[float, float]:
    """(right answers, answers) of this rank; none where the notion does not apply."""
    found = training.loss.answers.read(logits.detach(), targets) if weight else None
    if found is None or (found.beyond is not None and bool(found.beyond)):
        return 0.0, 0.0
    right, answers = found.tally()
    return float(right), float(answers)


def _summed(own: list[float], device: torch.device) -> list[float]:
    """The sum over all ranks, number by number."""
    sums = torch.tensor(own, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return cast("list[float]", sums.tolist())


def _average_whole(model: nn.Module) -> None:
    """Average the gradients of parameters that are not sharded, which `fully_shard` leaves alone.

    One that no rank has reached has none afterwards either. All of one dtype are sent together.
    """
    whole = [one for one in model.parameters() if one.requires_grad and not _lies_over_ranks(one)]
    if not whole:
        return
    gradients = [one.grad for one in whole]
    reached = _summed([float(one is not None) for one in gradients], whole[0].device)
    alike: dict[torch.dtype, list[nn.Parameter]] = {}
    for one, ranks in zip(whole, reached, strict=True):
        if ranks:
            alike.setdefault(one.dtype, []).append(one)
    for dtype, together in alike.items():
        flat = torch.cat([_numbers(one) for one in together])
        flat = flat.float() if dtype in _ROUNDED else flat
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        parts = flat.split([_numbers(one).numel() for one in together])
        for one, part in zip(together, parts, strict=True):
            average = torch.view_as_complex(part.view(-1, 2)) if one.is_complex() else part
            if one.grad is None:
                one.grad = torch.empty_like(one)
            one.grad.copy_(average.view(one.shape))


def _numbers(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient as a row of real numbers, zeros where there is none."""
    gradient = parameter.grad
    gradient = torch.zeros_like(parameter) if gradient is None else gradient
    row = gradient.detach().reshape(-1)
    return torch.view_as_real(row.resolve_conj()).reshape(-1) if row.is_complex() else row


def _lies_over_ranks(parameter: nn.Parameter) -> bool:
    return isinstance(parameter, DTensor)


def _clipped(training: Training) -> float | None:
    """Clip the gradients; gives their norm before. Some may be sharded and others not."""
    if training.clip_grad_norm is None:
        return None
    with_gradient = [one for one in training.parameters if one.grad is not None]
    kinds = [
        [one for one in with_gradient if isinstance(one, DTensor) is sharded]
        for sharded in (True, False)
    ]
    if not all(kinds):
        norm = nn.utils.clip_grad_norm_(training.parameters, training.clip_grad_norm)
        return _whole(norm)
    gradients = [[cast("torch.Tensor", one.grad) for one in kind] for kind in kinds]
    norms = [_whole(nn.utils.get_total_norm(kind)) for kind in gradients]
    total = math.hypot(*norms)
    share = training.clip_grad_norm / (total + 1e-6)  # as `clip_grad_norm_` has it
    for gradient in itertools.chain(*gradients) if share < 1 else ():
        gradient.mul_(share)
    return total


def _whole(norm: torch.Tensor) -> float:
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
