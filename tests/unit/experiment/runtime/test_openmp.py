from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

LEAVES_A_TEAM = """
import os, time, torch
from workbench.experiment.runtime.openmp import release_team
torch.set_num_threads(3)
a = torch.randn(512, 512)
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
a @ a + torch.tanh(a)
with_team = threads()
assert release_team()
deadline = time.monotonic() + 120
while threads() > before and time.monotonic() < deadline:
    time.sleep(0.01)
print(with_team > before, threads() <= before, torch.get_num_threads())
assert torch.equal(a @ a, a @ a)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in Linux's /proc")
def test_a_team_is_given_back_and_made_anew_when_needed(
    ran: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = ran(LEAVES_A_TEAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "3"]
