"""What a capture of ResNet-50 costs: the record, the captured step, and the steps around it.

On one thread: what a capture adds is Python's work, and on many cores the step around it would be
shorter and the ratio another.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.benchmarks.quiet import is_quiet
from tests.benchmarks.table import median, quartiles, ratio_line, ratios, versions
from tests.models.resnet import ResNet

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]
BATCH = 8
SIDE = 224
"""Pixels: the size of image that the model was published for."""
SMALL_SIDE = 64
"""So small that 25 million weights are most of what there is to measure: printed, not judged."""
ROUNDS, SMALL_ROUNDS = 10, 10
WARM_UP, RECORDS = 10, 60
RECORD = 5.0
"""Times a walk over the same graph by torch's own API (`walked`): making the record."""
CAPTURED, AROUND = 1.2, 1.02
"""Times a plain step: the captured step, and the plain step after it."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds of the clock, and of the processor over all threads."""

    wall: float
    cpu: float


def cost(action: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Cost(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu))


class Loop:
    """A training loop of a person's own, one step at a time."""

    def __init__(self, side: int) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = ResNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.x, self.y = torch.randn(BATCH, 3, side, side), torch.arange(BATCH)

    def plain(self) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()

    def captured(self) -> None:
        self.optimizer.zero_grad()
        with wb.graph(self.model) as view:
            F.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()
        assert view.record.saved_bytes


def row(name: str, values: list[float], unit: str) -> str:
    low, high = quartiles(values)
    return f"{name:34} {median(values):8.3f} {low:8.3f} .. {high:.3f}  [{unit}]"


def walked(loss: torch.Tensor) -> int:
    """Every node once: its name, what leads to it, and the attributes that torch saved with it."""
    waiting, seen, found = [loss.grad_fn], {loss.grad_fn}, 0
    while waiting:
        node = waiting.pop()
        found += len(node.name()) + sum(name.startswith("_saved_") for name in dir(node))
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return found


def test_the_record_costs_a_few_walks_over_the_graph() -> None:
    """After a traced forward: walk, names, owners, lines, bytes, columns."""
    loop = Loop(SMALL_SIDE)
    with wb.graph(loop.model):
        loss = F.cross_entropy(loop.model(loop.x), loop.y)
    contenders = {"a walk": lambda: walked(loss), "wb.graph(loss)": lambda: wb.graph(loss)}
    rounds = [
        {name: cost(action) for name, action in contenders.items()}
        for _ in range(WARM_UP + RECORDS)
    ]
    costs = {name: [one[name] for one in rounds[WARM_UP:]] for name in contenders}
    print(f"\nResNet-50, record after forward, {len(wb.graph(loss).record.node_type)} nodes")
    for name, found in costs.items():
        print(row(f"{name}, clock", [one.wall for one in found], "ms"))
        print(row(f"{name}, processor", [one.cpu for one in found], "ms"))
    times = {name: [one.cpu for one in found] for name, found in costs.items()}
    over = ratios(times["wb.graph(loss)"], times["a walk"])
    print(ratio_line("wb.graph(loss) over a walk, processor", over, RECORD), versions("torch"))
    assert median(over) <= RECORD


def test_only_the_captured_step_pays() -> None:
    """A captured step between two plain ones, again and again; ratios within each round."""
    print("\n" + versions("torch"), f"{torch.get_num_threads()} threads, batch {BATCH}")
    paired(Loop(SMALL_SIDE), SMALL_ROUNDS, f"ResNet-50, {SMALL_SIDE} px")
    loop = Loop(SIDE)
    found = paired(loop, ROUNDS, f"ResNet-50, {SIDE} px")
    quiet = is_quiet()
    over, around = found["wall" if quiet else "cpu"]
    print("judged by", "the clock" if quiet else "processor time: others use the machine")
    print(ratio_line("captured / plain", over, CAPTURED))
    assert median(over) <= CAPTURED
    low, _ = quartiles(around)
    assert low <= AROUND


def paired(loop: Loop, num_rounds: int, title: str) -> dict[str, tuple[list[float], list[float]]]:
    """Clock -> (captured over plain, step after over step before), a ratio for each round."""
    for step in (loop.plain, loop.captured, loop.plain):
        step()
    gc.collect()
    rounds = []
    for _ in range(num_rounds):
        before = [cost(loop.plain) for _ in range(2)]
        captured = cost(loop.captured)
        after = [cost(loop.plain) for _ in range(2)]
        rounds.append((before, captured, after))
    found: dict[str, tuple[list[float], list[float]]] = {}
    for clock in ("wall", "cpu"):

        def of(one: Cost, clock: str = clock) -> float:
            return getattr(one, clock)

        plain = [sum(map(of, [*before, *after])) / 4 for before, _, after in rounds]
        steps = [of(captured) for _, captured, _ in rounds]
        over = [step / base for step, base in zip(steps, plain, strict=True)]
        around = [of(after[0]) / of(before[1]) for before, _, after in rounds]
        again = [of(after[1]) / of(before[1]) for before, _, after in rounds]
        found[clock] = over, around
        print(f"\n{title}, {clock} time, {num_rounds} rounds")
        print(row("plain step", plain, "ms"))
        print(row("captured step", steps, "ms"))
        print(row("captured / plain", over, "x"))
        print(row("step after / step before", around, "x"))
        print(row("second after / step before", again, "x"))
    return found
