"""One training step of one rank: its part of the batch, the whole batch's gradient.

Gradients of ranks are summed (`workbench.parallel.rank.gradients`), so each rank's loss must be a
part of the whole batch's. Ranks may have different numbers of samples: the last batch of an epoch
rarely divides evenly, and labels may be ignored. So a loss that is known to be a mean is weighted
by what it averages over here, relative to what all ranks average over, and a sum is left as it is;
a loss that is not known is computed for the whole batch on every rank
(`workbench.parallel.rank.whole_batch_loss`). Weights, losses, correct predictions and the command
to execute next are summed in one small collective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.experiment.data.data import split, to_device
from workbench.experiment.loop.measures import is_sampled
from workbench.experiment.loop.step import forward
from workbench.experiment.loop.step_guard import Guard, NonFiniteError
from workbench.gradient_flow.log import gradient_norms
from workbench.parallel.checks.branches import reached, zero_for
from workbench.parallel.checks.structure import NewPathError, Structure, StructureChangedError
from workbench.parallel.data.draws import are_apart
from workbench.parallel.rank.mixed_groups import kinds_apart
from workbench.parallel.rank.same_numbers import numbers_of_first_rank

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.parallel.checks.model_paths import ModelPaths
    from workbench.parallel.data.draws import Draws
    from workbench.parallel.data.rank_batches import Part
    from workbench.parallel.rank.gradients import Gradients
    from workbench.parallel.rank.parameter_hooks import ParameterHooks
    from workbench.parallel.rank.whole_batch_loss import RankLoss
    from workbench.parallel.rank.whole_optimizer import WholeStep


class Summed(NamedTuple):
    """What is known of a step once all ranks have contributed."""

    loss: float
    """Loss of the whole batch."""
    right: float
    """Number of correct predictions in it."""
    answers: float
    """Number of predictions in it; 0 where accuracy does not apply."""
    gradient_norm: float | None
    """Norm before clipping; where nothing is clipped, only for steps that are logged in full. Else
    None."""
    num_commands: int
    """Number of commands that all ranks have executed before the next step."""
    save: bool
    """Whether rank 0 requests a checkpoint after the step, which all ranks write together."""
    applied: bool
    """False where a gradient scaler skipped the update."""
    samples: int
    """Number of samples of the whole batch."""
    logits: torch.Tensor
    """Logits of this rank's part, detached: to be inspected, not to be kept."""
    is_apart: bool
    """Whether ranks have drawn different numbers where they should draw the same."""
    drew_late: bool
    """Whether samples of some rank drew random numbers, and none of the first batch did."""


class _Reported(NamedTuple):
    """What each rank reports about its part, or the sum of that over all ranks."""

    loss: float
    """This rank's part of the sum of losses."""
    weight: float
    """This rank's part of what that sum is divided by."""
    right: float
    answers: float
    num_commands: float
    """From the first rank only, like the next one."""
    save: float
    samples: float
    drew_late: float
    drawn: float
    """`Draws.digest` of the random numbers of its forward."""
    drawn_squared: float
    has_changed: float
    """Whether its parameters are not those that were laid out over the ranks."""
    is_new_path: float


