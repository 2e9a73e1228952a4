"""Operations whose gradient became much larger or smaller from one capture to the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from workbench.records import GraphDiff

BEYOND = 3.0
"""A gradient norm that grew or shrank by more than this factor is worth telling."""


@dataclass(frozen=True)
class GradientChange:
    """L2 norms of the gradient of one operation's output in A and B."""

    row: int
    norm_a: float
    norm_b: float

    @property
    def log_factor(self) -> float:
        """``ln(norm_b / norm_a)``: infinite where one of them is 0 or not finite."""
        if not math.isfinite(self.norm_a) or self.norm_b == 0:
            return -math.inf
        if not math.isfinite(self.norm_b) or self.norm_a == 0:
            return math.inf
        return math.log(self.norm_b / self.norm_a)


def shared_gradients(diff: GraphDiff) -> list[GradientChange]:
    """Gradients that both backwards measured: one operation for each Python call, its last.

    In forward order. Equal infinities are no change and left out.
    """
    if not diff.gradients:
        return []
    is_operation = (diff.node_kind == 0) | (diff.node_kind == 3)
    rows = np.flatnonzero(is_operation & (diff.node_a >= 0) & (diff.node_b >= 0))
    last_of_call: dict[tuple[int, int], GradientChange] = {}
    for row in rows.tolist():
        a, b = float(diff.node_gradient_norm[row]), float(diff.node_gradient_norm_b[row])
        bad_a = int(diff.node_gradient_non_finite[row]) > 0
        bad_b = int(diff.node_gradient_non_finite_b[row]) > 0
        is_known = (bad_a or 0 <= a < math.inf) and (bad_b or 0 <= b < math.inf)
        if not is_known or (bad_a and bad_b):
            continue
        call = int(diff.node_call[row])
        key = (int(diff.node_module[row]), call if call >= 0 else -2 - row)
        last_of_call[key] = GradientChange(row, math.inf if bad_a else a, math.inf if bad_b else b)
    return sorted(last_of_call.values(), key=lambda change: change.row)


def beyond(changes: list[GradientChange], factor: float = BEYOND) -> list[GradientChange]:
    """Those that changed by more than ``factor`` either way, the largest change first."""
    found = [
        change
        for change in changes
        if change.norm_a != change.norm_b and abs(change.log_factor) > math.log(factor)
    ]
    return sorted(found, key=lambda change: -abs(change.log_factor))
