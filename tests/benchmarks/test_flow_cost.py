"""What sampling the gradient flow costs the training thread, and that it reads nothing there."""

from __future__ import annotations

import time
from collections import Counter

import pytest
import torch
from torch import nn

from tests.benchmarks.loops import mlp
from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import compare, measure_interleaved, median, versions
from workbench.experiment.flow import FlowLog
from workbench.experiment.measures import PER_SECOND

ROUNDS, SAMPLES = 15, 100
STEP_US = 150
SHARE = 0.01
"""Of a step of `STEP_US`, on average."""


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
def test_sampling_takes_less_than_a_hundredth_of_a_small_step(model: nn.Module) -> None:
    log, parameters = FlowLog(), with_gradients(model)
    log.take(model, parameters, 0)
    log.flush()

    def take() -> float:
        start = time.perf_counter()
        for step in range(SAMPLES):
            log.take(model, parameters, step)
        cost = (time.perf_counter() - start) / SAMPLES * 1e6
        log.flush()
        return cost

    def flush() -> float:
        for step in range(SAMPLES):
            log.take(model, parameters, step)
        start = time.perf_counter()
        log.flush()
        return (time.perf_counter() - start) / SAMPLES * 1e6

    def total_norm() -> float:
        """What was paid for the one total norm before there was a flow."""
        start = time.perf_counter()
        for _ in range(SAMPLES):
            gradients = [p.grad for p in parameters if p.grad is not None]
            torch.nn.utils.get_total_norm(gradients).detach()
        return (time.perf_counter() - start) / SAMPLES * 1e6

    contenders = {"get_total_norm": total_norm, "FlowLog.take": take, "FlowLog.flush": flush}
    results = measure_interleaved(contenders, ROUNDS)
    title = f"One sample of {len(parameters)} parameters, at most {PER_SECOND} a second"
    print("\n" + compare(title, "µs", results, baseline="get_total_norm"))
    sampled = median(results["FlowLog.take"]) + median(results["FlowLog.flush"])
    share = sampled * PER_SECOND / 1e6
    print(f"{100 * share:.3f} % of the time, {share * STEP_US:.3f} µs of a step of {STEP_US} µs")
    print(versions("torch"))
    assert share <= SHARE


def test_sampling_reads_no_tensor_until_the_flush() -> None:
    log, model, reads = FlowLog(), mlp(), ReadCounter()
    parameters = with_gradients(model)
    with reads:
        for step in range(20):
            log.take(model, parameters, step)
        assert reads.counts == Counter()
        log.flush()
        assert set(reads.counts) == {"experiment/flow.py"}
