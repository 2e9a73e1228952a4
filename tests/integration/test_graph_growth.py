"""What captures leave behind: nothing, in memory and in the numbers of the training."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Iterator

import psutil
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.cost import cost
from tests.waiting import wait_until
from workbench.graph import GraphView
from workbench.graph.render.text import MAX_ROWS
from workbench.records import GraphRecord

CAPTURES = 1_000


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(4 * 6 * 6, 10),
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 1, 8, 8), torch.randint(10, (8,))


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())


@pytest.fixture
def one_thread() -> Iterator[None]:
    """These models are too small to share out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_thousand_captures_do_not_grow(one_thread: None) -> None:
    """Counted once things are warm: Python's heap, live tensors, and the process as a whole."""
    model, process = network(), psutil.Process()
    x, y = batch()

    def capture() -> None:
        model.zero_grad()
        with wb.graph(model) as view:
            loss = F.cross_entropy(model(x), y)
            assert wb.graph(loss).record.saved_bytes
            loss.backward()
        assert view.record.to_bytes()

    for _ in range(50):
        capture()
    tensors, resident = live_tensors(), process.memory_info().rss
    for _ in range(CAPTURES):
        capture()
    grown = process.memory_info().rss - resident
    print(f"\n{CAPTURES} captures: process grew by {grown / 2**20:+.1f} MiB")
    assert live_tensors() <= tensors
    assert grown < 8 * 2**20  # 8 kB a capture; one kept record alone is 15 kB

    tracemalloc.start()
    try:
        for _ in range(200):  # the last eight traces are kept as plain data, and free lists fill
            capture()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(300):
            capture()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"300 captures: Python's heap grew by {after - before:+} bytes")
    assert after - before < 300 * 64  # it wavers by a few kB; a record alone is 15 kB


def train(*, captures: bool, steps: int = 100) -> tuple[list[float], list[torch.Tensor]]:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch()
        if captures and step % 10 == 0:
            with wb.graph(model) as view:
                loss = F.cross_entropy(model(x), y)
                loss.backward()
            assert view.record.notes == ()
        else:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [tensor.clone() for tensor in model.state_dict().values()]


def test_a_capture_every_ten_steps_leaves_every_bit_of_the_training(one_thread: None) -> None:
    plain, captured = train(captures=False), train(captures=True)
    assert plain[0] == captured[0]
    assert all(torch.equal(a, b) for a, b in zip(plain[1], captured[1], strict=True))


def shown(steps: int) -> tuple[float, GraphRecord, float, str, str]:
    """What it costs to capture so many multiplications and tanh, and to show them; and both."""
    weight = torch.randn(2, requires_grad=True)
    value = torch.ones(2)
    for _ in range(steps):
        value = torch.tanh(value * weight)
    loss = value.sum()
    views: list[GraphView] = []
    captured_s = cost(lambda: views.append(wb.graph(loss)), times=1)
    found: list[str] = []

    def show() -> None:
        found.extend([str(views[0]), views[0]._repr_mimebundle_()[0]["text/html"]])

    shown_s = cost(show, times=1)
    return captured_s, views[0].record, shown_s, *found


def test_two_hundred_thousand_nodes_end_in_a_summary() -> None:
    """Nothing recurses, and what is shown stays small however large the graph."""
    few_captured_s, _, few_shown_s, *_ = shown(10_000)
    captured_s, record, shown_s, text, html = shown(100_000)
    assert len(record.node_type) == 200_002
    print(f"\n200,002 nodes: captured in {captured_s:.1f} s, summed up in {shown_s:.1f} s")
    assert len(text.splitlines()) < MAX_ROWS + 10
    assert len(html) < 40_000
    assert "200,001 operations" in text
    assert captured_s < 40 * few_captured_s  # ten times the nodes; a square would be a hundred
    assert shown_s < 40 * few_shown_s
    assert len(record.to_bytes()) < 200 * len(record.node_type)
    # its nodes are dropped on a thread of their own, which takes a while
    wait_until(lambda: "workbench-graph-release" not in [t.name for t in threading.enumerate()])
