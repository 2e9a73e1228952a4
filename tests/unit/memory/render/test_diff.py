"""Two recordings side by side."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from torch import nn

from tests.unit.allocator.traces import path_of
from tests.unit.memory import diff_case
from workbench.memory import memory
from workbench.memory.render.diff import BY, MemoryDiff


def step(batch_size, width=64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 4))
    x = torch.randn(batch_size, 32)
    with memory() as found:
        model(x).sum().backward()
    return found


@pytest.fixture(scope="module")
def small_and_large():
    return step(256), step(1024)


@pytest.mark.parametrize("kind", BY)
def test_changes_add_up_to_that_of_the_peak(small_and_large, kind):
    diff = small_and_large[0].diff(small_and_large[1])
    assert diff.change == diff.b.peak_bytes - diff.a.peak_bytes > 0
    rows = diff.by(kind)
    assert sum(row.change for row in rows) == diff.change
    assert sum(row.before for row in rows) == diff.a.peak_bytes
    assert sum(row.after for row in rows) == diff.b.peak_bytes
    sizes = [abs(row.change) for row in rows]
    assert sizes == sorted(sizes, reverse=True)


def test_a_larger_batch_costs_activations_and_no_parameters(small_and_large):
    rows = {row.what: row for row in small_and_large[0].diff(small_and_large[1]).by("category")}
    assert rows["parameters"].change == 0
    loss = 4  # bytes: one number, however large the batch
    assert rows["activations"].after - loss == 4 * (rows["activations"].before - loss)
    assert rows["activations"].blocks_after == rows["activations"].blocks_before


def test_a_wider_layer_is_named():
    diff = step(256).diff(step(256, width=128))
    grown = {row.what for row in diff.by("module") if row.change > 0}
    assert {"0", "2"} <= grown
    text = str(diff)
    assert "by module" in text
    assert "+" in text


def test_with_itself_nothing_differs(small_and_large):
    diff = small_and_large[0].diff(small_and_large[0].record)
    assert diff.change == 0
    assert str(diff).count("nothing differs") == len(BY)


def test_snapshots_are_compared_too():
    forward = memory(path_of("transformer_forward_mixed"))
    diff = forward.diff(memory(path_of("transformer_training_step")))
    assert diff.change > 20 << 30
    assert [row.what for row in diff.by("category")] == ["unknown"]


def test_the_browser_is_tested_with_what_python_says():
    case = json.loads(diff_case.FILE.read_text(encoding="utf-8"))
    assert case == json.loads(json.dumps(diff_case.case()))


def test_the_largest_change_is_said(small_and_large):
    diff = small_and_large[0].diff(small_and_large[1])
    assert diff.sentence.startswith("B's peak is ")
    assert " higher, " in diff.sentence
    assert "the largest change is +" in diff.sentence
    back = MemoryDiff(diff.b, diff.a)
    assert " lower, " in back.sentence
    assert "−" in back.sentence
    same = MemoryDiff(diff.a, diff.a)
    assert same.sentence.endswith("; what they are made of is the same.")


def test_a_cell_that_ran_again_is_the_same_code():
    a, b = diff_case.record(diff_case.side(1, 7, 1)), diff_case.record(diff_case.side(1, 9, 1))
    assert a.sources[0].cell != b.sources[0].cell
    for kind in ("line", "stack"):
        rows = MemoryDiff(a, b).by(kind)
        assert any("of a cell: run()" in row.what for row in rows)
        assert all(row.change == 0 for row in rows)


def test_stacks_are_told_by_a_persons_own_calls():
    rows = MemoryDiff(*(diff_case.record(diff_case.side(seed, 7, 1)) for seed in (1, 2))).by(
        "stack"
    )
    names = {row.what for row in rows}
    assert "line 3 of a cell: run() › forward model.py:24" in names
    assert not any("linear.py" in name for name in names)
    assert "library code alone" in names


def test_it_is_shown_and_saved(small_and_large, tmp_path):
    diff = small_and_large[0].diff(small_and_large[1])
    data, _ = diff._repr_mimebundle_()
    assert data["text/plain"] == str(diff)
    assert "by module" in data["text/html"]
    assert len(data["text/html"].encode()) < 40_000
    for name in ("diff.png", "diff.svg", "diff.pdf"):
        assert diff.save(tmp_path / name).stat().st_size > 5_000
    with diff.save(tmp_path / "diff.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for kind in BY:
        changes = [int(row["change_bytes"]) for row in rows if row["by"] == kind]
        assert sum(changes) == diff.change
    with pytest.raises(ValueError, match=r"\.png, \.pdf, \.svg, \.csv"):
        diff.save(tmp_path / "diff.doc")


def test_nothing_recorded_beside_something(small_and_large):
    with memory() as empty:
        pass
    diff = empty.diff(small_and_large[0])
    assert diff.change == small_and_large[0].record.peak_bytes
    assert "B's peak is" in diff.sentence
    assert "by category" in diff._repr_mimebundle_()[0]["text/html"]


def test_what_blocks_cannot_be_grouped_by(small_and_large):
    with pytest.raises(ValueError, match="one of category, module, line"):
        small_and_large[0].diff(small_and_large[1]).by("colour")


def test_what_cannot_be_compared(small_and_large):
    with pytest.raises(TypeError, match="a memory view or a MemoryRecord"):
        small_and_large[0].diff("a file")
