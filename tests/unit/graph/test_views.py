"""The static views of one record: table, picture, figure, mime bundle."""

from __future__ import annotations

import dataclasses
import math
import re
from io import BytesIO
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
import torch
from torch import nn

import workbench as wb
from workbench import display
from workbench.graph import GraphView
from workbench.graph.core.number_format import byte_size, short
from workbench.graph.render.layout import BOX_HEIGHT, BOX_WIDTH, MAX_BOXES, layout
from workbench.graph.render.svg import graph_html, graph_svg
from workbench.graph.render.text import MAX_ROWS, subtree_bytes


def test_the_table_names_modules_calls_and_bytes(record):
    text = str(GraphView(record))
    lines = text.splitlines()
    assert re.match(r"EarlyExit: loss \d", lines[0])
    assert "operations, 14 parameters" in lines[1]
    (norm,) = [line for line in lines if line.startswith("    norm") and "BatchNorm2d" in line][:1]
    assert "batch_norm" in norm
    assert "4×8×8×8" in norm
    assert any(line.startswith("loss") and "cross_entropy" in line for line in lines)
    assert "held anyway" in text


def test_one_line_speaks_only_for_modules_with_the_same_figures():
    """Stages of one class that halve the picture save different bytes."""
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU()) for _ in range(3)))
    with wb.graph(model) as view:
        model(torch.randn(2, 4, 32, 32)).sum().backward()
    text = str(view)
    assert "each" not in text
    own = {m.path: subtree_bytes(view.record)[i] for i, m in enumerate(view.record.modules)}
    assert len({own[str(stage)] for stage in range(3)}) > 1
    for stage in range(3):
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {stage} ")]
        assert byte_size(own[str(stage)]) in line


def test_a_line_for_several_gives_the_range_of_their_gradients():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))
    with wb.graph(model) as view:
        model(torch.randn(2, 8, requires_grad=True)).square().mean().backward()
    norms = [math.hypot(*(p.grad.norm() for p in module.parameters())) for module in model]
    (line,) = [line for line in str(view).splitlines() if "each" in line]
    assert f"{min(norms[1:]):.3g} … {max(norms[1:]):.3g}" in line or (
        f"{min(norms):.3g} … {max(norms):.3g}" in line
    )


def test_equal_layers_are_listed_once():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    with wb.graph(model):
        loss = model(torch.ones(1, 3, 8)).sum()
    text = str(wb.graph(loss))
    assert text.count("linear1") == 2  # the first differs: its input needs no gradient
    assert "1 … 11, each" in text


def test_the_table_of_a_huge_model_is_short():
    model = nn.ModuleList(nn.Linear(2, i + 1) for i in range(200))
    with wb.graph(model):
        loss = sum(m(torch.ones(1, 2)).sum() for m in model)
    assert len(str(wb.graph(loss)).splitlines()) < MAX_ROWS + 10


def test_the_picture_is_well_formed_and_shows_every_block(record):
    root = ET.fromstring(graph_svg(record))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    joined = " ".join(filter(None, texts))
    for name in ("block1.conv", "block2.norm", "aux", "head", "loss", "add, relu"):
        assert name in joined
    assert root.get("role") == "img"
    assert root.find("{http://www.w3.org/2000/svg}title").text.startswith("Autograd graph")


def test_boxes_do_not_overlap_and_links_run_down(record):
    placed = layout(record)
    boxes = [(box.x, box.y) for box in placed.boxes]
    for i, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[:i]:
            assert abs(x - other_x) >= BOX_WIDTH or abs(y - other_y) >= BOX_HEIGHT
    for link in placed.links:
        assert placed.boxes[link.start].y < placed.boxes[link.end].y
    assert sum(box.saved_bytes for box in placed.boxes) == record.saved_bytes
    assert placed.boxes[-1].label == "loss"


def test_a_lane_passes_no_box(record):
    placed = layout(record)
    right = max(box.x for box in placed.boxes) + BOX_WIDTH
    lanes = [link for link in placed.links if link.lane >= 0]
    assert lanes
    for link in lanes:
        vertical = [b for a, b in pairwise(placed.route(link)) if a[0] == b[0]]
        assert any(x > right for x, _ in vertical)


def chain(length):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(length)))


