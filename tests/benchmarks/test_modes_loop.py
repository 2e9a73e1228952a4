"""What `wb.Modes` adds to a step of somebody's own loop: a tiny MLP, with and without, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice

import pytest
import torch
from torch.nn import functional as F

import workbench as wb
from tests.benchmarks import loops
from tests.benchmarks.table import (
    compare,
    differences,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)

ROUNDS, STEPS, WARM_UP = 20, 60, 200
SMALLEST_ROUNDS, SMALLEST_STEPS = 60, 500
SMALLEST = 1.25
"""Times the smallest plain step: the same under `wb.Modes` at its default."""

SHARE = 0.02
"""Of a step of a tiny MLP: what modes at their default add to it."""

PLAIN, FP32, BF16, BY_HAND = "plain loop", 'Modes("fp32")', 'Modes("bf16")', "bf16 by hand"

Step = Callable[[torch.Tensor, torch.Tensor], None]


def plain_step(autocast: bool) -> Step:
    model = loops.mlp()
    optimizer = loops.sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    def cast_step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return cast_step if autocast else step


def modes_step(text: str) -> Step:
    model, modes = loops.mlp(), wb.Modes(text)
    modes.prepare(model)
    optimizer = loops.sgd(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        with modes.forward():
            loss = F.cross_entropy(model(x), y)
        with modes.update(loss, optimizer):
            pass

    return step


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    x, y = loops.data()
    return cycle(zip(x.split(loops.BATCH), y.split(loops.BATCH), strict=True))


def timed(step: Step, source: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Processor time of one step, in microseconds, over `STEPS` of them."""
    some = list(islice(source, STEPS))
    start = time.process_time()
    for x, y in some:
        step(x, y)
    return (time.process_time() - start) / STEPS * 1e6


def smallest_steps() -> dict[str, Callable[[], float]]:
    """The least that is a step: backward of a leaf, and an optimizer that got no gradient.

    What modes add is a hundredth of a real step, which drowns in the noise of a machine that is
    shared; beside this one it does not.
    """
    model, modes = loops.mlp(), wb.Modes("fp32")
    modes.prepare(model)
    optimizer, loss = loops.sgd(model), torch.zeros((), requires_grad=True)

    def plain() -> None:
        loss.backward()
        optimizer.step()

    def with_modes() -> None:
        with modes.forward():
            pass
        with modes.update(loss, optimizer):
            pass

    def cost(step: Callable[[], None]) -> float:
        start = time.process_time()
        for _ in range(SMALLEST_STEPS):
            step()
        return (time.process_time() - start) / SMALLEST_STEPS * 1e6

    return {PLAIN: lambda: cost(plain), FP32: lambda: cost(with_modes)}


@pytest.mark.benchmark
def test_modes_at_their_default_add_little_to_the_smallest_step(one_thread: None) -> None:
    contenders = {
        PLAIN: plain_step(autocast=False),
        FP32: modes_step("fp32"),
        BY_HAND: plain_step(autocast=True),
        BF16: modes_step("bf16"),
    }
    source = batches()
    for step in contenders.values():
        for x, y in islice(source, WARM_UP):
            step(x, y)
    whole = measure_interleaved(
        {name: partial(timed, step, source) for name, step in contenders.items()}, ROUNDS
    )
    title = f"One step of a tiny MLP, batch {loops.BATCH}, processor time"
    print("\n" + compare(title, "µs", whole, baseline=PLAIN))
    by_hand = differences(whole[BF16], whole[BY_HAND])
    print(f"bf16 over torch.autocast by hand: {median(by_hand):+.2f} µs a step")
    smallest = measure_interleaved(smallest_steps(), SMALLEST_ROUNDS)
    print(compare("The smallest step, processor time", "µs", smallest, baseline=PLAIN))
    print(versions("torch"))
    extra = median(differences(smallest[FP32], smallest[PLAIN]))
    share = extra / median(whole[PLAIN])
    print(f"Modes: {extra:+.2f} µs a step, {share:.2%} of one of a tiny MLP")
    assert share <= SHARE
    over = ratios(smallest[FP32], smallest[PLAIN])
    print(ratio_line("the smallest step over a plain one", over, SMALLEST))
    assert median(over) <= SMALLEST
