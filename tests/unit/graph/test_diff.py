"""Two real captures against each other: what is aligned, what is said, what is drawn."""

from __future__ import annotations

import dataclasses
import json
import linecache
import re
import time
from io import BytesIO
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.branch import condition_of
from workbench.graph.diff import ADDED, CHANGED, REMOVED, SAME, diff_records
from workbench.graph.diff_view import GraphDiffView, diff
from workbench.graph.gradient_change import beyond, shared_gradients
from workbench.graph.svg import graph_svg
from workbench.records import DIFF_STATES, GraphDiff, SourceLine, read_record

SVG = "{http://www.w3.org/2000/svg}"


class Exit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class EarlyExit(nn.Module):
    """Leaves after the first exit when ``early`` is set."""

    def __init__(self):
        super().__init__()
        self.block1, self.block2 = Block(3, 8), Block(8, 16)
        self.aux, self.head = Exit(8), Exit(16)
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.early = False

    def forward(self, x):
        x = self.block1(x)
        first = self.aux(x)
        if self.early:
            return [first / self.temperature]
        return [first, self.head(self.block2(x))]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 8)
        states = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            states.append(h)
        return [self.head(torch.stack(states, 1).mean(1))]


def capture(model, x, autocast=False):
    torch.manual_seed(0)
    y = torch.zeros(x.shape[0], dtype=torch.long)
    with wb.graph(model), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = sum(F.cross_entropy(out, y) for out in model(x))
    return wb.graph(loss).record


@pytest.fixture
def images():
    return torch.randn(4, 3, 16, 16)


@pytest.fixture
def both_exits(images):
    torch.manual_seed(0)
    model = EarlyExit()
    late = capture(model, images)
    model.early = True
    return late, capture(model, images)


def names(record, state):
    """(module, operation) of the operations in one state."""
    rows = np.flatnonzero((record.node_state == state) & (record.node_kind != 1))
    return [(record.nodes[row].module, record.nodes[row].op) for row in rows]


def parameters(record, state):
    rows = np.flatnonzero((record.node_state == state) & (record.node_kind == 1))
    return {record.nodes[row].name for row in rows}


def test_a_capture_is_the_same_as_itself_and_as_the_next_step(images):
    model = EarlyExit()
    first, second = capture(model, images), capture(model, images)
    for other in (first, second):
        found = diff_records(first, other)
        assert not found.node_state.any()
        assert not found.edge_state.any()
        np.testing.assert_array_equal(found.node_a, found.node_b)
        assert found.sentence.startswith("A and B are the same graph: 18 operations")


def test_an_early_exit_stands_out_and_its_line_is_the_cause(both_exits):
    found = diff_records(*both_exits)
    removed = {module for module, _ in names(found, REMOVED)}
    assert removed == {"block2.conv", "block2.norm", "block2", "head", "head.fc", "loss"}
    assert names(found, ADDED) == [("", "div")]
    assert names(found, CHANGED) == []
    assert parameters(found, ADDED) == {"temperature"}
    assert {name.split(".")[0] for name in parameters(found, REMOVED)} == {"block2", "head"}
    assert "B ran `return [first / self.temperature]` (test_diff.py:" in found.sentence
    assert "under `if self.early:`; A's graph has nothing of that line." in found.sentence
    assert "among them all of block2 and head, left the graph" in found.sentence
    cause = found.sources[found.cause_source]
    assert cause.text == "return [first / self.temperature]"


def test_of_two_calls_on_one_line_the_one_with_the_same_input_is_kept(both_exits):
    """Both losses are computed on one line; the early one is in both captures."""
    found = diff_records(*both_exits)
    nodes = {
        row: {int(f) for f in found.edge_from[found.edge_to == row]}
        for row in range(len(found.node_type))
    }
    kept = [
        row
        for row in range(len(found.node_type))
        if found.nodes[row].type == "LogSoftmaxBackward0" and found.node_state[row] == SAME
    ]
    assert len(kept) == 1
    makers = {found.nodes[row].module for row in nodes[kept[0]]}
    assert makers == {"aux.fc", ""}  # A's logits, and B's after the division


def test_back_again_the_other_exit_is_told(both_exits):
    late, early = both_exits
    found = diff_records(early, late)
    assert names(found, REMOVED) == [("", "div")]
    assert "A ran `return [first / self.temperature]`" in found.sentence
    assert "B's graph has nothing of that line" in found.sentence


def test_autocast_adds_casts_and_changes_dtypes(images):
    model = EarlyExit()
    found = diff_records(capture(model, images), capture(model, images, autocast=True))
    added = [row for row in range(len(found.node_type)) if found.node_state[row] == ADDED]
    assert added
    assert all(found.nodes[row].type == "ToCopyBackward0" for row in added)
    assert not (found.node_state == REMOVED).any()
    convolutions = [row for row in range(len(found.node_type)) if found.nodes[row].op == "conv2d"]
    changed = [row for row in convolutions if found.node_state[row] == CHANGED]
    assert len(changed) == 2
    for row in changed:
        assert found.nodes[row].dtype == "float32"
        assert found.strings[found.node_dtype_b[row]] == "bfloat16"
        cast = next(r for r in added if found.node_call[r] == found.node_call[row])
        assert cast < row
    assert found.sentence.startswith("B computed in bfloat16 what A computed in float32")
    assert "(all casts) joined the graph" in found.sentence


