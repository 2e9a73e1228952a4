"""A kernel dies, its ranks go on, another kernel takes them up."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest
import torch
from torch import nn

from tests.fork_server import ForkServer
from tests.integration.parallel.support import losses, made
from tests.integration.scripts import environment
from tests.processes import children_of, is_alive
from tests.waiting import wait_until
from workbench.experiment.runtime.resume import ResumeError
from workbench.experiment.services import only
from workbench.parallel.attach import attach
from workbench.server.run_listing import read_run
from workbench.trust import Seal

ROOT = Path(__file__).resolve().parents[3]

KERNEL = """
import os, sys, time
from pathlib import Path
import torch
from torch import nn
from tests.integration.parallel.support import rows
from workbench.experiment import Experiment

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 5)
        self.calls, self.go_on = 0, Path(sys.argv[4])
    def forward(self, x):
        if "RANK" in os.environ:
            time.sleep(0.01)  # thousands of steps would show no more than some hundred
        if "RANK" in os.environ and not self.go_on.exists():
            self.calls += 1
            time.sleep(0.15)  # ranks tell ten times a second where they are
            while self.calls > 15 and not self.go_on.exists():
                time.sleep(0.01)
        return self.layer(x)

torch.manual_seed(0)
exp = Experiment(Cell(), rows(), batch_size=16, runs=sys.argv[1], name="run", device="cpu",
                 optimizer="adamw", lr=0.01)
exp.run(steps=20, wait=True)
exp.modes = "ddp:2"
exp.run(steps=int(sys.argv[2]))
while exp.step_count < 30:
    assert exp.failure is None, exp.failure
    time.sleep(0.02)
if sys.argv[3] == "stay":
    print("here", flush=True)
    sys.stdin.read()
    exp.close()
else:
    os.kill(os.getpid(), 9)
"""

NEXT_KERNEL = """
import sys, time
import workbench as wb

exp = wb.attach(sys.argv[1])
seen = set()
while len(seen) < 8:
    seen.add(exp.step_count)
    time.sleep(0.02)
exp.pause()
exp.wait(120)
print(*sorted(one.name for one in (exp.path / "parallel").iterdir()), exp.status, exp.modes)
exp.close()
"""


class Cell(nn.Module):
    """The very same, for a run that stays: the dead kernel's exists nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def script(tmp_path: Path) -> Path:
    written = tmp_path / "kernel.py"
    written.write_text(KERNEL)
    return written


