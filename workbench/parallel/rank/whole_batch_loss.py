"""The loss of a whole batch, on ranks that have a part of it each.

A loss of torch's own is known: it is a mean over samples, over labels that count or over their
weights, or a sum. For such a loss each rank computes the loss of its part, and parts are weighted
by what each averages over (`workbench.parallel.rank.step`).

Nothing is assumed about any other loss. Ranks exchange outputs and labels, so that each calls the
loss with those of the whole batch, as one process does, and uses the gradient of its own rows. So
it does not matter what the loss averages over, whether its terms divide by different things,
whether it compares the samples of a batch with each other (in-batch contrastive losses) or keeps
something from call to call. This costs the transfer of outputs and labels, and a loss of the whole
batch, in each step; that is little compared to a model's forward unless outputs are large
(`LARGE_BYTES`), which a note then reports. Where every rank has the whole batch in any case
(`workbench.parallel.checks.batch_sums`) each computes its loss, whatever it is, and gradients of
ranks are averaged.

What a loss reads of the model other than its outputs (a penalty on weights) counts once.
"""

from __future__ import annotations

import copy
import operator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from workbench.experiment.data.data import DataError
from workbench.experiment.recipe.losses import Loss
from workbench.parallel.data.batch_dimension import (
    cut,
    has_items,
    joined_items,
    leaves,
    with_leaves,
)

if TYPE_CHECKING:
    from workbench.parallel.checks.initial_logits import FirstLook
    from workbench.parallel.data.rank_batches import Part

LARGE_BYTES = 64 * 2**20
"""Size of the outputs of a whole batch from which on a note reports it."""
_MOST_DIMS = 8
_ALIGNED = 16


class RankLoss(Loss):
    """A loss as it is on a rank; made from the training's with `of`."""

    _part: Part
    _look: FirstLook
    is_known: bool | None = None
    """Whether the loss of a part is computed, to be weighted; None before the first step."""
    value = 0.0
    """Loss of the whole batch, if it is not a known one."""
    note = ""
    """What the user should know about it."""

    @classmethod
    def of(cls, loss: Loss, look: FirstLook) -> RankLoss:
        """Return ``loss`` as it is on this rank.

        Args:
            loss: the training's loss.
            look: where the samples are.
        """
        made = cls.__new__(cls)
        vars(made).update(vars(copy.copy(loss)))
        made._look = look
        return made

    @property
    def is_undivided(self) -> bool:
        """Whether every rank has the whole batch, which belongs to the first rank."""
        return bool(self._look.undivided)

    def begin(self, part: Part) -> None:
        """Begin a step on this part."""
        self._part = part

    def computed(
        self, logits: torch.Tensor, targets: Any, *, is_first: bool
    ) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Compute the loss as `Loss` does; for the whole batch if it is not a known one.

        In that case gradients are to be summed over the ranks.

        Raises:
            DataError: outputs or labels of the ranks cannot be combined.
        """
        if self.is_known is None:
            self.is_known = self.is_undivided or self._is_known_everywhere(logits, targets)
        if self.is_known:
            return super().computed(logits, targets, is_first=is_first)
        ranks = dist.get_world_size()
        outputs, labels = self._whole(logits, targets)
        loss = self(outputs, labels)
        if _is_number(loss):  # else the step refuses it
            self.value = loss.item()
            loss = loss.reshape(()) / ranks  # its terms on weights are computed on every rank
            if not self._part.num_samples:
                loss = loss + logits.sum() * 0  # every rank goes through its model
        return loss, logits, targets

    def _is_known_everywhere(self, logits: torch.Tensor, targets: Any) -> bool:
        """Whether the divisor of its mean is known, for the shapes that every rank has."""
        known = self.known
        is_known = bool(known.per) and not known.weighs_rows(logits)
        is_known = is_known and (
            known.reduction == "sum" or known.divisor(logits, targets) is not None
        )
        found = torch.tensor(int(is_known), device=logits.device)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return bool(found)

    def _whole(self, logits: torch.Tensor, targets: Any) -> tuple[torch.Tensor, Any]:
        """Return outputs and labels of all ranks; outputs of this rank have their graph."""
        look, part, ranks = self._look, self._part, dist.get_world_size()
        if look.not_found:
            raise DataError(
                _refused(self.name, f"what the model or the data give {look.not_found}")
            )
        own = cut(logits, look.logit_rows, 0, part.num_samples, part.made)
        mine = cut(targets, look.target_rows, 0, part.num_samples, part.made)
        scaled = own.view_as(own)
        if scaled.requires_grad:
            scaled.register_hook(partial(operator.mul, ranks))
        found = [(own.detach(), cast("int", look.logit_rows)), *leaves(mine, look.target_rows)]
        whole = self._gathered(found, scaled)
        outputs, *tensors = whole
        if has_items(look.target_rows):
            everyones: list[Any] = [None] * ranks
            dist.all_gather_object(everyones, mine)
            mine = joined_items(everyones, look.target_rows)
        return outputs, with_leaves(mine, look.target_rows, tensors)

    def _gathered(
        self, found: list[tuple[torch.Tensor, int]], own: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return each of these tensors of all ranks, joined; ``own`` replaces this rank's first."""
        everyones = _shapes(found)
        for (tensor, rows), of_ranks in zip(found, everyones, strict=True):
            beside = {(*shape[:rows], *shape[rows + 1 :]) for shape in of_ranks}
            if len(beside) > 1:
                shapes = " and ".join(str(list(shape)) for shape in of_ranks)
                kind = str(tensor.dtype).removeprefix("torch.")
                raise DataError(_refused(self.name, f"parts of ranks are {kind} {shapes}"))
        parts = _sent([tensor for tensor, _ in found], everyones)
        parts[0][dist.get_rank()] = own
        size = sum(part.nbytes for part in parts[0])
        if size > LARGE_BYTES and not self.note:
            self.note = (
                f"{self.name} is none of torch's own losses, so ranks give each other the outputs "
                f"of the whole batch in each step, {size / 2**20:,.0f} MiB: torch's own "
                "(torch.nn.CrossEntropyLoss, say) needs none of it"
            )
        return [torch.cat(of, rows) for of, (_, rows) in zip(parts, found, strict=True)]


