"""Two real captures against each other: what is aligned, and what the union holds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import workbench as wb
from tests.cost import cost
from tests.unit.graph.diff_models import (
    EarlyExit,
    OneLayerTwoBranches,
    Recurrent,
    Swapped,
    capture,
    names,
    parameters,
)
from workbench.graph.diff.diff import ADDED, CHANGED, REMOVED, SAME, diff_records
from workbench.records import DIFF_STATES, GraphDiff, RecordError, read_record


def test_a_capture_is_the_same_as_itself_and_as_the_next_step(images):
    model = EarlyExit()
    first, second = capture(model, images), capture(model, images)
    for other in (first, second):
        found = diff_records(first, other)
        assert not found.node_state.any()
        assert not found.edge_state.any()
        np.testing.assert_array_equal(found.node_a, found.node_b)
        assert found.sentence.startswith("A and B are the same graph: 18 backward nodes")


def test_an_early_exit_stands_out_and_its_line_is_the_cause(both_exits):
    found = diff_records(*both_exits)
    removed = {module for module, _ in names(found, REMOVED)}
    assert removed == {"block2.conv", "block2.norm", "block2", "head", "head.fc", "loss"}
    assert names(found, ADDED) == [("", "div")]
    assert names(found, CHANGED) == []
    assert parameters(found, ADDED) == {"temperature"}
    assert {name.split(".")[0] for name in parameters(found, REMOVED)} == {"block2", "head"}
    assert "B ran `return [first / self.temperature]` (diff_models.py:" in found.sentence
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
    changed = int((found.node_state == CHANGED).sum())
    assert f"; {changed} backward nodes changed; " in found.sentence


def test_casts_are_counted_in_each_capture_as_the_browser_does(images):
    """`castsOf` in views/src/diff/totals.ts: all that a capture has, not only the new ones."""
    model = EarlyExit()
    half = capture(model, images, autocast=True)
    model.early = True
    found = diff_records(half, capture(model, images))
    casts = sum(node.type.startswith("ToCopyBackward") for node in half.nodes)
    assert f"; casts went from {casts} to 0." in found.sentence
    assert "(casts among them) left the graph" in found.sentence


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


def test_ten_times_the_nodes_take_no_hundred_times_as_long():
    model = Recurrent()

    def diffed(steps: int) -> tuple[float, str]:
        before, after = (capture(model, torch.randn(1, count, 4)) for count in (steps, steps + 60))
        sentence = diff_records(before, after).sentence
        return cost(lambda: diff_records(before, after)), sentence

    few, _ = diffed(64)
    many, sentence = diffed(640)
    assert "made 640 calls" in sentence
    assert many < 30 * few  # a square would be a hundred


def test_states_have_names():
    assert DIFF_STATES == ("same", "removed", "added", "changed")


def test_a_record_out_of_order_is_refused(both_exits):
    """As a damaged file may hold; its edges would never come to an end."""
    a, b = both_exits
    backwards = dataclasses.replace(b, edge_from=b.edge_to, edge_to=b.edge_from)
    with pytest.raises(RecordError, match="is damaged: its edge 0 leads from row"):
        diff_records(a, backwards)


def test_the_smallest_graphs_have_a_diff():
    x = torch.ones(3, requires_grad=True)
    one = wb.graph(x.sum()).record
    assert "same graph: 1 backward node," in diff_records(one, one).sentence
    found = diff_records(one, wb.graph((x * 2).sum()).record)
    assert found.sentence.startswith("1 backward node (Mul) joined the graph.")


def test_equal_graphs_with_other_gradients_say_so(record):
    size = len(record.node_type)
    measured = {"gradients": True, "node_gradient_non_finite": np.zeros(size, np.int64)}
    record = dataclasses.replace(record, node_gradient_norm=np.ones(size), **measured)
    larger = dataclasses.replace(record, node_gradient_norm=np.full(size, 10.0))
    said = diff_records(record, larger).sentence
    assert said.startswith("A and B are the same graph")
    assert "gradients grew or shrank by more than × 3" in said
    assert "gradient" not in diff_records(record, record).sentence


def test_a_small_change_of_bytes_is_reported_as_what_it_is(record):
    size = 6 * 2**20
    a = dataclasses.replace(record, saved_bytes=size)
    b = dataclasses.replace(record, saved_bytes=size + 3_000, node_saved_bytes=_one_more(record))
    assert "rose by 2.9 KiB, to 6.0 MiB." in diff_records(a, b).sentence


def _one_more(record):
    bytes_ = record.node_saved_bytes.copy()
    bytes_[bytes_.argmax()] += 3_000
    return bytes_


def test_a_loss_on_another_line_of_the_same_script_is_the_same_loss(classifier, batch):
    x, y = batch
    with wb.graph(classifier) as a:
        F.cross_entropy(classifier(x), y).backward()
    doubled = 2 * x
    with wb.graph(classifier) as b:
        F.cross_entropy(classifier(doubled), y).backward()
    found = a.diff(b).record
    assert found.sentence.startswith("A and B are the same graph")


def test_a_layer_of_torchs_that_both_branches_call_is_in_both():
    model, x = OneLayerTwoBranches(), torch.ones(2, 4)
    with wb.graph(model) as late:
        model(x, False).sum().backward()
    with wb.graph(model) as early:
        model(x, True).sum().backward()
    found = diff_records(late.record, early.record)
    assert {module for module, _ in names(found, REMOVED)} == {"more", ""}
    assert names(found, ADDED) == [("", "mul")]
    assert "In forward of OneLayerTwoBranches, B ran `return self.head(x) * 2`" in found.sentence
