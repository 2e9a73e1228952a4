"""A walked graph must be free to go. Each program runs alone, because its failure is a crash."""

from __future__ import annotations

import pytest

BUILD = """
import resource, threading, time, torch, weakref
import workbench as wb
from workbench.graph.core import deep_graph_release

def build(steps):
    weight = torch.randn(2, 2, requires_grad=True)
    value = torch.ones(2, 2)
    for step in range(steps):
        value = torch.tanh(value * weight)
        if step == steps // 2:
            middle = weakref.ref(value)
    loss = value.sum()
    assert len(wb.graph(loss).record.node_type) == 2 * steps + 2
    return loss, value, middle
"""

FREED = """
# in a small stack a graph that is less deep overflows it
_, most = resource.getrlimit(resource.RLIMIT_STACK)
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, most))
threading.stack_size(1 << 20)
STEPS = 5_000

def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)

def settle(middle):
    wait_until(lambda: middle() is None and threading.active_count() == 1)

loss, value, middle = build(STEPS)
del loss, value
settle(middle)

loss, value, middle = build(STEPS)
loss.backward()
loss = loss * 2
del value, loss
settle(middle)

loss, value, middle = build(STEPS)
del loss
# the graph of the loss is freed; the output and all above it stay, with a release list of their own
wait_until(lambda: deep_graph_release._KEY in value.grad_fn.metadata)
wait_until(lambda: deep_graph_release._releaser._num_lists == 1)
assert middle() is not None
del value
settle(middle)
"""

AT_EXIT = """
loss, value, middle = build(30_000)
del loss
"""


@pytest.mark.parametrize("program", [FREED, AT_EXIT], ids=["freed", "at exit"])
def test_a_deep_graph_is_freed_without_a_crash(ran, program):
    done = ran(BUILD + program + "print('alive')")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "alive\n"
