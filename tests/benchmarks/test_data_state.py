"""What a look at all that a data set keeps costs a step on ranks, against pickling it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from tests.benchmarks.table import compare, measure_interleaved, median, ratio_line, ratios
from workbench.experiment.data.dataset_state import DataState
from workbench.experiment.state.value_snapshots import MOST_ELEMENTS

ROUNDS, LOOKS = 15, 3


class Kept(Dataset[Any]):
    """A data set that keeps one thing beside its samples."""

    def __init__(self, value: Any) -> None:
        self.rows = torch.zeros(100_000, 10)
        self.kept = value


def ms(call: Callable[[], object]) -> float:
    """Processor time of a call."""
    start = time.process_time()
    for _ in range(LOOKS):
        call()
    return (time.process_time() - start) / LOOKS * 1e3


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("paths and labels", [(f"{at}.png", at) for at in range(MOST_ELEMENTS)], 1.0),
        ("numbers", [float(at) for at in range(MOST_ELEMENTS)], 6.0),
        ("lists", [[at, at] for at in range(MOST_ELEMENTS)], 9.0),
        ("arrays", [np.zeros(4) for _ in range(1_000)], 2.0),
        ("tensors", [torch.zeros(4) for _ in range(1_000)], 0.5),
        ("too many tensors", [torch.zeros(784) for _ in range(MOST_ELEMENTS)], 0.5),
    ],
)
def test_a_look_costs_what_pickling_does(name: str, value: Any, limit: float) -> None:
    kept = DataState(Kept(value))
    contenders: dict[str, Callable[[], float]] = {
        "pickle.dumps": lambda: ms(lambda: pickle.dumps(value)),
        "DataState.mark": lambda: ms(kept.mark),
    }
    results = measure_interleaved(contenders, ROUNDS)
    print("\n" + compare(f"A data set that keeps {name}", "ms", results, baseline="pickle.dumps"))
    found = ratios(results["DataState.mark"], results["pickle.dumps"])
    print(ratio_line("DataState.mark over pickle.dumps", found, limit))
    assert median(found) <= limit
