"""Logits of a variant for some samples: as many as may be kept, with the classes last.

A classifier gives one row per sample; a model that answers for every token or pixel gives one row
for each of them. In any case, at most `MOST_VALUES` numbers are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

MOST_VALUES = 2**24
"""Maximum number of values per variant: 64 MiB of float32."""


class Answers:
    """Collects batches of logits, ``[N, classes]``, ``[N, classes, ...]`` or ``[N, ..., classes]``.

    Args:
        samples: number of samples to collect.
    """

    def __init__(self, samples: int) -> None:
        self._wanted = samples
        self.samples = 0
        self._rows: list[torch.Tensor] = []
        self._left = MOST_VALUES

    @property
    def is_full(self) -> bool:
        """Whether no more values would be kept."""
        return self.samples >= self._wanted or self._left <= 0

    def add(self, logits: torch.Tensor, targets: Any) -> None:
        """Add a batch, or the first samples of it."""
        taken = logits.detach()[: self._wanted - self.samples]
        self.samples += len(taken) if taken.ndim else 1
        rows = _rows(taken, targets)
        fits = self._left // max(1, rows.shape[1])
        self._left = self._left - rows.numel() if len(rows) <= fits else 0
        self._rows.append(rows[:fits].float().cpu())

    def save(self, path: Path) -> None:
        """Write the rows to ``path``, as a tensor ``[rows, classes]``."""
        torch.save(torch.cat(self._rows), path)


def compare_answers(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[float, float]:
    """Return (largest absolute difference, share of rows with equal answers); NaN if not finite.

    The answer of a row is the class with the largest logit; for a single logit, whether it is
    positive.

    Raises:
        ValueError: their shapes differ.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"logits {list(ours.shape)} against {list(theirs.shape)}")
    difference = float((ours - theirs).abs().max())
    if ours.shape[1] > 1:
        same = ours.argmax(1) == theirs.argmax(1)
    else:
        same = ((ours > 0) == (theirs > 0))[:, 0]
    return difference, float(same.double().mean())


def _rows(logits: torch.Tensor, targets: Any) -> torch.Tensor:
    """Return ``[rows, classes]``; the axis of the classes is the one that ``targets`` lack."""
    if logits.ndim < 2:
        return logits.reshape(-1, 1)
    wanted = tuple(targets.shape) if isinstance(targets, torch.Tensor) else ()
    if logits.ndim > 2:
        is_second = wanted[1:] == tuple(logits.shape[2:])
        is_last = wanted[1:] == tuple(logits.shape[1:-1]) or (not wanted and logits.ndim == 3)
        logits = logits.movedim(1, -1) if is_second or not is_last else logits
    if wanted and len(wanted) == logits.ndim:  # a target for each logit: each is its own answer
        return logits.reshape(-1, 1)
    return logits.reshape(-1, logits.shape[-1])
