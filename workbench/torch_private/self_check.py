"""Whether this torch is the one that Workbench knows: its private names, exercised once each.

Workbench reads parts of torch that have no public name, and another version may have moved or
changed them. Before a feature reads them for the first time in a process, it has them checked; the
checks stand next to the wrappers, one or more in every file of this package. What is found is never
silent: it becomes a note in the record of a capture and in the notes of an experiment, which its
panel shows; a feature that cannot work without a name refuses, in the same words.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

import torch

from workbench.torch_private.lookup import TESTED, Check, MissingInTorchError

Feature = Literal[
    "training", "saving", "graphs", "checkpoints", "memory", "types", "compile", "parallel"
]

FILES: dict[Feature, tuple[str, ...]] = {
    "training": (
        "kernels",
        "backward_engine",
        "contexts",
        "settings",
        "modules",
        "operators",
        "pytree",
        "grad_scaler",
        "tensors",
        "graph_leaves",
    ),
    "saving": ("tensor_files",),
    "graphs": ("autograd", "graph_leaves", "tensors", "modules", "contexts"),
    "checkpoints": ("checkpoint",),
    "memory": ("memory", "autograd", "graph_leaves", "tensors", "modules", "contexts"),
    "types": ("dispatch", "autograd", "graph_leaves", "modules", "contexts", "pytree"),
    "compile": ("compiler", "dynamo", "aot"),
    "parallel": (
        "distributed",
        "autograd",
        "graph_leaves",
        "tensors",
        "operators",
        "contexts",
        "pytree",
    ),
}
"""The files of this package that a feature uses. Those of ``compile`` import the compiler, which
takes seconds."""


_REFUSED: dict[Feature, str] = {
    "training": "no step can be trained",
    "saving": "no checkpoint can be written or read",
    "graphs": "no graph can be captured",
    "checkpoints": "no checkpointed region can be read",
    "memory": "no memory can be recorded",
    "types": "no data types can be recorded",
    "compile": "nothing can be compiled",
    "parallel": "nothing can be trained on ranks",
}


class Problem(NamedTuple):
    """A check that failed."""

    sentence: str
    """What this torch lacks or does otherwise, and what that concerns."""
    is_vital: bool
    """Whether nothing of the feature works without it."""


@cache
def self_check(feature: Feature) -> tuple[Problem, ...]:
    """Exercise every private name that ``feature`` uses, once per process."""
    checks = [check for file in FILES[feature] for check in checks_of(file)]
    return tuple(
        problems([one for one in checks if feature in (one.concerns or [feature])], feature)
    )


def notes_of(feature: Feature) -> tuple[str, ...]:
    """Return a sentence for everything in which this torch differs; usually none.

    Raises:
        MissingInTorchError: it differs in something without which the feature cannot work.
    """
    found = self_check(feature)
    vital = [problem.sentence for problem in found if problem.is_vital]
    if vital:
        raise MissingInTorchError(" ".join(vital))
    return tuple(problem.sentence for problem in found)


def checks_of(file: str) -> tuple[Check, ...]:
    """Return the checks of one file of this package."""
    module = importlib.import_module(f"workbench.torch_private.{file}")
    checks: tuple[Check, ...] = module.CHECKS
    return checks


def problems(checks: Sequence[Check], feature: Feature | None = None) -> list[Problem]:
    """Run checks; return a problem for each that fails.

    Each runs on a thread of its own: no context of the caller (modes, default device, gradients
    turned off) changes what it sees, and one that fails half-way leaves no context behind.
    """
    found: list[Problem] = []

    def run(check: Check) -> None:
        try:
            check.run()
        except BaseException as error:  # noqa: BLE001 - whatever another torch raises
            refused = _REFUSED[feature] if feature and feature in check.vital_for else ""
            found.append(Problem(_sentence(check, error, refused), bool(refused)))

    for check in checks:
        thread = threading.Thread(target=run, args=(check,), name="workbench-self-check")
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending: nothing that is found will be seen
            break
        thread.join()
    return found


def _sentence(check: Check, error: BaseException, refused: str) -> str:
    why = type(error).__name__
    if str(error) and not isinstance(error, MissingInTorchError):
        why = f"{why}: {str(error).splitlines()[0]}"
    return (
        f"torch {torch.__version__} lacks or has changed {', '.join(check.names)} ({why}), which "
        f"Workbench uses for {check.used_for}: {refused or check.instead}. "
        f"It was tested with torch {TESTED}."
    )
