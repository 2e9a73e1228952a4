"""The static picture: small, well-formed, and true to the record."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from workbench.memory.reading.text import format_bytes
from workbench.memory.render.svg import COLOURS, axis_top, static_html, to_svg
from workbench.records import CATEGORIES

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> str:
    return " | ".join("".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text"))


def test_a_real_step_is_drawn_with_its_peak_phases_and_legend(step_record):
    svg = to_svg(step_record)
    shown = texts(svg)
    assert f"peak {format_bytes(step_record.peak_bytes)}" in shown
    for word in (
        "forward",
        "backward",
        "optimizer",
        "parameters",
        "buffers + inputs",
        "at the peak",
    ):
        assert word in shown
    fills = {node.get("fill") for node in ET.fromstring(svg).iter(f"{SVG}path")}
    assert COLOURS[CATEGORIES.index("activations")] in fills
    assert len(static_html(step_record)) < 40_000


def test_the_largest_picture_stays_under_40_kb(hand_record):
    import random

    draw = random.Random(0)
    names = (
        "activations",
        "temporaries",
        "gradients",
        "optimizer",
        "buffers",
        "parameters",
        "unknown",
    )
    rows = [(2 * i, 2 * i + 1, draw.randint(1, 999), draw.choice(names), "m") for i in range(5_000)]
    rows += [(-1, -1, draw.randint(1, 99), name, "m") for name in names]
    record = hand_record(rows, [("forward", 0, 10_000)], notes=("A note.",) * 3)
    assert len(static_html(record).encode()) < 40_000


def test_areas_are_drawn_to_scale(hand_record):
    record = hand_record([(-1, -1, 4, "parameters", ""), (0, 1, 4, "", "")], [("forward", 0, 2)])
    paths = {p.get("fill"): p.get("d") for p in ET.fromstring(to_svg(record)).iter(f"{SVG}path")}
    blue, orange = paths[COLOURS[0]], paths[COLOURS[5]]
    heights = [float(pair.split(",")[1]) for pair in blue[1:-1].split("L")]
    tops = [float(pair.split(",")[1]) for pair in orange[1:-1].split("L")]
    assert (max(heights) - min(tops)) == pytest.approx(2 * (max(heights) - min(heights)), abs=0.2)


def test_hostile_names_stay_text(hand_record):
    name = "</text><script>alert(1)</script>\n" + "y" * 10_000
    record = hand_record([(0, -1, 1, "", name)], [("forward", 0, 1)], title=name, notes=(name,))
    html = static_html(record)
    assert "<script" not in html
    assert len(html) < 40_000
    ET.fromstring(to_svg(record))


def test_an_empty_record_is_a_sentence(hand_record):
    assert "Nothing was allocated or freed on cpu." in texts(to_svg(hand_record([])))


def test_reserved_memory_is_a_line_above(hand_record):
    record = hand_record([(0, -1, 1, "", "m")], [("forward", 0, 1)])
    object.__setattr__(record, "reserved_bytes", 20 << 20)
    assert "reserved | 20.0 MiB" in texts(to_svg(record))


@pytest.mark.parametrize("value", [1, 500, 1024, 3.3 * 2**20, 341 * 2**20, 1000 * 2**30, 5e15])
def test_axes_end_just_above_what_they_show(value: float):
    assert value < axis_top(value) <= 2.5 * value + 1


def test_reserved_memory_goes_as_it_went_and_a_gpu_bounds_it(refused_record):
    svg = to_svg(refused_record)
    shown = texts(svg)
    assert f"predicted peak {format_bytes(refused_record.peak_bytes)}" in shown
    for word in ("reserved", "552 MiB GPU", "40.0 MiB usable", "refused"):
        assert word in shown
    titles = [node.text for node in ET.fromstring(svg).iter(f"{SVG}title")]
    asked = format_bytes(int(refused_record.oom_bytes[-1]))
    assert f"out of memory: {asked} requested" in titles
    html = static_html(refused_record)
    assert "<p style='margin:4px 0'>Out of memory" in html
    assert "Predicted, not measured: on a 552 MiB GPU" in html
    assert len(html) < 40_000


def test_reserved_memory_is_drawn_as_it_went(refused_record):
    starts = np.full(len(refused_record.segment_bytes), -1, dtype=np.int32)
    starts[-3:] = [5, 9, 14]
    grown = replace(refused_record, segment_start=starts)
    svg = to_svg(grown)
    lines = [node.get("d") for node in ET.fromstring(svg).iter(f"{SVG}path") if node.get("stroke")]
    (line,) = (line for line in lines if "L" in line)
    heights = [float(corner.split(",")[1]) for corner in line[1:].split("L")]
    assert len(set(heights)) == 4
    assert heights == sorted(heights, reverse=True)


def test_a_gpu_far_above_is_named_and_not_drawn(refused_record):
    record = replace(refused_record, card="H200 <&>", card_bytes=140 << 30)
    assert "↑ | H200 <&> | 140 GiB usable" in texts(to_svg(record))
    assert COLOURS[4] in to_svg(record)


def test_the_interval_of_a_prediction_is_a_bracket(refused_record):
    low = refused_record.reserved_bytes
    record = replace(refused_record, peak_interval=(low, low + (9 << 20)))
    assert f"{format_bytes(low)} to {format_bytes(low + (9 << 20))}" in texts(to_svg(record))
    assert len(to_svg(record)) > len(to_svg(refused_record))
