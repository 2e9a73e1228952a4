"""The fixed cost of a step: a tiny MLP through a plain loop, Workbench and its peers, in turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import loops
from tests.benchmarks.absent import has_package
from tests.benchmarks.loops import StepCost, Train, mean_of, step_cost
from tests.benchmarks.quiet import QUIET
from tests.benchmarks.reads import ReadCounter
from tests.benchmarks.table import (
    compare,
    median,
    quartiles,
    ratio_line,
    ratios,
    versions,
)
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, StatusChanged, StepDone
from workbench.metrics import attach

PEER_ROUNDS, ROUNDS = 5, 25
STREAMED = 1.18
"""Times a step of the plain loop: one of an experiment that streams to TensorBoard meanwhile."""

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
def test_a_step_costs_little_more_than_one_of_a_plain_loop(
    tmp_path: Path, one_thread: None
) -> None:
    ours = {
        OURS: partial(loops.workbench, runs=tmp_path, stream=False),
        STREAMING: partial(loops.workbench, runs=tmp_path, stream=True),
    }
    peers = peers_present()
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
    over = ratios(times[STREAMING], beside[STREAMING])
    judged = "the clock" if quiet else "processor time"
    print(ratio_line(f"{STREAMING} over a {PLAIN}, {judged}", over, STREAMED))
    # a machine that others use spreads rounds of 0.3 s by a tenth either way
    assert quartiles(over)[0] <= STREAMED


def peers_present() -> dict[str, Train]:
    """Those that are installed; noted where one is not."""
    peers: dict[str, Train] = {}
    if has_package("lightning", "a step of Fabric and of Lightning beside ours"):
        peers["Fabric"] = loops.fabric
        peers["Lightning"] = partial(loops.lightning, log=False)
        peers["Lightning, self.log"] = partial(loops.lightning, log=True)
    if has_package("accelerate", "a step of Accelerate beside ours"):
        peers["Accelerate"] = loops.accelerate
    return peers


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
    both are plain loads; for its cost on an accelerator see `workbench.experiment.loop.step_guard`.
    At the end of the run the log is flushed once more, which is one read, and a checkpoint has the
    two counts of the epoch's accuracy.
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
    assert counts.pop("experiment/loop/scalars.py", 0) <= 1
    assert counts.pop("experiment/loop/epoch_accuracy.py", 0) <= 2
    assert counts == {"experiment/loop/step_guard.py": 2 * (steps - 1)}
    assert len(experiment.scalars.last("train/loss", steps)) == steps
