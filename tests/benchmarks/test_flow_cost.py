"""What sampling the gradient flow costs the training thread, and that it reads nothing there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.benchmarks.loops import mlp
from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)
from workbench.gradient_flow.log import FlowLog

ROUNDS, SAMPLES = 15, 100
AT_MOST = 2.5
"""Times what torch takes for the total norm of the same gradients: a sample, taken and read."""


def deep(layers: int) -> nn.Module:
    """Four parameters a layer: 40 layers have as many as a ResNet-50."""
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)) for _ in range(layers)]
    )


def with_gradients(model: nn.Module) -> list[nn.Parameter]:
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return list(model.parameters())


@pytest.mark.benchmark
@pytest.mark.parametrize("model", [mlp(), deep(40)], ids=["tiny MLP", "160 parameters"])
def test_a_sample_costs_a_few_total_norms(model: nn.Module, one_thread: None) -> None:
    log, parameters = FlowLog(), with_gradients(model)
    log.take(model, parameters, 0)
    log.flush()

    def take() -> float:
        cost = us_per_sample(lambda step: log.take(model, parameters, step), SAMPLES)
        log.flush()
        return cost

    def flush() -> float:
        for step in range(SAMPLES):
            log.take(model, parameters, step)
        return us_per_sample(lambda _: log.flush(), 1) / SAMPLES

    def total_norm(_: int) -> None:
        """What was paid for the one total norm before there was a flow."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch.nn.utils.get_total_norm(gradients).detach()

    contenders = {
        "get_total_norm": lambda: us_per_sample(total_norm, SAMPLES),
        "FlowLog.take": take,
        "FlowLog.flush": flush,
    }
    results = measure_interleaved(contenders, ROUNDS)
    title = f"One sample of {len(parameters)} parameters, processor time"
    print("\n" + compare(title, "µs", results, baseline="get_total_norm"))
    sampled = [
        sum(both) for both in zip(results["FlowLog.take"], results["FlowLog.flush"], strict=True)
    ]
    over = ratios(sampled, results["get_total_norm"])
    print(ratio_line("taken and read over get_total_norm", over, AT_MOST), versions("torch"))
    assert median(over) <= AT_MOST


def us_per_sample(call: Callable[[int], object], samples: int) -> float:
    """Processor time, of all threads."""
    start = time.process_time()
    for step in range(samples):
        call(step)
    return (time.process_time() - start) / samples * 1e6


def test_sampling_reads_no_tensor_until_the_flush() -> None:
    log, model, reads = FlowLog(), mlp(), ReadCounter()
    parameters = with_gradients(model)
    with reads:
        for step in range(20):
            log.take(model, parameters, step)
        assert reads.counts == Counter()
        log.flush()
        assert set(reads.counts) == {"gradient_flow/log.py"}