def test_a_loop_that_ran_longer_leaves_its_last_rounds_over():
    model = Recurrent()
    short, long = (capture(model, torch.randn(2, steps, 4)) for steps in (100, 130))
    found = diff_records(short, long)
    assert not (found.node_state == REMOVED).any()
    added = np.flatnonzero(found.node_state == ADDED)
    per_round = len(added) / 30
    assert per_round == int(per_round)
    assert found.node_b[added].min() > found.node_b[found.node_state == SAME].min()
    kept = np.flatnonzero((found.node_a >= 0) & (found.node_kind == 0))
    np.testing.assert_array_equal(found.node_a[kept], np.sort(found.node_a[kept]))
    assert "`h, c = self.cell(x[:, t], (h, c))`" in found.sentence
    assert "made 100 calls of lstm_cell in A and 130 in B" in found.sentence
    assert diff_records(long, short).sentence.count("130 calls of lstm_cell in A and 100 in B") == 1


def test_another_batch_size_is_named(images):
    model = EarlyExit()
    found = diff_records(capture(model, images), capture(model, images[:2]))
    assert "The first dimension went from 4 to 2 in all" in found.sentence
    assert not np.isin(found.node_state, (REMOVED, ADDED)).any()


def test_two_different_models_are_called_that(images):
    other = nn.Sequential(nn.Flatten(), nn.Linear(768, 5), nn.ReLU(), nn.Linear(5, 10))
    with wb.graph(other):
        loss = other(images).square().mean()
    found = diff_records(capture(EarlyExit(), images), wb.graph(loss).record)
    assert found.sentence.startswith("A and B are different models (EarlyExit and Sequential)")
    assert "0 correspond" in found.sentence


class Swapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.order = (self.first, self.second)

    def forward(self, x):
        for layer in self.order:
            x = layer(x)
        return [x]


def test_layers_that_changed_places_do_not_close_a_circle():
    model = Swapped()
    forth = capture(model, torch.randn(2, 4))
    model.order = model.order[::-1]
    back = capture(model, torch.randn(2, 4))
    found = diff_records(forth, back)
    assert (found.edge_from < found.edge_to).all()
    assert (found.node_state == REMOVED).any()


def test_the_union_holds_both_graphs(both_exits):
    a, b = both_exits
    found = diff_records(a, b)
    for record, rows, missing in ((a, found.node_a, ADDED), (b, found.node_b, REMOVED)):
        place = {int(row): at for at, row in enumerate(rows) if row >= 0}
        assert len(place) == len(record.node_type)
        edges = sorted((place[f], place[t]) for f, t in record.edges.tolist())
        here = found.edges[found.edge_state != missing]
        assert sorted(map(tuple, here.tolist())) == edges
        for row, at in place.items():
            assert record.nodes[row].type == found.nodes[at].type
            assert record.nodes[row].name == found.nodes[at].name
            assert record.nodes[row].module == found.nodes[at].module
    assert (found.edge_from < found.edge_to).all()
    assert found.a.root == found.root
    assert found.node_b[found.b.root] == b.root
    assert found.saved_bytes == found.node_saved_bytes.sum()
    assert (found.hold_node[:-1] <= found.hold_node[1:]).all()
    held = found.storage_bytes[np.unique(found.hold_storage)]
    assert held.sum() == found.storage_bytes.sum()
    module_a = [module for module in found.modules if module.parent < 0]
    assert [module.path for module in module_a] == ["", "loss"]


def test_totals_are_those_of_the_captures(both_exits):
    a, b = both_exits
    found = diff_records(a, b)
    for side, record in ((found.a, a), (found.b, b)):
        assert side.saved_bytes == record.saved_bytes
        assert side.loss == record.loss
        assert side.num_parameters == (record.node_kind == 1).sum()
        assert side.gradient_norm is None or record.gradients


def test_the_record_survives_its_own_bytes(both_exits):
    found = diff_records(*both_exits)
    again = read_record(found.to_bytes())
    assert isinstance(again, GraphDiff)
    assert again.sentence == found.sentence
    assert again.a == found.a
    np.testing.assert_array_equal(again.node_state, found.node_state)


def test_an_edited_line_is_still_the_same_operation(images):
    """The cell was changed and run again: other file, other line, other text."""
    before = capture(EarlyExit(), images)
    moved = tuple(
        dataclasses.replace(
            line, filename="/tmp/edited.py", line=line.line + 7, text=line.text.replace("x", "h")
        )
        for line in before.sources
    )
    found = diff_records(before, dataclasses.replace(before, sources=moved))
    assert not found.node_state.any()


