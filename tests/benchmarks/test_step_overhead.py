"""The fixed cost of a step: a tiny MLP through a plain loop, Workbench and its peers, in turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import loops
from tests.benchmarks.loops import StepCost, Train, mean_of, step_cost
from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import compare, differences, median, versions
from workbench.experiment import Experiment
from workbench.experiment.events import Event, StatusChanged, StepDone
from workbench.metrics import attach

PEER_ROUNDS, ROUNDS = 5, 25
TO_REACH_US, ON_PLAIN_US = 20, 140
"""The figure to reach, and the plain loop's step on the machine it was set for: a machine on which
that step takes twice as long does everything else in twice the time as well."""
QUIET = 1.1
"""Wall time over processor time of the plain loop, up to which wall times mean something."""


PLAIN, OURS, STREAMING = "plain loop", "Workbench", "Workbench, streaming"


class Measured:
    """Step costs by contender, each between two measurements of the plain loop.

    The speed of a shared machine drifts within seconds: a difference means something only to a
    baseline measured right before and after.
    """

    def __init__(self, contenders: dict[str, Train], rounds: int) -> None:
        self.costs: dict[str, list[StepCost]] = {name: [] for name in (PLAIN, *contenders)}
        self.beside: dict[str, list[StepCost]] = {name: [] for name in contenders}
        for train in (loops.plain, *contenders.values()):
            step_cost(train)
        for shift in range(rounds):
            names = list(contenders)
            before = step_cost(loops.plain)
            self.costs[PLAIN].append(before)
            for name in names[shift % len(names) :] + names[: shift % len(names)]:
                self.costs[name].append(step_cost(contenders[name]))
                after = step_cost(loops.plain)
                self.beside[name].append(mean_of(before, after))
                before = after

    def columns(self, of: Callable[[StepCost], float]) -> tuple[Costs, Costs]:
        """One kind of time: of the contenders, and of the plain loop beside each."""
        return (
            {name: [of(cost) for cost in found] for name, found in self.costs.items()},
            {name: [of(cost) for cost in found] for name, found in self.beside.items()},
        )


Costs = dict[str, list[float]]


@pytest.mark.benchmark
def test_a_step_costs_at_most_20_us_more_than_a_plain_loop(tmp_path: Path) -> None:
    ours = {
        OURS: partial(loops.workbench, runs=tmp_path, stream=False),
        STREAMING: partial(loops.workbench, runs=tmp_path, stream=True),
    }
    peers = {
        "Fabric": loops.fabric,
        "Accelerate": loops.accelerate,
        "Lightning": partial(loops.lightning, log=False),
        "Lightning, self.log": partial(loops.lightning, log=True),
    }
    title = f"One step of a tiny MLP, batch {loops.BATCH}"
    for measured in (Measured(ours | peers, PEER_ROUNDS), Measured(ours, ROUNDS)):
        wall, wall_beside = measured.columns(lambda cost: cost.wall_us)
        cpu, cpu_beside = measured.columns(lambda cost: cost.cpu_us)
        print("\n" + compare(f"{title}, wall time", "µs", wall, baseline=PLAIN, beside=wall_beside))
        note = f"{title}, processor time of all threads"
        print(compare(note, "µs", cpu, baseline=PLAIN, beside=cpu_beside))
    print(versions("torch", "lightning", "accelerate"))
    quiet = median(wall[PLAIN]) <= QUIET * median(cpu[PLAIN])
    times, beside = (wall, wall_beside) if quiet else (cpu, cpu_beside)
    extra = median(differences(times[STREAMING], beside[STREAMING]))
    slowness = max(1.0, median(times[PLAIN]) / ON_PLAIN_US)
    print(f"streaming: {extra:+.1f} µs a step, {extra / slowness:+.1f} on a {ON_PLAIN_US} µs step")
    assert extra <= TO_REACH_US * slowness


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
