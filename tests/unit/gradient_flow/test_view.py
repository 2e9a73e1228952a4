"""A gradient flow as text, picture and widget."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.records.support import flow_of as flow
from tests.unit.records.support import gradient_flow as sample
from workbench import display
from workbench.experiment import Experiment
from workbench.gradient_flow.heat_map import heat_map_of
from workbench.gradient_flow.svg import flow_svg
from workbench.gradient_flow.view import GradientFlowView, gradient_flow
from workbench.records import GradientFlow, read_record

NAN, INF = math.nan, math.inf


def test_cells_hold_the_largest_norm_and_the_share_without_one() -> None:
    heat_map = heat_map_of(flow([[1, 2, 4, 8], [0.5, NAN, 0, INF], [-1, -1, 3, 3]]), 2)
    np.testing.assert_array_equal(heat_map.norm, [[2, 8], [0.5, INF], [NAN, 3]])
    np.testing.assert_array_equal(heat_map.missing, [[0, 0], [0.5, 0], [NAN, 0]])
    assert (heat_map.first_step.tolist(), heat_map.last_step.tolist()) == ([1, 3], [2, 4])
    assert heat_map.limits == (0.5, 8)
    assert heat_map.levels().tolist() == [[4, 8], [0, -1], [-1, 5]]


def test_the_text_is_a_table_of_the_modules() -> None:
    text = str(GradientFlowView(flow([[1, 2, 4, 8], [0.5, NAN, 0.25, INF], [-1, -1, 3, 3e-7]])))
    head, *lines = text.splitlines()
    assert head.endswith("steps 1 to 4, 4 of them")
    cells = [re.split(r"\s{2,}", line) for line in lines]
    assert cells == [
        ["module", "first", "median", "largest", "last", "no gradient", "not finite"],
        ["block0", "1", "3", "8", "8", "–", "–"],
        ["block1", "0.5", "0.375", "0.5", "not finite", "1 of 4", "1"],
        ["block2", "3", "1.5", "3", "3e−07", "–", "–"],
    ]


def test_the_picture_distinguishes_each_kind_of_cell() -> None:
    svg = flow_svg(flow([[1e-3, 1.0], [NAN, 0.0], [INF, 1.0]]))
    paths = [element.attrib for element in ET.fromstring(svg).iter() if "d" in element.attrib]
    assert sum("fill-opacity" in path for path in paths) == 2
    assert sum("stroke-dasharray" in path for path in paths) == 1
    assert [path["stroke"] for path in paths if path.get("stroke-width") == "2"] == ["#d0453b"]
    assert "did not run" in svg
    assert "not finite" in svg


@pytest.mark.parametrize("gaps", [0.0, 0.5])
def test_the_picture_stays_small(gaps: float) -> None:
    generator = np.random.default_rng(0)
    norms = 10 ** generator.uniform(-6, 2, (96, 4096))
    norms[generator.random(norms.shape) < gaps] = NAN
    record = flow(norms.tolist(), [f"encoder.layer.{at}.attention.output" for at in range(96)])
    assert len(flow_svg(record)) < 40_000
    assert "56 more modules are not drawn" in flow_svg(record)


def test_hostile_names_stay_text_everywhere() -> None:
    record = flow([[1.0, 2.0]], ["<script>\n" + "x" * 10_000])
    svg = flow_svg(record)
    assert "<script>" not in svg
    ET.fromstring(svg)
    assert max(map(len, str(GradientFlowView(record)).splitlines())) < 200


def test_an_experiment_that_has_not_run_says_so(tmp_path: Path) -> None:
    data = torch.randn(32, 4), torch.arange(32) % 2
    exp = Experiment(nn.Linear(4, 2), data, name="fresh", runs=tmp_path, device="cpu")
    view = GradientFlowView(gradient_flow(exp))
    assert str(view) == "gradient flow of fresh: no step sampled yet."
    assert "No step was sampled yet" in flow_svg(view.record)
    exp.run(steps=2, wait=True)
    after = GradientFlowView(gradient_flow(exp))
    assert str(after).splitlines()[2].startswith("Linear")
    assert repr(after).endswith("of them")
    exp.close()


def test_the_widget_carries_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flow.js").write_text("export default { render() {} }")
    monkeypatch.setattr(display, "STATIC", tmp_path)
    display._widget_class.cache_clear()
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    try:
        view = GradientFlowView(sample())
        data, _ = view._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in data
        assert "data:image/svg+xml;base64," in data["text/html"]
        assert "old steps are thinned out" in data["text/html"]
    finally:
        display._widget_class.cache_clear()


def test_saved_bytes_are_read_again(tmp_path: Path) -> None:
    view = GradientFlowView(sample())
    again = read_record(view.save(tmp_path / "a.safetensors").read_bytes())
    assert isinstance(again, GradientFlow)
    np.testing.assert_array_equal(again.matrix(), sample().matrix())
    assert view.figure().axes
