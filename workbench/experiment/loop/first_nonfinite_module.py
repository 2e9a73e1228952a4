"""What can be measured about a loss that is not finite, once the step has been refused.

The batch is computed once more with a hook on every module, from the random state and the buffers
of the step, to find the first module whose output is not finite. If there is none, the loss itself
or the backward produced the value, and this is reported.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data.data import split, to_device
from workbench.experiment.loop.step import call
from workbench.experiment.loop.step_guard import NonFiniteError
from workbench.experiment.loop.step_undo import forward_undone
from workbench.experiment.recipe.losses import logits_of
from workbench.records import Fact, Failure

if TYPE_CHECKING:
    from workbench.experiment.training import Training


_BY_THE_LOSS = {"loss": "the loss function", "gradients": "backward; every output is finite"}


def nan_failure(training: Training, error: NonFiniteError) -> Failure:
    """Return the `Failure` of a refused step, with what was measured about it."""
    step = training.step_count + 1
    last = f"those of step {step - 1:,}" if step > 1 else "as they were given"
    return Failure(
        kind="nan",
        title=f"{error.what.capitalize()} became {error.word} at step {step:,}",
        subtitle=f"Paused before the optimizer step, so the weights are {last}.",
        message=f"the {error.what} of step {step:,} {_is(error)} {error.word}",
        values=tuple(_facts(training, error)),
        step=step,
    )


def _facts(training: Training, error: NonFiniteError) -> list[Fact]:
    origin = _origin(training)
    facts = [Fact(label="First non-finite", value=origin or _BY_THE_LOSS[error.what])]
    if training.modeset.compiled and (result := _uncompiled(training)):
        facts.append(Fact(label="Without compile", value=result))
    training.scalars.flush()
    norms = training.scalars.last("train/gradient_norm", 4)
    if norms:
        values = ", ".join(f"{norm:.3g}" for norm in norms)
        facts.append(Fact(label=f"Gradient norm, last {len(norms)} measured", value=values))
    rate = training.learning_rate
    if rate is not None:
        facts.append(Fact(label="Learning rate", value=_since(training, rate)))
    return facts


def _origin(training: Training) -> str:
    """Location of the first value that is not finite; ``""`` if it is no module's output."""
    batch = training.cursor.take()
    inputs, targets = split(batch)
    if _non_finite(inputs):
        return "the batch's inputs"
    if _non_finite(targets):
        return "the batch's labels"
    for name, parameter in training.model.named_parameters():
        if not bool(parameter.isfinite().all()):
            return f"parameter {name}, before this step"
    return _first_module(training, inputs)


def _first_module(training: Training, inputs: Any) -> str:
    """The first module whose output is not finite while its inputs are: ``body.3, forward``."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            if not found and _non_finite(output):
                found.append(name)

        return hook

    handles = [
        module.register_forward_hook(look(name or type(module).__name__))
        for name, module in training.model.named_modules()
    ]
    training.detach_modes()  # a hook inside a compiled region would make Dynamo compile it again
    try:
        with _undone(training), torch.no_grad(), training.modeset.forward_context():
            logits_of(call(training.model, to_device(inputs, training.device)))
    except Exception:  # noqa: BLE001 - this is a second look at a batch that already went wrong
        return ""
    finally:
        for handle in handles:
            handle.remove()
    return f"{found[0]}, forward" if found else ""


def _uncompiled(training: Training) -> str:
    """Whether the same step is finite without compile, as compilers are known to get this wrong."""
    training.detach_modes()
    try:
        inputs, targets = split(training.cursor.take())
        inputs, targets = (to_device(one, training.device) for one in (inputs, targets))
        with _undone(training):
            with training.modeset.forward_context():
                loss = training.loss(logits_of(call(training.model, inputs)), targets)
            trained = [one for one in training.parameters if one.requires_grad]
            gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    except Exception:  # noqa: BLE001 - this is a second look at a batch that already went wrong
        return ""
    if _non_finite(loss) or _non_finite(gradients):
        return "not finite either"
    return "the same step is finite"


@contextmanager
def _undone(training: Training) -> Generator[None]:
    """Context in which the batch is computed once more without a trace, wherever it was refused."""
    with forward_undone(training):
        try:
            yield
        finally:
            training.train_mode.restore()


def _non_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() and not bool(value.isfinite().all())
    if isinstance(value, dict):
        return any(_non_finite(item) for item in value.values())
    if isinstance(value, (tuple, list)):
        return any(_non_finite(item) for item in value)
    return False


def _since(training: Training, rate: float) -> str:
    mantissa, exponent = f"{rate:.1e}".split("e")
    text = f"{mantissa}e{int(exponent)}"
    changes = [marker.step for marker in training.board.markers if "lr " in marker.text]
    return f"{text} since step {changes[-1]}" if changes else text


def _is(error: NonFiniteError) -> str:
    return "is" if error.what == "loss" else "are"
