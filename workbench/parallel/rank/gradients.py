"""How the gradients of ranks become those of the whole batch: by summing them over the ranks.

Or averaging them, where every rank has the whole batch (`workbench.parallel.checks.batch_sums`):
each rank then computes what one process does.

`fully_shard` does so while backward runs, and so does `DistributedDataParallel`. DDP must know
beforehand which parameters a backward reaches, and reaches by one path only; it reads this from the
graph. It fails ("marked as ready twice") on what it cannot read there: a reentrant checkpoint,
whose inside is a backward of its own, and a parameter that the loss uses without the model (a
penalty on weights that no forward uses). So the first step of ``ddp`` is computed without DDP, and
its gradients are summed after backward; where its graph has nothing of that kind, DDP sums them
from then on, while backward runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.experiment.recipe.losses import logits_of
from workbench.modes.layout.layout import Layout, lay_out
from workbench.parallel.checks.branches import nodes_below, reached
from workbench.parallel.rank.fp16_gradients import overflow_as_whole
from workbench.parallel.sentences import first_nonempty

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_TWICE = re.compile("marked as ready twice|mark a variable ready only once")
_ROUNDED = (torch.float16, torch.bfloat16)
"""Types that are summed in more bits."""
_SPARSE = (
    "the model has sparse gradients, which NCCL does not add up: ranks exchange their rows after "
    "backward and not while it runs, as DistributedDataParallel would"
)
_REENTRANT = "CheckpointFunctionBackward"
"""Graph node of torch's reentrant checkpoint, and of those of other libraries."""


class Gradients:
    """Lays out a model over ranks, and sums its gradients.

    Args:
        training: the training whose model it is.
        layout: the layout of all ranks.
        shard: lays the model out for ``fsdp``; returns what a step calls.
        average: every rank has the whole batch, so gradients are averaged instead of summed.
    """

    def __init__(
        self,
        training: Training,
        layout: Layout,
        shard: Callable[[], nn.Module],
        *,
        average: bool = False,
    ) -> None:
        self._training, self._layout, self._average = training, layout, average
        self.called: Callable[..., Any] = training.model
        """What a step calls."""
        self.note = ""
        """What the user should know about it."""
        self._after = layout.kind == "ddp"
        """Whether gradients are summed after backward."""
        self._is_open = self._after
        """Whether it is still undecided if DDP may sum them."""
        if layout.kind == "fsdp":
            self.called = shard()
        elif training.modeset.compiled:  # code is compiled once, and split where DDP needs it
            self._take_ddp()

    @property
    def is_sharded(self) -> bool:
        """Whether parameters are sharded."""
        return self._layout.kind == "fsdp"

    def look(self, logits: torch.Tensor, loss: torch.Tensor) -> None:
        """Inspect the graph of the first step; called before the backward of each step."""
        if self._is_open:
            self._is_open = False
            self.note = first_nonempty(_not_for_ddp(self._training.model, logits, loss))

    def explain(self, error: RuntimeError) -> str:
        """Return how an error of backward is related to ranks, and what to do, or ``""``."""
        if self._layout.kind != "ddp" or not _TWICE.search(str(error)):
            return ""
        return (
            f"{self._layout} adds up gradients while backward runs and was given one twice: after "
            "the first step, or under compile, the model has come to a checkpoint with "
            "use_reentrant=True, or the loss to a parameter that the forward does not use. Give "
            "use_reentrant=False, or take fsdp"
        )

    def after_backward(self, loss: torch.Tensor) -> None:
        """Sum the gradients that nothing has summed yet.

        Args:
            loss: the loss on which backward was called.
        """
        model = self._training.model
        if self._after:
            if not self.note and _has_rows_on_gpu(model):
                self.note = _SPARSE
            _add_up(list(model.parameters()), average=self._average)
            if not self._is_open and not self.note:
                self._take_ddp()
        elif self.is_sharded:
            own = [one for one in model.parameters() if not isinstance(one, DTensor)]
            _add_up(own, average=self._average)
            if self._average:  # torch's own factor divides twice where a shard is all of it
                _share_out(model)
        if self._training.scaler is not None:
            overflow_as_whole(model, loss)

    def _take_ddp(self) -> None:
        self._after = self._is_open = False
        training = self._training
        with training.guard.written_by_others():  # it sends all ranks the first one's weights
            self.called = lay_out(
                training.model, self._layout, training.device, read=logits_of, average=self._average
            )


