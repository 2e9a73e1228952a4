"""What runs inside a compiled node: the same operations that AOTAutograd hands a backend."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

import workbench as wb
from tests.unit.graph.compiled_models import (
    CASES,
    Images,
    Oracle,
    Words,
    columns,
    inside,
    lane,
    loss_of,
    ops,
)
from tests.unit.graph.compiled_models import calls as backward_calls
from workbench.graph.capture import compiled_regions
from workbench.records import INNER_ENDS


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_graph_that_a_backend_is_handed(name):
    make, shape = CASES[name]
    oracle, model = Oracle(), make()
    step = torch.compile(model, backend=oracle.backend)
    with wb.graph(step) as view:
        loss_of(step, torch.randn(shape)).backward()
    (graph,) = oracle.backwards
    record = view.record
    assert [op for op, _ in inside(record)] == ops(graph)
    known = [(row, lane(node)) for row, node in enumerate(backward_calls(graph))]
    assert all(inside(record)[row][1] == path for row, path in known if path is not None)
    shapes = [record.strings[row] for row in record.inner_shape]
    assert all(shapes)
    assert set(record.node_kind[record.inner_node]) == {3}
    assert f"{len(shapes)} operations inside" in str(view)


def test_static_forms_keep_it_closed_and_say_the_count(tmp_path):
    step = torch.compile(Words(), backend="aot_eager")
    with wb.graph(step) as view:
        loss_of(step, torch.randn(4, 6, 16)).backward()
    count = len(view.record.inner_node)
    assert f"Compiled: {count} operations inside, in " in view.save(tmp_path / "a.svg").read_text()
    dot = view.save(tmp_path / "a.dot").read_text()
    assert f"{count} backward operations inside" in dot
    assert "layers.0" not in dot  # no cluster without nodes
    other = wb.graph(view.save(tmp_path / "a.safetensors")).record
    assert columns(other) == columns(view.record)
    assert len(view.diff(other).record.inner_node) == 0


def test_rows_name_shape_type_line_and_ends():
    model = Images()
    step = torch.compile(model, backend="aot_eager")
    record = wb.graph(loss_of(step, torch.randn(4, 3, 8, 8)), model=model).record
    rows = inside(record)
    row = rows.index(("convolution_backward", "blocks.0.conv"))
    assert record.strings[record.inner_shape[row]] == "8×3×3×3"  # the input needs no gradient
    assert record.strings[record.inner_dtype[row]] == "float32"
    source = record.sources[record.inner_source[row]]
    assert source.filename.endswith("compiled_models.py")
    assert "self.conv(x)" in source.text
    assert INNER_ENDS[record.inner_ends[row]] == "gives"
    first = rows.index(("mm", "head"))
    assert INNER_ENDS[record.inner_ends[first]] == "takes"


def test_links_lead_from_the_gradient_that_comes_in_to_all_that_go_out():
    model = Words()
    step = torch.compile(model, backend="aot_eager")
    record = wb.graph(loss_of(step, torch.randn(4, 6, 16)), model=model).record
    reached = (record.inner_ends & 1).astype(bool)
    for start, end in zip(record.link_from, record.link_to, strict=True):
        reached[end] |= reached[start]
    gives = (record.inner_ends & 2).astype(bool)
    norms = 4  # of each, one operation gives the gradients of both parameters
    assert gives.sum() == len(list(model.parameters())) - norms
    assert reached[gives].all()
    assert np.all(record.link_from < record.link_to)
    pairs = list(zip(record.link_from.tolist(), record.link_to.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))


def test_sums_of_gradients_stand_where_the_value_was_first_used():
    model = Words()
    step = torch.compile(model, backend="aot_eager")
    record = wb.graph(loss_of(step, torch.randn(4, 6, 16)), model=model).record
    sums = Counter(path for op, path in inside(record) if op == "add")
    # both residual connections of a layer; the input of the first needs no gradient
    assert sums["layers.0"] >= 1
    assert sums["layers.1"] >= 2
    assert sums[""] == 0


def test_every_part_between_graph_breaks_opens():
    oracle, model = Oracle(), Images(breaks=True)
    step = torch.compile(model, backend=oracle.backend)
    with wb.graph(step) as view:
        loss_of(step, torch.randn(4, 3, 8, 8)).backward()
    record = view.record
    nodes = np.unique(record.inner_node)
    assert len(nodes) == len(oracle.backwards) == 3
    lanes = [
        {
            path
            for path, node in zip(record.inner_module, record.inner_node, strict=True)
            if node == n
        }
        for n in nodes
    ]
    names = [{record.modules[row].path for row in part} for part in lanes]
    for part, block in zip(names, ("blocks.0", "blocks.1", "blocks.2"), strict=True):
        assert {f"{block}.conv", f"{block}.norm"} <= part
    assert len(record.inner_node) == sum(len(backward_calls(one)) for one in oracle.backwards)
    assert "3 compiled nodes: " in str(view)


def test_equal_blocks_compiled_one_by_one_keep_their_names():
    model = Images()
    for block in model.blocks:
        block.compile(backend="aot_eager")
    with wb.graph(model) as view:
        loss_of(model, torch.randn(4, 3, 8, 8)).backward()
    found = {path for _, path in inside(view.record)}
    assert found == {f"blocks.{n}{part}" for n in range(3) for part in ("", ".conv", ".norm")}
    assert view.record.notes == ()


def test_modules_of_a_compiled_function_are_those_of_the_model_it_calls():
    model = Words()

    @torch.compile(backend="aot_eager")
    def step(x):
        return loss_of(model, x)

    record = wb.graph(step(torch.randn(4, 6, 16)), model=model).record
    assert ("addmm", "layers.1.up") not in inside(record)
    assert ("mm", "layers.1.up") in inside(record)


def test_looking_changes_nothing_and_compiles_nothing():
    def losses(*, looks: bool) -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Images()
        step = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found, x = [], torch.randn(4, 3, 8, 8)
        for at in range(6):
            loss = loss_of(step, x)
            if looks:
                assert len(wb.graph(loss, model=model).record.inner_node) > 20, at
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        return found

    plain = losses(looks=False)
    before = counters["stats"]["unique_graphs"]
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert losses(looks=True) == plain
    assert counters["stats"]["unique_graphs"] == before + 1


def test_the_inside_is_there_at_every_step_and_nothing_is_kept_of_it():
    model = Images()
    step = torch.compile(model, backend="aot_eager")
    x = torch.randn(4, 3, 8, 8)
    found = []
    for _ in range(3):
        with wb.graph(step) as view:
            loss = loss_of(step, x)
            region = loss.grad_fn.next_functions[0][0].next_functions[0][0]
            graph = weakref.ref(region._forward_cls._lazy_backward_info.bw_module)
            loss.backward()
        found.append(columns(view.record))
    assert found[0] == found[1] == found[2]
    del model, step, loss, region
    torch._dynamo.reset()
    gc.collect()
    assert graph() is None


def test_a_size_that_changes_goes_by_its_symbol():
    oracle, model = Oracle(), Images()
    step = torch.compile(model, backend=oracle.backend, dynamic=True)
    for size in (4, 6):
        record = wb.graph(loss_of(step, torch.randn(size, 3, 8, 8)), model=model).record
    assert len(oracle.backwards) <= 1
    shapes = {record.strings[row] for row in record.inner_shape}
    assert any(shape[0] == "s" and shape != "scalar" for shape in shapes), shapes


def test_eager_backends_leave_no_compiled_node():
    model = Images()
    step = torch.compile(model, backend="eager")
    record = wb.graph(loss_of(step, torch.randn(4, 3, 8, 8)), model=model).record
    assert len(record.inner_node) == len(record.link_from) == 0
    assert (
        record.notes == wb.graph(loss_of(model, torch.randn(4, 3, 8, 8)), model=model).record.notes
    )


def test_a_graph_of_another_form_becomes_a_note(monkeypatch):
    def fail(_graph):
        raise ValueError("no such meta")

    monkeypatch.setattr(compiled_regions, "read_graph", fail)
    model = Images()
    step = torch.compile(model, backend="aot_eager")
    loss = loss_of(step, torch.randn(4, 3, 8, 8))
    record = wb.graph(loss, model=model).record
    assert "could not be read (ValueError: no such meta)" in " ".join(record.notes)
    assert len(record.inner_node) == 0
    loss.backward()
