"""The fixed cost of a step: a tiny MLP through a plain loop, Workbench and its peers, in turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import loops
from tests.benchmarks.loops import StepCost, Train, step_cost
from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import compare, median, versions
from workbench.experiment import Experiment
from workbench.experiment.events import Event, StatusChanged, StepDone
from workbench.metrics import attach

ROUNDS = 9
TO_REACH_US = 20
QUIET = 1.1
"""Wall time over processor time of the plain loop, up to which wall times mean something."""


def measure(contenders: dict[str, Train]) -> dict[str, list[StepCost]]:
    """Every contender once a round, in a rotating order: a slow minute hits all of them."""
    names = list(contenders)
    for train in contenders.values():
        train(1)
    found: dict[str, list[StepCost]] = {name: [] for name in names}
    for shift in range(ROUNDS):
        for name in names[shift % len(names) :] + names[: shift % len(names)]:
            found[name].append(step_cost(contenders[name]))
    return found


@pytest.mark.benchmark
def test_a_step_costs_at_most_20_us_more_than_a_plain_loop(tmp_path: Path) -> None:
    costs = measure(
        {
            "plain loop": loops.plain,
            "Workbench": partial(loops.workbench, runs=tmp_path, stream=False),
            "Workbench, streaming": partial(loops.workbench, runs=tmp_path, stream=True),
            "Fabric": loops.fabric,
            "Accelerate": loops.accelerate,
            "Lightning": partial(loops.lightning, log=False),
            "Lightning, self.log": partial(loops.lightning, log=True),
        }
    )
    wall = {name: [cost.wall_us for cost in found] for name, found in costs.items()}
    cpu = {name: [cost.cpu_us for cost in found] for name, found in costs.items()}
    title = f"One step of a tiny MLP, batch {loops.BATCH}"
    print("\n" + compare(f"{title}, wall time", "µs", wall, baseline="plain loop"))
    print(compare(f"{title}, processor time of all threads", "µs", cpu, baseline="plain loop"))
    print(versions("torch", "lightning", "accelerate"))
    quiet = median(wall["plain loop"]) <= QUIET * median(cpu["plain loop"])
    times = wall if quiet else cpu
    pairs = zip(times["Workbench, streaming"], times["plain loop"], strict=True)
    assert median([ours - plain for ours, plain in pairs]) <= TO_REACH_US


class TrainingThreadReads:
    """Counts reads on the training thread from the end of the first step to the end of the run."""

    def __init__(self) -> None:
        self.reads = ReadCounter()
        self._counting = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepDone) and not self._counting:
            self._counting = True
            self.reads.__enter__()
        elif isinstance(event, StatusChanged) and self._counting:
            self._counting = False
            self.reads.__exit__(None, None, None)


@pytest.mark.parametrize("modes", ["", "bf16", "attention:math"])
def test_only_the_guard_of_the_weights_reads_a_tensor_while_training(
    tmp_path: Path, modes: str
) -> None:
    """Logging, timing and TensorBoard read nothing there; the pulse thread does.

    The guard looks at the loss and at one flag for all gradients before every update. On the CPU
    both are plain loads; what it costs an accelerator is said in `workbench.experiment.guard`. At
    the end of the run the log is flushed once more, which is one read.
    """
    steps, model = 40, loops.mlp()
    experiment = Experiment(
        model,
        loops.data(),
        optimizer=loops.sgd(model),
        batch_size=64,
        runs=tmp_path,
        device="cpu",
        modes=modes,
    )
    detach = attach(experiment)
    watch = TrainingThreadReads()
    experiment.subscribe(watch, every_step=True)
    experiment.run(steps=steps, wait=True)
    detach()
    counts = watch.reads.counts
    assert counts.pop("experiment/scalars.py", 0) <= 1
    assert counts == {"experiment/guard.py": 2 * (steps - 1)}
    assert len(experiment.scalars.last("train/loss", steps)) == steps
