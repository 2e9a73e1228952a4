"""The diff as text, picture, figure and file, and the gradients it lists."""

from __future__ import annotations

import dataclasses
import json
import re
from io import BytesIO
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.unit.graph.diff_models import (
    EarlyExit,
    Stack,
    capture,
)
from workbench import display
from workbench.graph.diff.causes import beyond, shared_gradients
from workbench.graph.diff.diff import diff_records
from workbench.graph.diff.view import GraphDiffView, diff
from workbench.graph.render.svg import graph_svg
from workbench.records import GraphDiff

SVG = "{http://www.w3.org/2000/svg}"


def with_norms(record, norms):
    return dataclasses.replace(
        record,
        gradients=True,
        node_gradient_norm=norms,
        node_gradient_non_finite=np.zeros(len(norms), np.int64),
    )


def test_gradients_beyond_three_times_are_listed_largest_first(images):
    record = capture(EarlyExit(), images)
    ones = np.ones(len(record.node_type), np.float32)
    rows = [row for row, node in enumerate(record.nodes) if node.op in ("relu", "div", "mean")]
    later = ones.copy()
    later[rows[0]], later[rows[1]], later[rows[2]] = 0.1, 2.9, 40.0
    found = diff_records(with_norms(record, ones), with_norms(record, later))
    changes = beyond(shared_gradients(found))
    assert [round(change.norm_b, 3) for change in changes] == [40.0, 0.1]
    text = str(GraphDiffView(found))
    assert re.search(r"Gradient beyond × 3: 2 of \d+ shared calls", text)
    assert "▲ × 40.0" in text
    assert "▼ ÷ 10.0" in text
    assert "Gradient norm, all" in text


def test_gradients_of_one_side_only_are_not_compared(images):
    record = capture(EarlyExit(), images)
    unknown = np.full(len(record.node_type), np.nan, np.float32)
    plain = dataclasses.replace(record, gradients=False, node_gradient_norm=unknown)
    found = diff_records(with_norms(record, np.ones(len(unknown), np.float32)), plain)
    assert shared_gradients(found) == []
    assert "Gradient beyond" not in str(GraphDiffView(found))


def test_measured_gradients_are_compared_and_summed(images):
    """The backward of each step is watched; the total is what gradient clipping would see."""
    torch.manual_seed(0)
    model = EarlyExit()
    target = torch.zeros(4, dtype=torch.long)
    records, totals = [], []
    for scale in (1.0, 5.0):
        model.zero_grad()
        with wb.graph(model) as view:
            loss = sum(F.cross_entropy(out, target) for out in model(images))
            (scale * loss).backward()
        totals.append(float(nn.utils.get_total_norm([p.grad for p in gradients(model)])))
        records.append(view.record)
    found = diff_records(*records)
    assert found.gradients
    assert found.a.gradient_norm == pytest.approx(totals[0], rel=1e-5)
    assert found.b.gradient_norm == pytest.approx(totals[1], rel=1e-5)
    assert not found.node_state.any()
    changes = beyond(shared_gradients(found))
    assert changes
    assert all(change.norm_b == pytest.approx(5 * change.norm_a, rel=1e-4) for change in changes)
    assert "÷" not in str(GraphDiffView(found)).split("Gradient beyond")[1]


def gradients(model):
    return [parameter for parameter in model.parameters() if parameter.grad is not None]


def test_a_norm_of_all_gradients_is_said_only_where_all_are_finite():
    weights = [torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)]
    model = nn.ParameterList(weights)

    def captured(backward):
        with wb.graph(model) as view:
            backward(model[0].sum() + (model[1].sqrt() * 0).sum())
        return view

    one_nan = captured(lambda loss: loss.backward())
    of_none = captured(lambda loss: torch.autograd.grad(loss * 2, [loss]))
    sides = one_nan.diff(of_none).record
    assert (sides.a.gradient_norm, sides.b.gradient_norm) == (None, None)
    with torch.no_grad():
        model[1].fill_(0.25)
    finite = captured(lambda loss: loss.backward())  # of ones and of zeros
    assert finite.diff(finite).record.a.gradient_norm == pytest.approx(2**0.5)


def test_the_table_is_readable(both_exits):
    lines = str(diff(*both_exits)).splitlines()
    assert lines[0] == "A: EarlyExit"
    (nodes,) = [line for line in lines if line.startswith("Backward nodes")]
    assert nodes.split() == ["Backward", "nodes", "18", "10", "−8"]
    text = "\n".join(lines)
    assert "− Removed: " in text
    assert re.search(r"block2 +conv2d, batch_norm, relu +3 nodes, 4 parameters", text)
    assert re.search(r"EarlyExit +div +1 node, 1 parameter +diff_models.py:\d+", text)


def test_the_picture_shows_states_by_more_than_colour(both_exits):
    root = ET.fromstring(graph_svg(diff_records(*both_exits)))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"−", "+", "≠"} <= set(texts)
    assert any(element.get("stroke-dasharray") for element in root.iter(f"{SVG}rect"))
    ghosts = [e for e in root.iter(f"{SVG}path") if e.get("stroke-opacity") == "0.17"]
    assert ghosts
    assert "block1" in texts  # unchanged: stays closed
    assert "block1.conv" not in texts


def test_the_view_has_every_form(both_exits, tmp_path):
    view = diff(*both_exits)
    assert isinstance(view.record, GraphDiff)
    bundle, _ = view._repr_mimebundle_()
    assert bundle["text/plain"] == str(view)
    assert "<script" not in bundle["text/html"]
    assert len(bundle["text/html"]) < 40_000
    buffer = BytesIO()
    view.figure().savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    for suffix in ("safetensors", "svg", "dot", "json"):
        assert view.save(tmp_path / f"diff.{suffix}").stat().st_size > 1000
    graph = json.loads((tmp_path / "diff.json").read_text())["graphs"][0]
    values = [pair["value"] for node in graph["nodes"] for pair in node["attrs"]]
    assert {"removed", "added", "same"} <= set(values)
    assert repr(view) == (
        "EarlyExit: A → B: − 9 removed, + 1 added, ≠ 0 changed, 9 same backward nodes"
    )


def test_views_are_taken_and_other_things_refused(both_exits):
    a, b = both_exits
    assert diff(wb.graph(a), wb.graph(b)).record.sentence == diff(a, b).record.sentence
    with pytest.raises(TypeError, match="got int; it takes two captured graphs"):
        diff(a, 3)
    with pytest.raises(TypeError, match="got a diff; it compares two captures"):
        diff(a, diff(a, b))


def test_modules_that_differ_in_a_number_only_share_a_line():
    model, x = Stack(), torch.randn(2, 4)
    text = str(diff(capture(model, x), capture(model, x, autocast=True)))
    (line,) = [line for line in text.splitlines() if "ToCopy of linear" in line]
    assert "layers.* × 12, each" in line
    model.dropped = {0, 1}
    text = str(diff(capture(Stack(), x), capture(model, x)))
    assert "layers.0 " in text
    assert "layers.1 " in text


def test_where_a_person_looks_there_is_a_widget_that_carries_the_diff(
    both_exits, monkeypatch, tmp_path
):
    (tmp_path / "diff.js").write_text("export default {}")
    monkeypatch.setattr(display, "STATIC", tmp_path)
    display._widget_class.cache_clear()
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    data, _ = diff(*both_exits)._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    display._widget_class.cache_clear()
