"""A notebook's cells go to ranks: what fails is at its cell, and a new kernel takes up the run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.integration.cells import new_kernel, run
from tests.waiting import wait_until

MODEL = """import os, torch, torch.nn.functional as F
from torch import nn
import workbench as wb

torch.set_float32_matmul_precision("high")
relu = torch.ops.aten.relu.default

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, 5)
        self.breaks = False

    def train(self, mode=True):
        assert torch.get_float32_matmul_precision() == "high", "not as in the kernel"
        assert torch.backends.cudnn.enabled
        return super().train(mode)

    def forward(self, x):
        h = relu(self.body(x))
        if self.breaks and os.environ.get("RANK") == "1":
            h = h @ torch.zeros(7, 7)
        return self.head(F.dropout(h, 0.0))

torch.manual_seed(0)
data = torch.randn(256, 16), torch.randint(0, 5, (256,))
"""
BEGIN = """exp = wb.Experiment(
    Net(), data, batch_size=32, runs={runs!r}, name="cells", device="cpu"
)
exp.model.breaks = True
exp.modes = "ddp:2"
exp.run(steps=20)
try:
    exp.wait(120)
except Exception as error:
    pass
"""
ASK = """import json
failure = exp.failure
print(json.dumps([failure.title, failure.source.cell, failure.source.line, failure.source.text,
                  failure.subtitle, [[fact.label, fact.value] for fact in failure.values]]))
"""
MEND = """exp.model.breaks = False
exp.resume_from_failure()
exp.wait(120)
print(exp.status, exp.step_count)
exp.run(steps=1_000_000)
"""
COMPILED = """exp.pause(); exp.wait(120)
exp.modes = "compile+ddp:2"
exp.run(steps=5, wait=True)
print(exp.status, exp.modes)
view = wb.compare(exp, ["fp32", "compile"], rounds=1, fresh_cache=False, show_progress=False)
print([arm.problem for arm in view.record.arms])
exp.modes = "ddp:2"
exp.run(steps=1_000_000)
"""
LATER = """import time
import workbench as wb
exp = wb.attach({path!r})
while exp.step_count < 60:
    time.sleep(0.05)
exp.pause()
exp.wait(120)
points = len(exp.scalars.since("train/loss", 0)[0])
print(exp.status, type(exp.model).__name__, points == exp.step_count)
exp.close()
"""


def test_ranks_of_a_notebook(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    with new_kernel() as first:
        run(first, MODEL)
        run(first, BEGIN.format(runs=runs))
        title, cell, line, text, subtitle, values = json.loads(run(first, ASK))
        assert (cell, line, text) == (1, 22, "h = h @ torch.zeros(7, 7)")
        assert title == "Cell [1], line 22: RuntimeError"
        assert subtitle.startswith("It was raised on rank 1.")
        assert values == [["h", "[16, 32] fp32"]]
        assert run(first, MEND) == "finished 20\n"
        # Dynamo looks up in a module what a cell has for globals
        assert run(first, COMPILED).splitlines() == ["finished compile+ddp:2", "['', '']"]
        folder = tmp_path / "runs" / "cells" / "parallel"
        # of the session that trains: those that have ended have no payload any more
        wait_until(
            lambda: any(
                (one / "payload.pkl").exists() and (one / "rank-0.report.json").exists()
                for one in folder.iterdir()
            ),
            "a report",
        )
        kernel = int(run(first, "import os; print(os.getpid())"))
        os.kill(kernel, signal.SIGKILL)
    with new_kernel() as second:
        path = str(tmp_path / "runs" / "cells")
        assert run(second, LATER.format(path=path)) == "paused Net True\n"
