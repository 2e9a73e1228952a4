"""Stacks become one tree from which every stack can be read back."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.cost import cost
from tests.unit.memory.reading.test_lifetimes import snapshot
from workbench.allocator.snapshot.snapshot import Frame
from workbench.memory import memory
from workbench.memory.files.from_snapshot import record_of_snapshot
from workbench.memory.reading import call_tree as calls_module
from workbench.memory.reading.call_tree import MOST_DEEP, Calls, Line, call_tree
from workbench.records import MemoryRecord


def tree_of(stacks: list[list[int]], num_frames: int):
    start = np.cumsum([0, *map(len, stacks)])
    frames = np.array([frame for stack in stacks for frame in stack], dtype=np.int32)
    return call_tree(start, frames, num_frames)


def read_back(parent, frame, row: int) -> list[int]:
    """Innermost first."""
    found = []
    while row >= 0:
        found.append(int(frame[row]))
        row = int(parent[row])
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=12))
def test_every_stack_is_read_back_from_the_tree_and_no_call_is_there_twice(stacks):
    tree = tree_of(stacks, 6)
    assert [read_back(tree.parent, tree.frame, row) for row in tree.innermost[:-1]] == stacks
    assert tree.innermost[-1] == -1
    assert len({*zip(tree.parent.tolist(), tree.frame.tolist(), strict=True)}) == len(tree.parent)
    assert (tree.parent < np.arange(len(tree.parent))).all()
    assert not tree.is_cut


def test_a_stack_too_deep_keeps_its_outer_calls():
    tree = tree_of([[7] * (MOST_DEEP + 50) + [3], [3]], 8)
    assert tree.is_cut
    assert len(tree.parent) == MOST_DEEP
    kept = read_back(tree.parent, tree.frame, int(tree.innermost[0]))
    assert kept == [7] * (MOST_DEEP - 1) + [3]


def test_too_many_calls_stop_the_tree_at_a_whole_level(monkeypatch):
    monkeypatch.setattr(calls_module, "MOST_CALLS", 50)
    tree = tree_of([[index % 40, 0] for index in range(80)], 40)
    assert not tree.is_cut
    tree = tree_of([[index, index % 40, 0] for index in range(80)], 100)
    assert tree.is_cut
    assert len(tree.parent) == 41


def test_a_hundred_thousand_different_stacks_take_no_longer_than_reading_them_thrice():
    """In Python, one frame after the other."""
    count, deep = 100_000, 40
    stacks = np.repeat(np.arange(deep)[None] * 100, count, axis=0)
    stacks[:, deep - 5 :] += np.random.default_rng(0).integers(0, 10, (count, 5))
    frames = np.ascontiguousarray(stacks[:, ::-1]).astype(np.int32).ravel()
    starts = np.arange(count + 1) * deep
    tree = call_tree(starts, frames, deep * 100)
    reading = cost(lambda: sum(frame for frame in frames.tolist()))
    assert cost(lambda: call_tree(starts, frames, deep * 100)) < 3 * reading
    assert len(np.unique(tree.innermost[:-1])) == len(np.unique(stacks, axis=0))


def test_calls_of_a_recording_are_kept_once_and_bounded(monkeypatch):
    a, b, c = (Line("train.py", line, "step") for line in (1, 2, 3))
    calls = Calls()
    assert calls.row([]) == -1
    assert [calls.row([a, b]), calls.row([a]), calls.row([a, b]), calls.row([a, c])] == [1, 0, 1, 2]
    assert calls.parents == [-1, 0, 0]
    assert calls.row([a] * 1000) == calls.row([a] * MOST_DEEP)
    assert calls.is_cut
    monkeypatch.setattr(calls_module, "MOST_CALLS", len(calls.lines))
    assert calls.row([b, c]) == -1


FRAMES = (
    Frame("/home/me/train.py", 10, "<module>"),
    Frame("/home/me/model.py", 20, "forward"),
    Frame("/lib/site-packages/torch/nn/modules/linear.py", 125, "forward"),
    Frame("??", 0, "at::mm"),
)


def traced(stacks: list[list[int]], **given) -> MemoryRecord:
    """A snapshot with one allocation for each of these stacks, innermost frame first."""
    trace = [("alloc", 1024 * row, 512) for row, _ in enumerate(stacks)]
    found = snapshot(trace, [(0, 20 << 20)])
    start = np.cumsum([0, *map(len, stacks)])
    frames = np.array([frame for stack in stacks for frame in stack], dtype=np.int32)
    facts = {"frames": FRAMES, "stack_start": start, "stack_frame": frames} | given
    for name, value in {"trace_stack": np.arange(len(stacks)), **facts}.items():
        object.__setattr__(found, name, value)
    return record_of_snapshot(found, title="trace")


def stack_of(record: MemoryRecord, block: int) -> list[str]:
    """Outermost first."""
    rows = read_back(record.call_parent, record.call_source, int(record.block_call[block]))
    return [f"{record.sources[row].label} {record.sources[row].function}" for row in rows][::-1]


def test_a_snapshots_blocks_keep_library_calls_and_their_own_line():
    record = traced([[3, 2, 1, 0], [1, 0], [3], []])
    assert stack_of(record, 0) == [
        "train.py:10 ", "model.py:20 forward", "linear.py:125 forward", "??:0 at::mm",
    ]  # fmt: skip
    assert stack_of(record, 1) == ["train.py:10 ", "model.py:20 forward"]
    own = [record.sources[row].line if row >= 0 else None for row in record.block_source]
    assert own == [20, 20, None, None]
    assert record.block_call[3] == -1
    assert MemoryRecord.from_bytes(record.to_bytes()).call_parent.tolist() == [-1, -1, 0, 2, 3]


def test_a_snapshots_stacks_cut_short_are_said_to_be():
    record = traced([[1] * (MOST_DEEP + 1) + [0]])
    assert any("leaves out the innermost" in note for note in record.notes)
    assert len(stack_of(record, 0)) == MOST_DEEP
    assert "leaves out" not in " ".join(traced([[1, 0]]).notes)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.twice(x).relu()

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * 2


def functions(record: MemoryRecord, op: str) -> list[list[str]]:
    rows = np.flatnonzero(record.block_op == record.strings.index(op))
    return [[line.rpartition(" ")[2] for line in stack_of(record, row)] for row in rows]


def test_a_recorded_block_knows_all_user_calls_and_backward_those_of_its_forward():
    model = Net()

    def run() -> None:
        model(torch.ones(2, 8)).sum().backward()

    with memory() as mem:
        run()
    own = test_a_recorded_block_knows_all_user_calls_and_backward_those_of_its_forward.__name__
    assert functions(mem.record, "aten.addmm") == [[own, "run", "forward", "twice"]]
    assert functions(mem.record, "aten.relu") == [[own, "run", "forward"]]
    assert functions(mem.record, "aten.threshold_backward") == [[own, "run", "forward"]]
    for block, row in enumerate(mem.record.block_call.tolist()):
        if row >= 0:  # the line is that of the innermost call
            assert mem.record.call_source[row] == mem.record.block_source[block]


def test_the_line_of_a_call_is_where_it_stands_not_where_its_function_begins():
    with memory() as mem:
        kept = [torch.ones(1), torch.ones(2)]
        kept.append(
            torch.ones(3)
        )  # fmt: skip
    first = test_the_line_of_a_call_is_where_it_stands_not_where_its_function_begins.__code__
    lines = [mem.record.sources[row].line - first.co_firstlineno for row in mem.record.block_source]
    assert lines == [2, 2, 4]


def test_a_forward_run_again_in_backward_is_called_by_backward():
    model = Net()

    def again(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(model, x, use_reentrant=False)

    with memory() as mem:
        loss = again(torch.ones(2, 8, requires_grad=True)).sum()
        loss.backward()
    first, second = functions(mem.record, "aten.addmm")
    assert first[1:] == ["again", "forward", "twice"]
    assert second[-2:] == ["forward", "twice"]


def test_backward_of_a_graph_made_before_belongs_to_the_call_that_asked_for_it():
    loss = Net()(torch.ones(2, 8)).sum()
    with memory() as mem:
        loss.backward()
    own = test_backward_of_a_graph_made_before_belongs_to_the_call_that_asked_for_it.__name__
    assert functions(mem.record, "aten.threshold_backward") == [[own]]
