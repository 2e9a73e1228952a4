from __future__ import annotations

import os
import subprocess
import sys
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
def test_a_team_is_given_back_and_made_anew_when_needed() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_A_TEAM], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "3"]