def test_without_source_lines_operations_align_too(images):
    torch.manual_seed(0)
    model = EarlyExit()
    records = []
    for early in (False, True):
        model.early = early
        loss = sum(F.cross_entropy(out, torch.zeros(4, dtype=torch.long)) for out in model(images))
        records.append(wb.graph(loss, model=model).record)
    found = diff_records(*records)
    assert {"block2.conv", "head.fc"} <= {module for module, _ in names(found, REMOVED)}
    assert "block1.conv" not in {module for module, _ in names(found, REMOVED)}


def test_ten_thousand_nodes_take_less_than_a_second():
    model = Recurrent()
    short, long = (capture(model, torch.randn(1, steps, 4)) for steps in (640, 700))
    assert len(long.node_type) > 10_000
    start = time.process_time()
    found = diff_records(short, long)
    assert time.process_time() - start < 1.0
    assert "made 640 calls" in found.sentence


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


def test_the_table_is_readable(both_exits):
    lines = str(diff(*both_exits)).splitlines()
    assert lines[0] == "A: EarlyExit"
    (operations,) = [line for line in lines if line.startswith("Operations")]
    assert operations.split() == ["Operations", "18", "10", "−8"]
    text = "\n".join(lines)
    assert "− Removed: " in text
    assert re.search(r"block2 +conv2d, batch_norm, relu +3 operations, 4 parameters", text)
    assert re.search(r"EarlyExit +div +1 operation, 1 parameter +test_diff.py:\d+", text)


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
    bundle = view._repr_mimebundle_()
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
        "EarlyExit → EarlyExit: − 9 removed, + 1 added, ≠ 0 changed, 9 same operations"
    )


def test_views_are_taken_and_other_things_refused(both_exits):
    a, b = both_exits
    assert diff(wb.graph(a), wb.graph(b)).record.sentence == diff(a, b).record.sentence
    with pytest.raises(TypeError, match="got int; it takes two captured graphs"):
        diff(a, 3)
    with pytest.raises(TypeError, match="got a diff; it compares two captures"):
        diff(a, diff(a, b))


def test_states_have_names():
    assert DIFF_STATES == ("same", "removed", "added", "changed")


CODE = """\
def forward(x, deep):
    if x.sum() > 0:
        if deep:
            return x * 2
        x = x + 1
    else:
        x = x - 1
    return x
"""


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        (4, "`if deep:`"),
        (5, "`if x.sum() > 0:`"),
        (7, "the else of `if x.sum() > 0:`"),
        (8, ""),
        (2, ""),
        (99, ""),
    ],
)
def test_the_condition_over_a_line_is_read_from_its_source(tmp_path, line, condition):
    file = tmp_path / "model.py"
    file.write_text(CODE)
    text = CODE.splitlines()[line - 1].strip() if line < 9 else "x = 1"
    assert condition_of(SourceLine(filename=str(file), line=line, text=text)) == condition


def test_no_condition_is_told_of_code_that_has_changed(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(CODE.replace("x * 2", "x * 3"))
    assert not condition_of(SourceLine(filename=str(file), line=4, text="return x * 2"))
    file.write_text("%magic\n" + CODE)
    linecache.checkcache()
    assert not condition_of(SourceLine(filename=str(file), line=5, text="return x * 2"))
    assert not condition_of(SourceLine(filename=str(tmp_path / "gone.py"), line=1, text="x"))


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


def test_frozen_parameters_are_the_cause(images):
    model = EarlyExit()
    records = []
    for trains in (True, False):
        for parameter in model.block1.parameters():
            parameter.requires_grad_(trains)
        with wb.graph(model):
            loss = model(images)[-1].sum()
        records.append(wb.graph(loss).record)
    found = diff_records(*records)
    assert "4 parameters (block1.conv.weight and others) are frozen in B only." in found.sentence
    back = diff_records(*records[::-1])
    assert "are frozen in A only." in back.sentence


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(12))
        self.dropped = frozenset()

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            if number not in self.dropped:
                x = torch.tanh(layer(x))
        return [x]


def test_dropped_layers_are_named_and_the_line_that_ran_less_often():
    model, x = Stack(), torch.randn(2, 4)
    full = capture(model, x)
    model.dropped = {3, 7}
    found = diff_records(full, capture(model, x))
    assert "`x = torch.tanh(layer(x))`" in found.sentence
    assert "12 calls of linear in A and 10 in B" in found.sentence or (
        "12 calls of tanh in A and 10 in B" in found.sentence
    )
    assert "among them all of layers.3 and layers.7, left the graph" in found.sentence
    removed = {module for module, _ in names(found, REMOVED)}
    assert {"layers.3", "layers.7"} <= removed
    assert not removed & {"layers.2", "layers.4", "layers.11"}


def test_one_operation_for_another_is_named():
    records = []
    for activation in (nn.ReLU(), nn.GELU()):
        model, x = nn.Sequential(nn.Linear(4, 4), activation), torch.ones(2, 4)
        with wb.graph(model):
            loss = model(x).sum()
        records.append(wb.graph(loss).record)
    found = diff_records(*records)
    assert "1 operation (relu) left the graph; 1 operation (gelu) joined" in found.sentence
    module = next(module for module in found.modules if module.path == "1")
    assert module.cls == "ReLU → GELU"
