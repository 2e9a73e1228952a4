"""The chart never loses the peak and says where it is."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.memory.reading.chart import peak_label, to_chart
from workbench.records import CATEGORIES, MemoryChart

ROWS = [
    (-1, -1, 2, "parameters", ""),
    (0, 5, 3, "activations", "body"),
    (1, 2, 1, "temporaries", "body"),
    (3, -1, 2, "gradients", "head"),
    (4, 6, 9, "temporaries", "head"),
]
PHASES = [("forward", 0, 3), ("backward", 3, 7)]


def layers(chart: MemoryChart) -> np.ndarray:
    return chart.bytes.reshape(len(CATEGORIES), chart.num_points)


def test_a_short_record_keeps_every_event(hand_record):
    record = hand_record(ROWS, PHASES)
    chart = to_chart(record)
    assert chart.num_points == 8
    assert layers(chart).sum(axis=0).tolist() == [x * 2**20 for x in (2, 5, 6, 5, 7, 16, 13, 4)]
    assert (chart.peak_point, chart.peak_bytes) == (5, 16 << 20)
    assert [(p.name, p.start, p.end) for p in chart.phases] == [
        ("forward", 1, 4),
        ("backward", 4, 8),
    ]


@pytest.mark.parametrize("points", [1, 2, 3, 5, 7, 8, 400])
def test_the_peak_survives_any_reduction(hand_record, points: int):
    record = hand_record(ROWS, PHASES)
    chart = to_chart(record, points)
    assert chart.num_points <= points
    totals = layers(chart).sum(axis=0)
    assert totals.max() == totals[chart.peak_point] == record.peak_bytes
    peak = dict(zip(CATEGORIES, chart.at_peak, strict=True))
    assert peak["temporaries"] == 9 << 20
    assert layers(chart)[:, chart.peak_point].tolist() == list(chart.at_peak)


def test_a_spike_of_one_event_in_a_hundred_thousand_survives(hand_record):
    rows = [(2 * i, 2 * i + 1, 1, "temporaries", "") for i in range(50_000)]
    rows[31_007] = (62_014, 62_015, 700, "temporaries", "spike")
    chart = to_chart(hand_record(rows, [("forward", 0, 100_000)]))
    assert chart.num_points == 400
    assert layers(chart).max() == 700 << 20
    assert chart.peak_label == "forward of spike"


def test_where_the_peak_is(hand_record):
    assert peak_label(hand_record(ROWS, PHASES)) == "backward of head"
    assert peak_label(hand_record(ROWS)) == "head"
    assert peak_label(hand_record(ROWS, [("optimizer", 0, 7)])) == "optimizer"
    only_frees = hand_record([(-1, 0, 5, "activations", "x")])
    assert peak_label(only_frees) == "before the first allocation"
    assert peak_label(hand_record([])) == ""


def test_an_empty_record_has_a_chart_of_nothing(hand_record):
    chart = to_chart(hand_record([]))
    assert (chart.num_points, chart.peak_bytes, sum(chart.at_peak)) == (1, 0, 0)


def test_a_chart_travels_as_bytes(step_record):
    chart = to_chart(step_record)
    assert MemoryChart.from_bytes(chart.to_bytes()).peak_label == chart.peak_label
    assert len(chart.to_bytes()) < 16_000