def _is_number(loss: Any) -> bool:
    return isinstance(loss, torch.Tensor) and loss.numel() == 1


def _refused(name: str, why: str) -> str:
    return (
        f"{name} is none of torch's own losses, so ranks compute it for the whole batch, and {why}"
        ": its samples cannot be put together. Give outputs and labels with the samples in one "
        "dimension and all others of one size, or a loss of torch's own, whose mean is known"
    )


def _shapes(found: list[tuple[torch.Tensor, int]]) -> list[list[tuple[int, ...]]]:
    """Return for each tensor its shape on every rank."""
    own = [[tensor.ndim, *tensor.shape, *([0] * (_MOST_DIMS - tensor.ndim))] for tensor, _ in found]
    sent = torch.tensor(own, device=found[0][0].device)
    everyones = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, sent)
    tables: list[list[list[int]]] = [one.tolist() for one in everyones]
    return [
        [tuple(table[at][1 : 1 + table[at][0]]) for table in tables] for at in range(len(found))
    ]


def _sent(
    tensors: list[torch.Tensor], shapes: list[list[tuple[int, ...]]]
) -> list[list[torch.Tensor]]:
    """Return for each tensor that of every rank; sent as bytes, which any backend supports."""
    device, ranks = tensors[0].device, dist.get_world_size()
    sizes = [
        [_room(shape, tensor) for shape in of_ranks]
        for tensor, of_ranks in zip(tensors, shapes, strict=True)
    ]
    room = max(sum(of[rank] for of in sizes) for rank in range(ranks))
    sent = torch.zeros(room, dtype=torch.uint8, device=device)
    at = 0
    for tensor, of in zip(tensors, sizes, strict=True):
        flat = tensor.to(device).contiguous().reshape(-1).view(torch.uint8)
        sent[at : at + flat.numel()] = flat
        at += of[dist.get_rank()]
    everyones = torch.empty(ranks * room, dtype=torch.uint8, device=device)
    dist.all_gather(list(everyones.split(room)), sent)
    found: list[list[torch.Tensor]] = []
    begins = [rank * room for rank in range(ranks)]
    for tensor, of_ranks, of in zip(tensors, shapes, sizes, strict=True):
        parts: list[torch.Tensor] = []
        for rank, shape in enumerate(of_ranks):
            count = torch.Size(shape).numel() * tensor.element_size()
            flat = everyones[begins[rank] : begins[rank] + count]
            parts.append(flat.view(tensor.dtype).reshape(shape).to(tensor.device))
            begins[rank] += of[rank]
        found.append(parts)
    return found


def _room(shape: tuple[int, ...], tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor of this shape and the type of ``tensor`` to the next one."""
    count = torch.Size(shape).numel() * tensor.element_size()
    return -(-count // _ALIGNED) * _ALIGNED