def kernel_that_stays(tmp_path: Path, go_on: Path = ROOT) -> subprocess.Popen[str]:
    """It does so at step 30; its ranks do no step 40 until there is ``go_on``."""
    arguments = [str(tmp_path / "runs"), "1_000_000", "stay", str(go_on)]
    return subprocess.Popen(
        [sys.executable, str(script(tmp_path)), *arguments],
        cwd=ROOT, env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def kernel_that_died(tmp_path: Path, fork_server: ForkServer) -> Callable[..., None]:
    """It did so at step 30, by a signal; its ranks, started as ever, go on."""

    def died(
        steps: int = 1_000_000,
        go_on: Path = ROOT,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        log = tmp_path / "kernel.log"
        begun = fork_server.script(
            script(tmp_path), str(tmp_path / "runs"), str(steps), "die", str(go_on),
            env={**environment(), **variables}, stdout=log, stderr=log,
        )  # fmt: skip
        assert begun.wait(300) == -signal.SIGKILL, log.read_text()

    return died


def as_if_it_had_stayed(tmp_path: Path, steps: int) -> torch.Tensor:
    stayed = made(tmp_path / "stayed", Cell, optimizer="adamw", lr=0.01)
    stayed.run(steps=steps, wait=True)
    return losses(stayed)


def test_a_run_that_goes_on_is_controlled_and_brought_back(
    tmp_path: Path, kernel_that_died: Callable[..., None]
) -> None:
    kernel_that_died()
    assert read_run(tmp_path / "runs" / "run", tmp_path).status == "detached"
    experiment = attach(tmp_path / "runs" / "run")
    try:
        assert experiment.status == "training"
        assert experiment.modes == "ddp:2"
        here = experiment.step_count
        assert here >= 20
        wait_until(lambda: experiment.step_count > here + 20, "steps of the ranks")
        assert attach(experiment.path) is experiment
        experiment.pause()
        experiment.wait(120)
        torch.testing.assert_close(
            losses(experiment),
            as_if_it_had_stayed(tmp_path, experiment.step_count),
            rtol=1e-5,
            atol=1e-6,
        )
        assert [marker.text for marker in experiment.markers] == ["ddp:2"]
        experiment.modes = ""
        experiment.run(steps=5, wait=True)
    finally:
        experiment.close()


def test_ranks_at_work_are_not_recalled_for_a_first_capture(
    tmp_path: Path, kernel_that_died: Callable[..., None], fork_server: ForkServer
) -> None:
    kernel_that_died()
    following, out, err = (tmp_path / name for name in ("next_kernel.py", "stdout", "stderr"))
    following.write_text(NEXT_KERNEL)
    run = str(tmp_path / "runs" / "run")
    begun = fork_server.script(following, run, env=environment(), stdout=out, stderr=err)
    assert begun.wait(120) == 0, err.read_text()
    assert out.read_text().split() == ["1", "paused", "ddp:2"]


def test_a_run_that_was_finished_meanwhile_is_found_so(
    tmp_path: Path, kernel_that_died: Callable[..., None]
) -> None:
    go_on = tmp_path / "go-on"
    kernel_that_died(40, go_on)
    go_on.touch()
    folder = tmp_path / "runs" / "run" / "parallel" / "1"
    wait_until(lambda: '"end"' in (folder / "events.jsonl").read_text(), "the end")
    folder.chmod(0o777)  # whoever else could write here has not written this
    experiment = attach(tmp_path / "runs" / "run")
    experiment.wait(120)
    assert (experiment.status, experiment.step_count) == ("finished", 60)
    torch.testing.assert_close(
        losses(experiment), as_if_it_had_stayed(tmp_path, 60), rtol=1e-5, atol=1e-6
    )
    assert type(experiment.model).__name__ == "Cell"
    experiment.close()


def test_ranks_that_died_with_it_leave_their_last_checkpoint(
    tmp_path: Path, kernel_that_died: Callable[..., None]
) -> None:
    kernel_that_died()
    folder = tmp_path / "runs" / "run" / "parallel" / "1"
    ranks = [psutil.Process(int((folder / f"rank-{rank}.pid").read_text())) for rank in (0, 1)]
    for rank in ranks:
        rank.send_signal(signal.SIGKILL)
    psutil.wait_procs(ranks, timeout=120)
    with only(None):
        anew = made(tmp_path / "anew", Cell, optimizer="adamw", lr=0.01)
    with pytest.raises(ResumeError, match=r"wb\.attach"):  # its own checkpoint is of before them
        anew.resume_from(tmp_path / "runs" / "run")
    anew.close()
    experiment = attach(tmp_path / "runs" / "run")
    with pytest.raises(Exception, match="ended from outside"):
        experiment.wait(120)
    assert (experiment.status, experiment.step_count) == ("exception", 20)
    experiment.modes = ""
    experiment.run(steps=2, wait=True)
    experiment.close()


def test_ranks_whose_kernel_is_killed_while_it_ends_save_and_end_by_themselves(
    tmp_path: Path,
) -> None:
    """As Jupyter kills one that needs longer than a few seconds: their step may take that long."""
    go_on, folder = tmp_path / "go-on", tmp_path / "runs" / "run" / "parallel" / "1"
    ending = kernel_that_stays(tmp_path, go_on)
    try:
        assert ending.stdout is not None
        assert ending.stdin is not None
        assert ending.stdout.readline() == "here\n"
        ranks = [psutil.Process(int((folder / f"rank-{rank}.pid").read_text())) for rank in (0, 1)]
        ending.stdin.close()
        ending.stdin = None  # it is not to be closed again
        wait_until(lambda: '"recall"' in (folder / "control.jsonl").read_text(), "the recall")
    finally:
        ending.kill()
        ending.communicate()
    assert read_run(tmp_path / "runs" / "run", tmp_path).status == "detached"
    go_on.touch()
    wait_until(lambda: not any(map(is_alive, ranks)), "the end of the ranks")
    run = tmp_path / "runs" / "run"
    wait_until(lambda: read_run(run, tmp_path).status == "interrupted", "their launcher's end")
    experiment = attach(tmp_path / "runs" / "run")
    experiment.wait(120)
    assert experiment.status == "paused"
    torch.testing.assert_close(
        losses(experiment),
        as_if_it_had_stayed(tmp_path, experiment.step_count),
        rtol=1e-5,
        atol=1e-6,
    )
    experiment.close()


def test_on_a_hub_ranks_end_with_the_server_of_their_kernel(
    tmp_path: Path, kernel_that_died: Callable[..., None]
) -> None:
    """Its owner stops it, or it was idle for long: it gives back what it had, their GPUs too."""
    server = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    hub = {"JUPYTERHUB_SERVICE_PREFIX": "/user/jo/", "JPY_PARENT_PID": str(server.pid)}
    kernel_that_died(variables=hub)
    launcher = psutil.Process(
        Seal.unchecked().read_json(tmp_path / "runs/run/parallel/1/launcher.json", "")["pid"]
    )
    at_work = [launcher, *children_of(launcher)]
    assert len(at_work) == 3
    server.communicate()
    wait_until(lambda: not any(map(is_alive, at_work)), "the end of the ranks")
    experiment = attach(tmp_path / "runs" / "run")
    with pytest.raises(Exception, match="ended from outside"):
        experiment.wait(120)
    assert experiment.step_count >= 20
    experiment.modes = ""
    experiment.run(steps=2, wait=True)
    experiment.close()


def test_what_cannot_or_must_not_be_attached_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no run directory"):
        attach(tmp_path / "nothing")
    alone = made(tmp_path / "runs", Cell)
    alone.run(steps=1, wait=True)
    assert attach(alone.path) is alone
    alone.close()
    with pytest.raises(FileNotFoundError, match="no worker has a part in Cell"):
        attach(alone.path)
    alive = kernel_that_stays(tmp_path)
    try:
        assert alive.stdout is not None
        assert alive.stdout.readline() == "here\n"
        with pytest.raises(RuntimeError, match=f"belongs to process {alive.pid}, which is alive"):
            attach(tmp_path / "runs" / "run")
    finally:
        alive.communicate(timeout=120)
