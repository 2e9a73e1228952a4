"""Parameters that are frozen or thawed while ranks train: by a forward, or by a hook.

`DistributedDataParallel` and `fully_shard` go by ``requires_grad`` as it is when a model is laid
out: what is thawed later would have gradients of one rank's rows, or none at all. So in every step
ranks look at the flags after the forward. Where one has changed, on any rank, the step is given up,
ranks come home, that step is computed in one process, and new ranks start with the flags as they
are then.
"""

from __future__ import annotations

from torch import nn

from workbench.modes.layout import gathered_parameters


class FlagsChangedError(Exception):
    """A parameter was frozen or thawed since the model was laid over the ranks."""


class TrainedFlags:
    """Which parameters of a model are trained.

    Args:
        model: as it is laid over the ranks.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._begun = self._before = self._now()

    def remember(self) -> None:
        """Before a step."""
        self._before = self._now()

    def have_changed(self) -> bool:
        """After a forward: whether any is not as it was when the model was laid out."""
        now = self._now()
        named = dict(self._model.named_parameters())
        whole = gathered_parameters(self._model)
        return now != self._begun or any(
            id(named[name]) in whole and whole[id(named[name])].requires_grad is not flag
            for name, flag in self._begun.items()
        )

    def restore(self) -> None:
        """As they were before the step."""
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad is not self._before[name]:
                parameter.requires_grad_(self._before[name])

    def _now(self) -> dict[str, bool]:
        return {name: one.requires_grad for name, one in self._model.named_parameters()}