def _not_for_ddp(model: nn.Module, logits: torch.Tensor, loss: torch.Tensor) -> str:
    """Return why DDP cannot sum the gradients, as a note, or ``""``."""
    if any(type(node).__name__ == _REENTRANT for node in nodes_below(loss)):
        return (
            "the model has a checkpoint with use_reentrant=True, whose inside "
            "DistributedDataParallel does not see: ranks add up gradients after backward and not "
            "while it runs, which takes longer (use_reentrant=False has neither limit)"
        )
    by_model, by_loss = reached(model, logits), reached(model, loss)
    names = [name for name, _ in model.named_parameters()]
    pairs = zip(names, by_model, by_loss, strict=True)
    past = [name for name, is_models, is_losses in pairs if is_losses and not is_models]
    if past:
        return (
            f"the loss takes {past[0]} of the model, which its forward does not use: ranks add up "
            "gradients after backward and not while it runs, as DistributedDataParallel would"
        )
    return ""


def _has_rows_on_gpu(model: nn.Module) -> bool:
    """Whether any rank has a sparse gradient on a GPU."""
    mine = any(
        one.grad is not None and one.grad.is_sparse and one.grad.is_cuda
        for one in model.parameters()
    )
    return bool(first_nonempty("rows" if mine else ""))


def _share_out(model: nn.Module) -> None:
    """Divide sharded gradients, which were summed, by the number of ranks."""
    for parameter in model.parameters():
        if isinstance(parameter, DTensor) and parameter.grad is not None:
            parameter.grad.div_(dist.get_world_size())


def _add_up(parameters: list[nn.Parameter], *, average: bool) -> None:
    """Sum gradients over the ranks; one that no rank has reached has none afterwards either."""
    share = dist.get_world_size() if average else 1
    trained = [one for one in parameters if one.requires_grad]
    if not trained:
        return
    own = [(one.grad is not None, one.grad is not None and one.grad.is_sparse) for one in trained]
    reached = torch.tensor(own, dtype=torch.float32, device=trained[0].device)
    dist.all_reduce(reached)
    alike: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    flags = cast("list[tuple[float, float]]", reached.tolist())
    for parameter, (ranks, sparse) in zip(trained, flags, strict=True):
        if not ranks:
            continue
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if sparse:
            gradient = _sum_of_rows(gradient if gradient.is_sparse else gradient.to_sparse(1))
            gradient = gradient / share if average else gradient
        else:
            alike.setdefault((gradient.dtype, gradient.device), []).append(gradient)
        parameter.grad = gradient
    for (dtype, _), gradients in alike.items():
        rows = [_numbers(one) for one in gradients]
        flat = torch.cat(rows)
        flat = flat.float() if dtype in _ROUNDED else flat
        dist.all_reduce(flat)
        flat = flat.div_(share) if average else flat
        for one, total in zip(gradients, flat.split([len(row) for row in rows]), strict=True):
            sums = torch.view_as_complex(total.view(-1, 2)) if one.is_complex() else total
            one.copy_(sums.view(one.shape))


def _sum_of_rows(gradient: torch.Tensor) -> torch.Tensor:
    """Sum a sparse gradient over the ranks; NCCL does not sum such ones, so rows are exchanged.

    Rows that no rank has are not in the sum: an optimizer leaves those alone.
    """
    own = gradient.detach().coalesce()
    places, values = own.indices(), own.values()
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=values.device)
    counts[dist.get_rank()] = values.shape[0]
    dist.all_reduce(counts)
    numbers: list[int] = counts.tolist()
    if not any(numbers):
        return own
    parts = [_from_all(one, numbers) for one in (places.t(), values)]
    places, values = parts[0].t(), parts[1]
    summed = torch.sparse_coo_tensor(places, values, gradient.shape, check_invariants=False)
    return summed.coalesce()


def _from_all(rows: torch.Tensor, numbers: list[int]) -> torch.Tensor:
    """Return the rows of all ranks; ``numbers`` says how many each of them has."""
    room = rows.new_zeros(max(numbers), *rows.shape[1:])
    room[: rows.shape[0]] = rows
    found = [torch.empty_like(room) for _ in numbers]
    dist.all_gather(found, room)
    return torch.cat([one[:number] for one, number in zip(found, numbers, strict=True)])


def _numbers(gradient: torch.Tensor) -> torch.Tensor:
    """Return it as a row of real numbers."""
    row = gradient.detach().reshape(-1)
    return torch.view_as_real(row.resolve_conj()).reshape(-1) if row.is_complex() else row
