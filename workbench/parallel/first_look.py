"""The first part of a batch, computed before a model is laid over ranks and again after.

Before, every rank has the whole model: what its logits are, and whether it asks its data for
values on any rank (`workbench.parallel.branches`), is found with one forward. After, the first
step's logits say by how much laying it out has changed them.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workbench.experiment.data import split, to_device
from workbench.experiment.losses import logits_of
from workbench.experiment.step import call
from workbench.parallel.branches import AsksItsData

if TYPE_CHECKING:
    from workbench.experiment.training import Training


class FirstLook:
    """Attaches the modes of ``training`` and computes its first part; on all ranks together.

    A model that is compiled is looked at without its modes, which would compile it for nothing, and
    without logits. Random state and buffers are put back. What the model raises it raises again in
    the step, where it is reported.
    """

    def __init__(self, training: Training) -> None:
        self._logits: torch.Tensor | None = None
        compiled = training.modeset.compiled
        if not compiled:
            training.modeset.attach(training.model)
        asks = AsksItsData()
        part = training.cursor.take()
        if part is not None:
            training.guard.remember(exactly=True)
            try:
                with asks, nullcontext() if compiled else training.modeset.forward_context():
                    inputs = to_device(split(part.batch)[0], training.device)
                    logits = logits_of(call(training.model, inputs)).detach()
                self._logits = None if compiled else logits.float().clone()
            except Exception:  # noqa: BLE001, S110 - see above
                pass
            finally:
                training.guard.restore()
        if compiled:
            training.modeset.attach(training.model)
        training.attached = training.modeset
        self.branches = (
            _largest(torch.tensor(float(asks.found), device=training.device, dtype=torch.float32))
            > 0
        )
        """Whether the model asks its data on any rank, so that they may branch differently."""

    def difference(self, logits: torch.Tensor) -> float | None:
        """Largest difference of the first step's logits, over all ranks; None where unknown.

        Asked once, by all ranks together.
        """
        before, self._logits = self._logits, None
        found = torch.tensor(-1.0, device=logits.device, dtype=torch.float32)
        if before is not None and before.shape == logits.shape and before.numel():
            found = (logits.float() - before).abs().max()
        largest = _largest(found)
        return largest if largest >= 0 else None


def _largest(number: torch.Tensor) -> float:
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return float(number)
