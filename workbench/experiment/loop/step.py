"""One training step, from top to bottom.

The three parts are separate so that a step with probes (`probed_step`) consists of the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.experiment.data.data import DataError, split, tensors_in, to_device
from workbench.experiment.loop.interruption import Interruption
from workbench.experiment.recipe.losses import check_loss, logits_of

if TYPE_CHECKING:
    from workbench.experiment.loop.probe import Probing
    from workbench.experiment.training import Training

_NAMED = {
    torch.float64: re.compile(r"(?i)\b(double|float64|doubletensor)\b|mixed dtype"),
    torch.uint8: re.compile(r"(?i)\b(byte|uint8|bytetensor|unsigned char)\b|mixed dtype"),
}
"""How torch's own messages name a type that does not fit."""


class StepResult:
    """Result of a step. It exists until the step is logged; nothing may keep it longer."""

    __slots__ = ("applied", "gradient_norm", "logits", "loss", "targets")

    def __init__(
        self,
        loss: float | torch.Tensor,
        logits: torch.Tensor,
        targets: Any,
    ) -> None:
        self.loss = loss
        """A float on the CPU, a detached scalar on other devices."""
        self.logits = logits
        """As the model returned them: to be read, but not kept, because they have a graph."""
        self.targets = targets
        self.gradient_norm: torch.Tensor | None = None
        """Norm before clipping; None if nothing is clipped."""
        self.applied = True
        """False if a gradient scaler skipped the update."""


def train_step(training: Training, batch: Any) -> StepResult:
    """Train on one batch.

    Raises:
        NonFiniteError: the loss or a gradient is not finite; the update was not applied.
    """
    inputs, targets = split(batch)
    inputs = to_device(inputs, training.device)
    targets = to_device(targets, training.device)
    logits, targets, loss = forward(training, training.model, inputs, targets)
    training.find_joined()
    result = StepResult(backward(training, loss), logits, targets)
    update(training, result)
    return result


def probed_step(training: Training, batch: Any, probes: Sequence[Probing]) -> StepResult:
    """`train_step` with probes attached."""
    for probe in probes:
        probe.before_step(training, batch)
    inputs, targets = split(batch)
    inputs = to_device(inputs, training.device)
    targets = to_device(targets, training.device)
    for probe in probes:
        probe.before_forward()
    logits, targets, loss = forward(training, training.model, inputs, targets)
    training.find_joined()
    for probe in probes:
        probe.after_forward(loss)
    value = backward(training, loss)
    for probe in probes:
        probe.after_backward()
    result = StepResult(value, logits, targets)
    update(training, result)
    return result


def forward(
    training: Training, model: torch.nn.Module, inputs: Any, targets: Any
) -> tuple[torch.Tensor, Any, torch.Tensor]:
    """Compute logits of ``model``, labels and loss, under the modes' contexts and nothing else.

    Logits and labels are as they were passed to the loss, which may write to both.
    """
    clear_gradients(training.optimizer, training.parameters)
    with training.forward_context():
        try:
            output = call(model, inputs)
        except RuntimeError as error:
            if said := training.modeset.explain(error):
                raise RuntimeError(said) from error
            if problem := _of_another_type(training.parameters, inputs, str(error)):
                raise DataError(problem) from error
            raise
        logits = logits_of(output)
        if not training.checked:
            for note in training.loss.check(logits, targets):
                training.note(note)
        loss, logits, targets = training.loss.computed(
            logits, targets, is_first=not training.checked
        )
    if not training.checked:
        check_loss(loss)
        training.checked = True
    return logits, targets, loss


def backward(training: Training, loss: torch.Tensor) -> float | torch.Tensor:
    """Compute the gradients, unscaled; return what is to be logged of the loss."""
    value = training.guard.check_loss(loss)
    training.modeset.backward(loss)
    training.modeset.before_clip(training.optimizer)
    if training.scaler is not None and training.extra_parameters:
        training.scaler.unscale_more(training.extra_parameters)
    return value


def update(training: Training, result: StepResult) -> None:
    """Clip, check and apply; sets in ``result`` the gradient norm and whether it applied.

    What is raised after weights have been written is also kept, in ``training.interrupted``.

    Raises:
        ChangedInStepError: another thread changed a module's mode in the meantime.
        NonFiniteError: a gradient is not finite.
    """
    training.train_mode.hold()
    if training.clip_grad_norm is not None:
        training.measures.before_clip(training)
        result.gradient_norm = torch.nn.utils.clip_grad_norm_(
            training.parameters, training.clip_grad_norm
        )
    training.guard.check_gradients(scaled=training.scaled)
    if training.scaler is not None:
        training.scaler.decide()
    training.guard.before_update()
    try:
        result.applied = training.modeset.optimizer_step(training.optimizer)
    except BaseException as error:
        moved, of = training.guard.updated()
        if moved:
            training.interrupted = Interruption(error, result, moved, of)
        raise


def clear_gradients(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Set the gradient of every parameter to None, as ``zero_grad()`` does.

    ``zero_grad`` opens a range for profilers, which costs 5 of its 6 us; so it is called only if an
    optimizer has its own. Parameters that the optimizer does not hold are cleared too: the
    gradients of a step are those of its batch.
    """
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:
        optimizer.zero_grad()
        groups: list[dict[str, Any]] = optimizer.param_groups
        held = {id(parameter) for group in groups for parameter in group["params"]}
        parameters = [parameter for parameter in parameters if id(parameter) not in held]
    for parameter in parameters:
        parameter.grad = None


def _of_another_type(parameters: Sequence[nn.Parameter], inputs: Any, said: str) -> str:
    """What the user can do if a forward raised and its inputs have another type than its weights.

    Only if torch ``said`` that the error is about that type: a model may convert its inputs and
    then fail for another reason. Indices of an embedding have to be integers, and torch says so.
    """
    wanted = {p.dtype for p in parameters if p.is_floating_point()}
    for tensor in tensors_in(inputs):
        named = _NAMED.get(tensor.dtype)
        if named is None or not named.search(said) or "'indices'" in said:
            continue
        dtype = str(tensor.dtype).removeprefix("torch.")
        weights = ", ".join(sorted(str(one).removeprefix("torch.") for one in wanted))
        if tensor.dtype == torch.float64 and wanted and torch.float64 not in wanted:
            return (
                f"the inputs are {dtype} {list(tensor.shape)} and the model's weights {weights}: "
                "give x.float() (NumPy's default is float64), or make the model .double()"
            )
        if tensor.dtype == torch.uint8 and tensor.ndim >= 3:
            return (
                f"the inputs are {dtype} {list(tensor.shape)}, images as bytes it seems, and the "
                f"model's weights are {weights}: give x.float() / 255"
            )
    return ""


def call(model: torch.nn.Module, inputs: Any) -> Any:
    """Call a model with a batch's inputs: a mapping by name, a tuple or list by position.

    A named tuple is one input, for example a `PackedSequence`.
    """
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)) and not hasattr(inputs, "_fields"):
        return model(*inputs)
    return model(inputs)
