from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.metrics.scalar_encoding import _WORTH_IT, _encode_columns, encode_series
from workbench.metrics.tensorboard_messages import record, scalar_event

POINTS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.floats(width=32, allow_nan=False),
        st.floats(1e9, 3e9),
    ),
    min_size=1,
    max_size=40,
)


def by_tensorboard(tag: str, points: list[tuple[int, float, float]]) -> bytes:
    return b"".join(record(scalar_event(tag, *point)) for point in points)


def columns(points: list[tuple[int, float, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    steps, values, times = zip(*points, strict=True)
    return np.array(steps, dtype=np.int64), np.array(values), np.array(times)


@given(st.text(min_size=1, max_size=60), POINTS)
def test_columns_are_byte_for_byte_what_tensorboard_writes(
    tag: str, points: list[tuple[int, float, float]]
) -> None:
    assert _encode_columns(tag, *columns(points)) == by_tensorboard(tag, points)


@pytest.mark.parametrize("count", [1, _WORTH_IT - 1, _WORTH_IT, 1000])
def test_short_and_long_series_alike(count: int) -> None:
    points = [(100 + n, n / 7, 1.7e9 + n / 64) for n in range(count)]
    assert encode_series(("train/loss", *columns(points))) == by_tensorboard("train/loss", points)


def test_values_float32_cannot_hold_become_infinite_and_nan_stays() -> None:
    written = _encode_columns("loss", *columns([(1, 1e300, 1e9), (2, math.nan, 1e9)]))
    half = len(written) // 2
    values = [struct.unpack("<f", part[-8:-4])[0] for part in (written[:half], written[half:])]
    assert values[0] == math.inf
    assert math.isnan(values[1])
