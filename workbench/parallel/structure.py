"""Parameters that are made, replaced, frozen or thawed while ranks train: by a forward, or a hook.

`DistributedDataParallel` and `fully_shard` go by the parameters that a model has when it is laid
out, and by their ``requires_grad``: what is thawed later would have gradients of one rank's rows,
or none at all, and of a layer that a forward makes nobody would know. So in every step ranks look
at both after the forward. Where anything has changed, on any rank, the step is given up, ranks come
home as they were before it, that step is computed in one process, and new ranks start with what is
there then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.modes.layout import gathered_parameters

if TYPE_CHECKING:
    from workbench.experiment.training import Training


class StructureChangedError(Exception):
    """A parameter was made, replaced, frozen or thawed since the model was laid over the ranks."""


class Structure:
    """Which parameters a training has, where, and which of them are trained.

    Args:
        training: its model may be laid over ranks.
    """

    def __init__(self, training: Training) -> None:
        self._model: nn.Module = training.model
        self._groups: list[dict[str, Any]] = training.optimizer.param_groups
        self._begun = _trained(self._model)
        self._known = {id(one) for one in self._model.parameters()}
        self._num_held = [len(group["params"]) for group in self._groups]
        self.size = len(self._begun)
        """How many parameters there were."""
        self.remember()

    def remember(self) -> None:
        """Before a step."""
        self._trained = _trained(self._model)
        self._held = [list(group["params"]) for group in self._groups]
        self._tables = [
            (table, dict(table))
            for module in self._model.modules()
            for table in (vars(module)["_parameters"], vars(module)["_modules"])
        ]

    def has_changed(self) -> bool:
        """After a forward: whether anything is not as it was when the model was laid out."""
        whole = gathered_parameters(self._model)
        known = self._known | {id(one) for one in whole.values()}
        named = dict(self._model.named_parameters())
        return (
            _trained(self._model) != self._begun
            or any(id(one) not in known for one in named.values())
            or self._num_held != [len(group["params"]) for group in self._groups]
            or any(
                id(named[name]) in whole and whole[id(named[name])].requires_grad is not flag
                for name, flag in self._begun.items()
            )
        )

    def restore(self) -> None:
        """As before the step; a model under ``fsdp`` has its shards again."""
        for table, before in self._tables:
            if table.keys() != before.keys() or any(
                table[name] is not before[name] for name in table
            ):
                table.clear()
                table.update(before)
        for group, held in zip(self._groups, self._held, strict=False):
            if len(group["params"]) != len(held):
                group["params"][:] = held
        del self._groups[len(self._held) :]
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad is not self._trained[name]:
                parameter.requires_grad_(self._trained[name])


def _trained(model: nn.Module) -> dict[str, bool]:
    found: dict[str, torch.Tensor] = dict(model.named_parameters())
    return {name: one.requires_grad for name, one in found.items()}
