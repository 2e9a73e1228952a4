"""What a recorded step costs beside a plain one, and beside torch's own two ways to look.

`MemTracker` tells categories and modules; the profiler with ``profile_memory`` tells allocations.
All of them run in turn in one process, so that a slow minute hits every one. Whether a recording
leaves anything behind is measured apart: a peer in between leaves the heap and the caches in
another state.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from tests.benchmarks.table import median, quartiles, versions
from tests.models.resnet import ResNet
from workbench.memory import memory

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]
ROUNDS, WARM_UP = 7, 1
AROUND = 1.02


class Transformer(nn.Module):
    """Three encoder layers over token ids, mean-pooled."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        self.embed, self.head = nn.Embedding(1000, 128), nn.Linear(128, 10)
        self.encoder = nn.TransformerEncoder(layer, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class Unrolled(nn.Module):
    """An LSTM cell in a Python loop: tiny operations, the dearest case for anything that looks."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(64, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state[0])


class Sequence(nn.Module):
    """The same as one operation: the kernel loops."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


CASES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "ResNet, 8 x 64 px": lambda: (ResNet((1, 1, 1, 1), 32, 10), torch.randn(8, 3, 64, 64)),
    "transformer, 16 x 64": lambda: (Transformer(), torch.randint(0, 1000, (16, 64))),
    "LSTM, 32 x 60": lambda: (Sequence(), torch.randn(32, 60, 64)),
    "LSTM cell, 32 x 60": lambda: (Unrolled(), torch.randn(32, 60, 64)),
}


class _Count(TorchDispatchMode):
    """How many operations a step has."""

    num_operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_operations += 1
        return func(*args, **(kwargs or {}))


class Loop:
    """A training step, plain and looked at in three ways."""

    def __init__(self, make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
        torch.manual_seed(0)
        self.model, self.x = make()
        self.y = torch.arange(len(self.x)) % 10
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        counter = _Count()
        with counter:
            self.plain()
        self.num_operations = counter.num_operations

    def plain(self) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()

    def recorded(self) -> None:
        with memory() as mem:
            self.plain()
        assert mem.record.peak_bytes

    def tracked(self) -> None:
        from torch.distributed._tools.mem_tracker import MemTracker

        tracker = MemTracker()
        tracker.track_external(self.model, self.optimizer, self.x, self.y)
        with tracker:
            self.plain()
        assert tracker.get_tracker_snapshot("peak")

    def profiled(self) -> None:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            self.plain()
        # its own table of events takes many times as long; here nobody asks for it
        assert found.profiler is not None


def milliseconds(action: Callable[[], None]) -> float:
    """Processor time: what other work on the machine takes is not in it."""
    start = time.process_time()
    action()
    return 1e3 * (time.process_time() - start)


def row(name: str, values: list[float], unit: str) -> str:
    low, high = quartiles(values)
    return f"  {name:34} {median(values):9.3f} {low:9.3f} .. {high:.3f}  [{unit}]"


def compared(loop: Loop, ways: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Milliseconds of a step looked at in each way in turn, and of the plain ones around it."""
    times: dict[str, list[float]] = {way: [] for way in ("plain", *ways)}
    for _ in range(ROUNDS):
        for way, action in ways.items():
            first, looked, then = (milliseconds(one) for one in (loop.plain, action, loop.plain))
            times[way].append(looked)
            times["plain"] += [first, then]
    return times


def around(loop: Loop) -> dict[str, list[float]]:
    """Milliseconds of the plain steps around recorded ones, with nothing else in between."""
    times: dict[str, list[float]] = {"before": [], "after": [], "second after": []}
    for _ in range(2 * ROUNDS):
        times["before"].append(milliseconds(loop.plain))
        loop.recorded()
        times["after"].append(milliseconds(loop.plain))
        times["second after"].append(milliseconds(loop.plain))
    return times


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_step_beside_a_plain_one_and_its_peers(name: str) -> None:
    loop = Loop(CASES[name])
    ways = {
        "recorded": loop.recorded,
        "MemTracker": loop.tracked,
        "profiler, profile_memory": loop.profiled,
    }
    for _ in range(WARM_UP):
        for action in (loop.plain, *ways.values()):
            action()
    gc.collect()
    times, steps = compared(loop, ways), around(loop)
    base, quickest = median(times["plain"]), {way: min(found) for way, found in times.items()}
    each = 1e3 * (quickest["recorded"] - quickest["plain"]) / loop.num_operations
    print(f"\n{name}, {loop.num_operations:,} operations, {versions('torch')}, one thread")
    print(row("plain, processor time", times["plain"], "ms"))
    for way in ways:
        print(row(way, [value / base for value in times[way]], "x plain"))
        print(f"  {'  quickest / quickest plain':34} {quickest[way] / quickest['plain']:9.3f}")
    print(f"  {'recorded, for each operation':34} {each:9.1f}  [us]")
    ratios = {
        way: [b / a for a, b in zip(steps["before"], steps[way], strict=True)]
        for way in ("after", "second after")
    }
    for way, values in ratios.items():
        print(row(f"step {way} / step before", values, "x"))
    left = min(*steps["after"], *steps["second after"]) / min(steps["before"])
    print(f"  {'  quickest after / quickest before':34} {left:9.3f}")
    assert quickest["recorded"] <= quickest["MemTracker"]
    # the first step after finds the processor's caches full of the recording's own objects
    assert min(left, *(quartiles(values)[0] for values in ratios.values())) <= AROUND