def rank_step(
    training: Training,
    gradients: Gradients,
    part: Part,
    draws: Draws,
    num_commands: int,
    *,
    save: bool,
    drew_late: bool,
    fill: bool,
    hooks: ParameterHooks,
    structure: Structure,
    paths: ModelPaths | None,
    whole: WholeStep | None = None,
    alike: bool = False,
) -> Summed:
    """Train on one rank's part of a batch.

    Args:
        training: this rank's training; its loss is a `RankLoss`.
        gradients: has the model as it is laid out over the ranks.
        part: this rank's part of the batch.
        draws: the random numbers of this rank.
        num_commands: number of commands to execute before the next step; that of rank 0 counts.
        save: whether to write a checkpoint after this step; what rank 0 passes counts.
        drew_late: whether the samples drew random numbers although they were not expected to.
        fill: whether parameters that only another rank has reached have gradients of zero here.
        hooks: hooks on the gradients of parameters.
        structure: the parameters as they were when the model was laid out over the ranks.
        paths: paths that steps have taken through the model; None where new ones do not matter.
        whole: gathers parameters and gradients for the update.
        alike: whether all ranks must draw the same random numbers in the update.

    Raises:
        NonFiniteError: on all ranks, because the sum of losses or a gradient is not finite.
        StructureChangedError: on all ranks, because one has made, frozen or unfrozen a parameter.
        NewPathError: on all ranks, because one has taken a path that no step before took.
    """
    inputs, targets = split(part.batch)
    inputs, targets = to_device(inputs, training.device), to_device(targets, training.device)
    loss_of = cast("RankLoss", training.loss)
    loss_of.begin(part)
    model = cast("nn.Module", draws.in_forward(gradients.called))
    logits, targets, loss = forward(training, model, inputs, targets)
    weight = _averaged_over(loss_of, logits, targets, part)
    first = dist.get_rank() == 0
    changed = structure.has_changed()
    here = _reached(training, loss, structure, changed=changed) if fill else []
    is_new = paths is not None and bool(part.num_samples) and paths.new(logits, loss)
    own = _Reported(
        *_share(loss_of, loss, weight),
        *_right(training, logits, targets, part),
        float(num_commands if first else 0),
        float(save if first else 0),
        float(part.num_samples),
        float(drew_late),
        *draws.digest(),
        float(changed),
        float(is_new),
    )
    sums, ranks = _summed(own, here, training.device)
    value, factor = _mean(loss_of, sums, weight)
    loss = loss if factor is None else loss * factor
    if fill:
        others = [bool(any_) and not mine for any_, mine in zip(ranks, here, strict=True)]
        zero = zero_for(training.model, others)
        loss = loss if zero is None else loss + zero
    gradients.look(logits, loss)
    try:
        training.modeset.backward(loss)
    except RuntimeError as error:
        if explanation := gradients.explain(error):
            raise RuntimeError(explanation) from error
        raise
    gradients.after_backward(loss)
    if whole is not None:
        whole.gather()
    hooks.call()
    training.modeset.before_clip(training.optimizer)
    if training.scaler is not None and training.extra_parameters:
        training.scaler.unscale_more(training.extra_parameters)
    norm = _clipped(training)
    training.guard.check_gradients(scaled=training.scaled)
    if training.scaler is not None:
        training.scaler.decide()
    training.guard.before_update()
    applied = _update(training, alike=alike)
    if norm is None and applied:
        norm = _norm_if_logged(training)
    if whole is not None:
        whole.scatter()
    return Summed(
        loss=value,
        right=sums.right,
        answers=sums.answers,
        gradient_norm=norm,
        num_commands=int(sums.num_commands),
        save=bool(sums.save),
        applied=applied,
        samples=int(sums.samples),
        logits=logits.detach(),
        is_apart=are_apart(sums.drawn, sums.drawn_squared),
        drew_late=bool(sums.drew_late),
    )


def _update(training: Training, *, alike: bool) -> bool:
    """Let the optimizer step, with the same random numbers on all ranks if ``alike``."""
    drawn = numbers_of_first_rank(training.device) if alike else nullcontext()
    with drawn, kinds_apart(training.optimizer):
        return training.modeset.optimizer_step(training.optimizer)


class RankGuard(Guard):
    """A guard whose answer about gradients is the same on every rank.

    Args:
        training: the training of this rank, its model laid out over the ranks.
        whole: where the update sees parameters that are gathered for it, their gradients are
            checked; what a forward writes is looked for in the model's own parameters.
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


def _reached(
    training: Training, loss: torch.Tensor, structure: Structure, *, changed: bool
) -> list[bool]:
    """Return which parameters this rank has reached; as many values on every rank."""
    return [False] * structure.size if changed else reached(training.model, loss)


def _averaged_over(loss: RankLoss, logits: torch.Tensor, targets: Any, part: Part) -> float:
    """Return what the mean of this rank's part divides by; 1 for a sum, 0 without a sample."""
    if not part.num_samples or not loss.is_known:
        return 0.0
    return (
        1.0 if loss.sums or loss.is_undivided else float(loss.known.divisor(logits, targets) or 0.0)
    )


