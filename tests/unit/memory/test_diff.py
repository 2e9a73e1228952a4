"""Two recordings side by side."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.unit.allocator.traces import path_of
from workbench.memory import memory
from workbench.memory.diff import BY


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


def test_what_blocks_cannot_be_grouped_by(small_and_large):
    with pytest.raises(ValueError, match="one of category, module, line"):
        small_and_large[0].diff(small_and_large[1]).by("colour")


def test_what_cannot_be_compared(small_and_large):
    with pytest.raises(TypeError, match="a memory view or a MemoryRecord"):
        small_and_large[0].diff("a file")
