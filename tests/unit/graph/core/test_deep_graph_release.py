"""A walked graph must be free to go. Each program runs alone, because its failure is a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUILD = """
import threading, time, torch, weakref
import workbench as wb
from workbench.graph.core import deep_graph_release

def build():
    weight = torch.randn(2, 2, requires_grad=True)
    value = torch.ones(2, 2)
    for step in range(30_000):
        value = torch.tanh(value * weight)
        if step == 15_000:
            middle = weakref.ref(value)
    loss = value.sum()
    assert len(wb.graph(loss).record.node_type) == 60_002
    return loss, value, middle
"""

FREED = """
def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)

def settle(middle):
    wait_until(lambda: middle() is None and threading.active_count() == 1)

loss, value, middle = build()
del loss, value
settle(middle)

loss, value, middle = build()
loss.backward()
loss = loss * 2
del value, loss
settle(middle)

loss, value, middle = build()
del loss
# the graph of the loss is freed; the output and all above it stay, with a release list of their own
wait_until(lambda: deep_graph_release._KEY in value.grad_fn.metadata)
wait_until(lambda: deep_graph_release._releaser._num_lists == 1)
assert middle() is not None
del value
settle(middle)
"""

AT_EXIT = """
loss, value, middle = build()
del loss
"""


@pytest.mark.parametrize("program", [FREED, AT_EXIT], ids=["freed", "at exit"])
def test_a_deep_graph_is_freed_without_a_crash(program):
    done = subprocess.run(
        [sys.executable, "-c", BUILD + program + "print('alive')"],
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "alive\n"
