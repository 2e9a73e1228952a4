"""The first step after a change of modes: what it cost, and what it changed numerically.

Before the model is handed over, the same batch is computed once more under the modes that it
leaves, with the same weights and random state; the difference of the logits is the numerical effect
of the switch. Random state, buffers and what hooks keep are restored, so the losses that follow are
those of a run without this comparison. Compiled code draws its random numbers in an order of its
own: a model with dropout has no comparable logits across a switch of ``compile``, and none are
compared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data.data import split, to_device
from workbench.experiment.loop.step import StepResult, call
from workbench.experiment.recipe.losses import logits_of
from workbench.experiment.state.hook_copy import hooks_undone
from workbench.torch_private.self_check import notes_of

if TYPE_CHECKING:
    from torch import nn

    from workbench.experiment.training import Training
    from workbench.modes import Mode, ModeSet


def first_step(training: Training, batch: Any) -> StepResult:
    """Switch the model to its new modes and train on ``batch`` with them."""
    leaving = training.attached
    reference = None
    if leaving is not None and not training.cursor.replays_failure:
        reference = _logits_under(leaving, training, batch)
    training.detach_modes()
    training.modeset.attach(training.model)
    training.attached = training.modeset
    if training.modeset.compiled:
        for note in notes_of("compile"):
            training.note(note)
        step = training.step_count + 1
        training.board.say(f"step {step:,}: compiling, which may take a minute", step)
    started = time.perf_counter()
    result = training.run_step(batch)
    if training.device.type == "cuda":
        torch.cuda.synchronize(training.device)  # once per switch: measures the cost of compiling
    seconds = time.perf_counter() - started
    training.timings.first_step(training.modes, seconds)
    if reference is not None and reference.shape == result.logits.shape:
        difference = float((result.logits.detach().float() - reference).abs().max())
        training.timings.parity(training.modes, difference)
    if leaving is not None or training.modeset.compiled:
        _report(training, leaving or training.modeset, seconds)
    return result


def describe_switch(before: ModeSet, after: ModeSet) -> str:
    """``compile blocks + bf16``: modes that are chosen, or those that are back at their default."""
    chosen = [_words(mode) for mode in after if mode.value != mode.default]
    if chosen:
        return " + ".join(chosen)
    changed = [_words(mode) for mode in after if before[mode.name].value != mode.value]
    return " + ".join(changed)


def describe_idle(modes: ModeSet, model: nn.Module) -> str:
    """`` (checkpoint has no effect: model has no blocks)``; empty if every mode may have one."""
    idle = [f"{token} has no effect: {why}" for token, why in modes.without_effect(model).items()]
    return f" ({'; '.join(idle)})" if idle else ""


def _words(mode: Mode) -> str:
    return mode.value if mode.bare else f"{mode.name} {mode.value}"


def _report(training: Training, leaving: ModeSet, seconds: float) -> None:
    step = training.step_count + 1
    text = describe_switch(leaving, training.modeset)
    text += describe_idle(training.modeset, training.model)
    figure = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
    training.board.say(f"step {step:,}: switched to {text}; first step took {figure}", step)


def _logits_under(modes: ModeSet, training: Training, batch: Any) -> torch.Tensor | None:
    """Logits of ``batch`` under ``modes``; None if they cannot be computed."""
    inputs = to_device(split(batch)[0], training.device)
    try:
        with hooks_undone(training), modes.forward_context():
            logits = logits_of(call(training.model, inputs)).detach().float().clone()
        compiled = modes.compiled or training.modeset.compiled
        return None if compiled and training.guard.drew_random_numbers() else logits
    except Exception:  # noqa: BLE001 - a failure under the old modes may be why they are left
        return None
    finally:
        if lost := training.guard.restore():
            training.note(
                f"a forward of step {training.step_count + 1:,} under the previous modes, computed "
                f"for comparison, has written {', '.join(lost)}: their former values were not kept"
            )
        training.train_mode.restore()
        training.logged.drop()
