"""Snapshots that a real CUDA allocator wrote; tests skip where they are not beside the checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from workbench.allocator.snapshot.decode import read
from workbench.allocator.snapshot.snapshot import Snapshot

FOLDER = Path(__file__).parents[4] / "shared" / "traces"
FILES = (
    "cnn_old_schema",
    "transformer_forward_mixed",
    "transformer_training_steady",
    "transformer_training_step",
)


def path_of(name: str) -> Path:
    """The path of one of the `FILES`."""
    path = FOLDER / f"{name}.pickle"
    if not path.exists():
        pytest.skip("the recorded CUDA traces are not beside this checkout")
    return path


def snapshot_of(name: str) -> Snapshot:
    """The snapshot in one of the `FILES`."""
    return _read(path_of(name))


@cache
def _read(path: Path) -> Snapshot:
    return read(path)
