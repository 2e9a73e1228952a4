from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from workbench.experiment.loop.scalars import Series


@pytest.fixture
def read() -> Callable[[Path], EventAccumulator]:
    """TensorBoard's own reader, set to keep everything."""

    def load(folder: Path) -> EventAccumulator:
        found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        found.Reload()
        return found

    return load


@pytest.fixture
def make_series() -> Callable[..., Series]:
    def series(tag: str, start: int, count: int) -> Series:
        steps = np.arange(start, start + count, dtype=np.int64)
        return tag, steps, steps / 2, 1.7e9 + steps / 8

    return series