@pytest.mark.parametrize("length", [1, 50, 400])
def test_the_picture_has_one_size_for_every_model(length):
    model = chain(length)
    with wb.graph(model):
        loss = model(torch.ones(1, 2)).sum()
    picture = graph_svg(wb.graph(loss).record)
    assert len(picture) < 40_000
    assert len(layout(wb.graph(loss).record).boxes) <= MAX_BOXES + 2
    if length > 2:
        assert f"× {length}" in picture


def test_a_recurrent_module_is_marked_and_drawn_once():
    cell, head = nn.GRUCell(2, 2), nn.Linear(2, 1)
    model = nn.ModuleDict({"cell": cell, "head": head})
    with wb.graph(model):
        state = torch.zeros(1, 2)
        for _ in range(30):
            state = cell(torch.ones(1, 2), state) * 0.9
        loss = head(state).sum()
    record = wb.graph(loss).record
    assert len(graph_svg(record)) < 40_000
    assert "↻" in graph_svg(record)


def test_the_figure_can_be_saved(record):
    figure = GraphView(record).figure()
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert "block1.conv" in labels


def test_the_picture_needs_no_script_and_no_style(record):
    html = graph_html(record)
    assert "<script" not in html
    assert "<style" not in html
    assert "currentColor" in html


def test_a_checkout_without_bundles_says_what_to_run(record, monkeypatch, tmp_path):
    monkeypatch.setattr(display, "STATIC", tmp_path)
    bundle, _ = GraphView(record)._repr_mimebundle_()
    assert "not built" in bundle["text/html"]
    assert "data:image/svg+xml;base64," in bundle["text/html"]
    assert set(bundle) == {"text/html", "text/plain"}


def test_a_front_end_gets_the_widget_with_the_records_bytes(record, monkeypatch, tmp_path):
    (tmp_path / "graph.js").write_text("export default {}")
    monkeypatch.setattr(display, "STATIC", tmp_path)
    display._widget_class.cache_clear()
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    bundle, _ = GraphView(record)._repr_mimebundle_()
    assert set(bundle) == {
        "application/vnd.jupyter.widget-view+json",
        "text/html",
        "text/plain",
    }
    display._widget_class.cache_clear()


def test_no_widget_where_no_person_looks(record):
    assert set(GraphView(record)._repr_mimebundle_()[0]) == {"text/html", "text/plain"}


def test_words():
    assert byte_size(0) == "0 B"
    assert byte_size(256) == "256 B"
    assert byte_size(8 * 2**20) == "8.0 MiB"
    assert byte_size(413 * 2**10) == "413 KiB"
    assert short("a\nb", 9) == "a\N{REPLACEMENT CHARACTER}b"
    assert len(short("x" * 10_000, 22)) == 22


def test_a_module_called_twice_has_a_box_for_each_call_and_a_loop_has_one():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.act = nn.Tanh()

        def forward(self, x):
            return self.act(self.second(self.act(self.first(x))))

    class Loop(Twice):
        def forward(self, x):
            for _ in range(9):
                x = self.act(self.second(x))
            return x

    def boxes_of(model):
        with wb.graph(model):
            loss = model(torch.randn(2, 4)).sum()
        return layout(wb.graph(loss).record).boxes

    labels = [box.label for box in sorted(boxes_of(Twice()), key=lambda box: box.rank)]
    assert labels == ["first", "act", "second", "act", "loss"]
    looped = [box for box in boxes_of(Loop()) if box.label == "act"]
    assert len(looped) == 1
    assert "9 ops" in looped[0].detail


def test_notes_of_a_file_send_nothing_to_the_terminal(record):
    said = dataclasses.replace(record, notes=("\x1b[2Jgone\nsecond line",))
    assert "\x1b" not in str(GraphView(said))
    assert "\x1b" not in str(GraphView(said).diff(record))


def test_a_loss_without_a_model_is_named_once(record):
    x = torch.ones(3, requires_grad=True)
    bare = wb.graph((x * 2).sum()).record
    assert repr(GraphView(bare)).startswith("loss 6; ")
    stepped = dataclasses.replace(bare, title="loss, step 3")
    assert str(GraphView(stepped)).startswith("loss 6, step 3\n")
    assert "loss: loss" not in graph_svg(bare)
    assert repr(GraphView(record)).startswith("EarlyExit: loss ")
