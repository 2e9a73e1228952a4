"""The modes that the user requested, checked against the grammar, this machine and the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workbench.modes.compile.mode import Compile
from workbench.modes.core.model_lock import refuse_prepared
from workbench.modes.modeset import ModeSet


def read_modes(text: Any, device: torch.device) -> ModeSet:
    """Return the modes of ``text``, checked against the grammar alone.

    Raises:
        TypeError: ``text`` is not a string.
        ValueError: a mode or value is unknown; the message lists the valid ones.
    """
    if not isinstance(text, str):
        raise TypeError(f"modes is a {type(text).__name__}; give text such as 'compile+bf16'")
    return ModeSet.parse(text, device)


def find_modes(text: Any, device: torch.device, model: nn.Module) -> ModeSet:
    """Return the modes of ``text``, if this machine and ``model`` can run them.

    No one else may be running the model under modes.

    Raises:
        TypeError: ``text`` is not a string.
        ValueError: a mode is unknown (the message lists the valid ones), this machine cannot run it
            (why, and what to do), or a `workbench.Modes` has prepared the model.
    """
    modeset = read_modes(text, device)
    refuse_prepared(model)
    check_modes(modeset, model)
    return modeset


def check_modes(modeset: ModeSet, model: nn.Module) -> None:
    """Refuse what this machine or ``model`` cannot run.

    Raises:
        ValueError: the message says why, and what to do.
    """
    problem = modeset.unavailable() or modeset.refusal(model)
    if problem:
        raise ValueError(problem)


def with_compile(modeset: ModeSet) -> tuple[ModeSet, str]:
    """Return ``modeset`` for a model that was passed compiled, and a sentence that explains it."""
    compiled, said = modeset, "as it has been chosen here"
    if not modeset.compiled:
        compiled = modeset.with_value(Compile.name, "whole")
        said = "with the default backend and options; exp.modes has others"
    problem = compiled.unavailable()
    if problem:
        return modeset, f"the model was given compiled and is trained without: {problem}"
    return compiled, (
        f"the model was given compiled: its own module is trained, under {compiled}, {said}"
    )
