"""Empty columns of a record, for what was not recorded (yet)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

_BIN = ("node", "power")
_INNER = ("node", "op", "module", "shape", "dtype", "source")


def no_gradients(num_nodes: int) -> dict[str, Any]:
    """Gradient columns of a record whose backward was not watched."""
    unknown = np.full(num_nodes, np.nan, dtype=np.float32)
    return {
        "node_gradient_norm": unknown,
        "node_gradient_max": unknown,
        "node_gradient_zeros": unknown,
        "node_gradient_non_finite": np.full(num_nodes, -1, dtype=np.int64),
        "gradients": False,
        "non_finite": None,
        **no_bins(),
    }


def no_bins() -> dict[str, Any]:
    """Histogram columns of a record without histograms of its gradients."""
    return {**_empty(f"bin_{name}" for name in _BIN), "bin_share": np.zeros(0, dtype=np.float32)}


def no_inner() -> dict[str, Any]:
    """Columns of a record that has no compiled nodes, or not the operations inside them."""
    columns = _empty([*(f"inner_{name}" for name in _INNER), "link_from", "link_to"])
    return {**columns, "inner_ends": np.zeros(0, dtype=np.uint8)}


def _empty(names: Iterable[str]) -> dict[str, Any]:
    return {name: np.zeros(0, dtype=np.int32) for name in names}