def _share(loss_of: RankLoss, loss: torch.Tensor, weight: float) -> tuple[float, float]:
    """This rank's part of the sum of losses, and of what it is divided by."""
    if not loss_of.is_known:  # all have the same
        return (loss_of.value, 1.0) if dist.get_rank() == 0 else (0.0, 0.0)
    if not weight:
        return 0.0, 0.0  # what a stand-in gives may be anything
    return loss.item() * weight, weight


def _mean(loss: RankLoss, sums: _Reported, weight: float) -> tuple[float, float | None]:
    """Return the whole batch's loss, and the factor for this rank's; None: it is already a part.

    Raises:
        StructureChangedError: a rank has made, frozen or unfrozen a parameter.
        NewPathError: a rank has taken a path through the model that no step before took.
        NonFiniteError: the loss is not finite.
    """
    if sums.has_changed:
        raise StructureChangedError
    if sums.is_new_path:
        raise NewPathError
    value, factor = _mean_of(loss, sums, weight)
    if not math.isfinite(value):
        raise NonFiniteError("loss", value)
    return value, factor


def _mean_of(loss: RankLoss, sums: _Reported, weight: float) -> tuple[float, float | None]:
    if not loss.is_known or loss.is_undivided:
        return sums.loss, None
    if loss.sums:
        return sums.loss, weight
    if not sums.weight:
        return math.nan, 0.0  # as a mean over no label is in a single process
    return sums.loss / sums.weight, weight / sums.weight


def _right(
    training: Training, logits: torch.Tensor, targets: Any, part: Part
) -> tuple[float, float]:
    """Return (correct, all) predictions of this rank; none where accuracy does not apply."""
    found = training.loss.answers.read(logits.detach(), targets) if part.num_samples else None
    if found is None or (found.beyond is not None and bool(found.beyond)):
        return 0.0, 0.0
    right, answers = found.tally()
    return float(right), float(answers)


def _summed(
    own: _Reported, reached: list[bool], device: torch.device
) -> tuple[_Reported, Sequence[float]]:
    """The sum over all ranks, number by number, in one collective."""
    sums = torch.tensor([*own, *map(float, reached)], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    found: list[float] = sums.tolist()
    return _Reported(*found[: len(own)]), found[len(own) :]


def _clipped(training: Training) -> float | None:
    """Clip the gradients, and return their norm before; some may be sharded and others not."""
    if training.clip_grad_norm is None:
        return None
    sharded, whole = _gradients(training)
    if not (sharded and whole):
        norm = nn.utils.clip_grad_norm_(training.parameters, training.clip_grad_norm)
        return _whole(norm)
    total = math.hypot(*(_whole(nn.utils.get_total_norm(kind)) for kind in (sharded, whole)))
    share = training.clip_grad_norm / (total + 1e-6)  # as `clip_grad_norm_` has it
    for gradient in (*sharded, *whole) if share < 1 else ():
        gradient.mul_(share)
    return total


def _norm_if_logged(training: Training) -> float | None:
    """Return the gradient norm of the step that was just applied, if that is logged in full."""
    if not is_sampled(training.step_count + 1):
        return None
    sharded, whole = _gradients(training)
    norms = [_whole(nn.utils.get_total_norm(sharded))] if sharded else []
    norms += gradient_norms(whole).tolist() if whole else []
    return math.hypot(*norms) if norms else None


def _gradients(training: Training) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the sharded gradients, and the others."""
    every = [gradient for one in training.parameters if (gradient := one.grad) is not None]
    sharded = [one for one in every if isinstance(one, DTensor)]
    return cast("list[torch.Tensor]", sharded), [
        one for one in every if not isinstance(one, DTensor)
    ]


def _whole(norm: torch.Tensor) -> float:
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
