"""One training step, from top to bottom.

The three parts are apart so that a step with probes (`probed_step`) is made of the very same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data import split, to_device
from workbench.experiment.losses import check_loss, logits_of

if TYPE_CHECKING:
    from workbench.experiment.probing import Probing
    from workbench.experiment.training import Training


class StepResult:
    """What a step leaves behind. It lives until the step is logged; nothing may keep it longer."""

    __slots__ = ("applied", "gradient_norm", "logits", "loss", "targets")

    def __init__(
        self,
        loss: float | torch.Tensor,
        logits: torch.Tensor,
        targets: Any,
        gradient_norm: torch.Tensor | None,
        *,
        applied: bool,
    ) -> None:
        self.loss = loss
        """A float on the CPU, a detached scalar elsewhere."""
        self.logits = logits
        """As the model returned them: to be looked at, not to be kept, for they have a graph."""
        self.targets = targets
        self.gradient_norm = gradient_norm
        """Before clipping; None where nothing is clipped."""
        self.applied = applied
        """False where a gradient scaler skipped the update."""


def train_step(training: Training, batch: Any) -> StepResult:
    """Train on one batch.

    Raises:
        NonFiniteError: the loss or a gradient is not finite; the update was not applied.
    """
    inputs, targets = split(batch)
    inputs = to_device(inputs, training.device)
    targets = to_device(targets, training.device)
    logits, loss = forward(training, training.model, inputs, targets)
    value = backward(training, loss)
    norm, applied = update(training)
    return StepResult(value, logits, targets, norm, applied=applied)


def probed_step(training: Training, batch: Any, probes: Sequence[Probing]) -> StepResult:
    """`train_step` with probes riding along."""
    for probe in probes:
        probe.before_step(training, batch)
    inputs, targets = split(batch)
    inputs = to_device(inputs, training.device)
    targets = to_device(targets, training.device)
    for probe in probes:
        probe.before_forward()
    logits, loss = forward(training, training.model, inputs, targets)
    for probe in probes:
        probe.after_forward(loss)
    value = backward(training, loss)
    for probe in probes:
        probe.after_backward()
    norm, applied = update(training)
    return StepResult(value, logits, targets, norm, applied=applied)


def forward(
    training: Training, model: torch.nn.Module, inputs: Any, targets: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of ``model`` and loss, under the modes' contexts and nothing else."""
    clear_gradients(training.optimizer)
    with training.modeset.forward_context():
        logits = logits_of(call(model, inputs))
        if not training.checked:
            training.loss.check(logits, targets)
        loss = training.loss(logits, targets)
    if not training.checked:
        check_loss(loss)
        training.checked = True
    return logits, loss


def backward(training: Training, loss: torch.Tensor) -> float | torch.Tensor:
    """Gradients, unscaled; gives what is to be logged of the loss."""
    value = training.guard.check_loss(loss)
    training.modeset.backward(loss)
    training.modeset.before_clip(training.optimizer)
    return value


def update(training: Training) -> tuple[torch.Tensor | None, bool]:
    """Clip, check, apply; gives the gradient norm where it was needed, and whether it applied."""
    norm = None
    if training.clip_grad_norm is not None:
        training.measures.before_clip(training)
        norm = torch.nn.utils.clip_grad_norm_(training.parameters, training.clip_grad_norm)
    training.guard.check_gradients(scaled=training.scaled)
    return norm, training.modeset.optimizer_step(training.optimizer)


def clear_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Set every gradient to None, as ``zero_grad()`` does, without the profiler range it opens.

    The range costs 5 of the call's 6 us. An optimizer with a ``zero_grad`` of its own keeps it.
    """
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def call(model: torch.nn.Module, inputs: Any) -> Any:
    """Call a model with a batch's inputs: a mapping by name, a tuple by position."""
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)
