"""The fixed cost of a step: a tiny MLP through a plain loop, Workbench and its peers, in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import loops
from tests.benchmarks.table import compare, measure_interleaved, median, versions

ROUNDS = 9


@pytest.mark.benchmark
def test_a_step_costs_at_most_20_us_more_than_a_plain_loop(tmp_path: Path) -> None:
    contenders = {
        "plain loop": loops.plain,
        "Workbench": lambda: loops.workbench(tmp_path / "quiet", stream=False),
        "Workbench, streaming": lambda: loops.workbench(tmp_path / "streaming", stream=True),
        "Fabric": loops.fabric,
        "Accelerate": loops.accelerate,
        "Lightning": lambda: loops.lightning(log=False),
        "Lightning, self.log": lambda: loops.lightning(log=True),
    }
    for contender in contenders.values():
        contender()
    results = measure_interleaved(contenders, ROUNDS)
    title = f"One step of a tiny MLP, batch {loops.BATCH}, {loops.STEPS} steps a round"
    print("\n" + compare(title, "µs", results, baseline="plain loop"))
    print(versions("torch", "lightning", "accelerate"))
    pairs = zip(results["Workbench, streaming"], results["plain loop"], strict=True)
    assert median([ours - plain for ours, plain in pairs]) <= 20
