"""However a run of a kernel ends: what its run directory says then, and what is left of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.integration.cells import run
from tests.integration.scripts import DEADLINE_S, environment
from tests.processes import children_of, is_alive
from tests.waiting import wait_until
from workbench.experiment.checkpoint.folder import found_in
from workbench.server.run_listing import read_run

BEGINNING = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import workbench as wb

def until(condition):
    while not condition():
        time.sleep(0.01)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x):
        return self.layer(torch.relu(x))

def made(name, modes):
    x = torch.randn(256, 8)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 32, shuffle=True, num_workers=2)
    exp = wb.Experiment(Net(), loader, runs={runs!r}, name=name, device="cpu", modes=modes)
    exp.run(epochs=1_000_000)
    until(lambda: exp.step_count > 10)
    return exp
"""

WAYS = {
    "closed": "exp.close()",
    "rebound": "exp = None",
    "paused": "exp.pause(); exp.wait(); del exp",
    "deleted": "del exp",
    "reset": "%reset -f",
}
WITHOUT_CHECKPOINT = {
    "paused": "whose last state nobody asked for",
    "reset": "which deletes what the step under way needs",
}


@contextmanager
def kernel(runs: Path) -> Generator[tuple[KernelManager, BlockingKernelClient, psutil.Process]]:
    manager, client = start_new_kernel(extra_arguments=[], env=environment())
    manager.shutdown_wait_time = DEADLINE_S  # Jupyter's own would be a machine's
    try:
        run(client, BEGINNING.format(runs=str(runs)))
        yield manager, client, psutil.Process(int(run(client, "import os; print(os.getpid())")))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(("modes", "ways"), [("", list(WAYS)), ("ddp:2", ["deleted", "reset"])])
def test_a_run_ends_with_its_experiment_and_with_its_kernel(
    tmp_path: Path, modes: str, ways: list[str]
) -> None:
    def ended_well(name: str) -> None:
        wait_until(lambda: read_run(tmp_path / name, tmp_path).status == "stopped", name)
        found = read_run(tmp_path / name, tmp_path)
        assert found.step > 10
        if name not in WITHOUT_CHECKPOINT:
            assert found_in(tmp_path / name / "checkpoints")
        assert not list(tmp_path.glob(f"{name}/parallel/*/payload*"))

    with kernel(tmp_path) as (manager, client, process):
        at_rest = len(children_of(process))

        def at_work() -> list[psutil.Process]:
            """Children beyond those of a kernel at rest; between two epochs a loader has none."""
            wait_until(lambda: len(children_of(process)) > at_rest, "its processes")
            return children_of(process)

        for name in ways:
            run(client, f"exp = made({name!r}, {modes!r})")
            at_work()
            run(client, WAYS[name])
            ended_well(name)
            wait_until(lambda: len(children_of(process)) == at_rest, f"the processes of {name}")
        run(client, BEGINNING.format(runs=str(tmp_path)) + f"exp = made('restarted', {modes!r})")
        left = at_work()
        manager.shutdown_kernel(restart=True)
        wait_until(lambda: not any(map(is_alive, left)), "the end of what the kernel had started")
        ended_well("restarted")
