"""What hooks keep, put back after a step that is only tried: a counter, a list, a moving average.

A hook that counts would count a step that nobody takes: one that is computed to be looked at
(`workbench.experiment.rehearsal`), and the first part of a batch on a rank. What it writes is where
its code reaches (`workbench.experiment.hook_reach`), and has its former contents again afterwards.
Objects of libraries are left alone: a writer, say, has written.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.experiment.hook_reach import known_of, reached
from workbench.experiment.object_change import fill
from workbench.experiment.object_contents import Contents

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_MOST_BYTES = 2**30
"""Of values of tensors and arrays that are copied; the others are named if they change."""


@contextmanager
def hooks_undone(training: Training) -> Generator[None]:
    """What hooks write inside, into objects and variables of the user's, is undone.

    Args:
        training: whose hooks; it notes what could not be put back.
    """
    found = reached(training, training.asked_from, known_of(training), here=True)
    room = _MOST_BYTES
    before: list[tuple[Contents, bool]] = []
    for _, value in found:
        size = _bytes(value)
        copied = size <= room
        before.append((Contents(value, copied=copied), copied))
        room -= size if copied else 0
    try:
        yield
    finally:
        lost: list[str] = []
        for (path, value), (contents, copied) in zip(found, before, strict=True):
            change = contents.since(Contents(value))
            if change is not None and copied:
                fill(value, change)
            elif change is not None:
                lost.append(path)
        if lost:
            training.note(
                f"a step that was computed and undone may have changed {', '.join(lost)}, which "
                "is too large to be copied"
            )


def _bytes(value: Any) -> int:
    return value.nbytes if isinstance(value, (torch.Tensor, np.ndarray)) else 0
