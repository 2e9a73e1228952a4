"""Parameters that a forward or a hook makes, replaces, freezes or unfreezes while ranks train.

`DistributedDataParallel` and `fully_shard` use the parameters that a model has when it is laid out,
and their ``requires_grad``: a parameter that is unfrozen later would have the gradient of one
rank's rows, or none at all, and a layer that a forward makes would not be known to them. So in
every step ranks check both after the forward. Where anything has changed, on any rank, the step is
abandoned, the training comes back to the kernel as it was before the step, that step is computed in
one process, and new ranks start with the parameters that exist then.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torch import nn

from workbench.torch_private.distributed import gathered_parameters

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_IS_TRAINED = operator.attrgetter("requires_grad")


class StructureChangedError(Exception):
    """A parameter was made, replaced, frozen or unfrozen since the model was laid out."""


class NewPathError(StructureChangedError):
    """A step took a path through the model that no step before it took.

    `workbench.parallel.checks.model_paths` compares paths.
    """


class Structure:
    """The parameters of a training, where they are, and which of them are trained.

    Args:
        training: the training; its model may be laid out over ranks.
    """

    def __init__(self, training: Training) -> None:
        self._model: nn.Module = training.model
        self._groups: list[dict[str, Any]] = training.optimizer.param_groups
        # listed once: every step needs them twice
        modules = list(self._model.modules())
        self._tables: list[dict[str, Any]] = [
            vars(module)[name] for module in modules for name in ("_parameters", "_modules")
        ]
        self._parameters = list(self._model.parameters())
        self._begun = self._flags()
        self._known = {id(None), *map(id, modules), *map(id, self._parameters)}
        self._sizes = self._count()
        self.size = len(self._parameters)
        """Number of parameters at the start."""
        self.remember()

    def remember(self) -> None:
        """Remember the state before a step."""
        self._flags_before = self._flags()
        self._held = [list(group["params"]) for group in self._groups]
        self._tables_before = [*map(dict[str, Any], self._tables)]

    def has_changed(self) -> bool:
        """Return, after a forward, whether anything has changed since the model was laid out."""
        whole = gathered_parameters(self._model)
        known = self._known.union(map(id, whole.values()))
        of_forward = [whole.get(id(one), one) for one in self._parameters]
        return (
            self._count() != self._sizes
            or any(not known.issuperset(map(id, table.values())) for table in self._tables)
            or self._flags() != self._begun
            or [*map(_IS_TRAINED, of_forward)] != self._begun
        )

    def restore(self) -> None:
        """Restore the state before the step; a model under ``fsdp`` has its shards again."""
        for table, before in zip(self._tables, self._tables_before, strict=True):
            if [*map(id, table.values())] != [*map(id, before.values())]:
                table.clear()
                table.update(before)
        for group, held in zip(self._groups, self._held, strict=False):
            if len(group["params"]) != len(held):
                group["params"][:] = held
        del self._groups[len(self._held) :]
        for parameter, is_trained in zip(self._parameters, self._flags_before, strict=True):
            if parameter.requires_grad is not is_trained:
                parameter.requires_grad_(is_trained)

    def _flags(self) -> list[bool]:
        return [*map(_IS_TRAINED, self._parameters)]

    def _count(self) -> list[int]:
        """Count what every module has and every parameter group holds."""
        return [*map(len, self._tables), *(len(group["params"]) for group in self._groups)]
