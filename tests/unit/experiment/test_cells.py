"""In a real kernel: prints land in the cell that ran, failures name the user's cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.waiting import DEADLINE_S

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.loud = False
        self.said = False

    def forward(self, x):
        if self.loud and not self.said:
            print("hello from forward")
            self.said = True
        return self.head(x)
"""
EXPERIMENT = """
import warnings
from workbench.experiment import Experiment
net = Net()
exp = Experiment(net, (torch.randn(64, 4), torch.arange(64) % 3), batch_size=8, runs=RUNS)
"""
BROKEN = MODEL.replace("return self.head(x)", "h = x.mean(1)\n        return self.head(h)")


class Kernel:
    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client
        self.outputs: list[tuple[str, str]] = []

    def run(self, code: str) -> str:
        """Run a cell; its id. Outputs of all cells are collected with the cell's id."""
        cell = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=DEADLINE_S)
            self._collect(message)
            idle = message["content"].get("execution_state") == "idle"
            if message["parent_header"].get("msg_id") == cell and idle:
                return cell

    def until(self, cell: str, words: str) -> None:
        """Collect until a cell, which may be over long since, has printed ``words``."""
        while words not in self.text(cell):
            self._collect(self.client.get_iopub_msg(timeout=DEADLINE_S))

    def _collect(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            self.outputs.append((message["parent_header"]["msg_id"], content["text"]))
        if message["msg_type"] == "error":
            raise AssertionError("\n".join(content["traceback"]))

    def text(self, cell: str) -> str:
        return "".join(text for owner, text in self.outputs if owner == cell)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        kernel = Kernel(client)
        kernel.run(f"RUNS = {str(tmp_path)!r}\nimport torch\nfrom torch import nn")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_prints_and_failures_belong_to_the_right_cell(kernel: Kernel) -> None:
    kernel.run(MODEL)
    kernel.run(EXPERIMENT)
    started = kernel.run("run = exp.run(epochs=100_000)")
    later = kernel.run(
        "import time\nnet.loud = True\nwhile not net.said: time.sleep(0.01)\nprint('x')"
    )
    kernel.until(started, "hello from forward")
    kernel.until(later, "x")
    assert kernel.text(later).strip() == "x"
    kernel.run("exp.pause(); exp.wait(120)")

    kernel.run(BROKEN)
    kernel.run(
        "net.__class__ = Net\nexp.resume()\n"
        "try:\n    exp.wait(120)\nexcept RuntimeError as error:\n    failed = str(error)"
    )
    shown = kernel.run(
        "f = exp.failure\n"
        "print(f.title); print(f.scope); print([l.text.strip() for l in f.code if l.current])\n"
        "print([(v.label, v.value) for v in f.values]); print(f.source.cell, f.num_user_frames)\n"
        "print(f.traceback); print(failed.startswith(f'{f.title}\\n{f.message}\\n'))"
    )
    text = kernel.text(shown)
    assert "Cell [7], line 13: RuntimeError\nNet.forward\n['return self.head(h)']" in text
    assert "[('h', '[8] fp32'), ('head.weight', '[3, 4] fp32'), ('head.bias', '[3] fp32')]" in text
    assert "7 1\n" in text
    assert text.rstrip().endswith("True"), "what wait raised is the failure"
    assert "> cell [7], line 13, in Net.forward\n      return self.head(h)" in text

    kernel.run(MODEL)  # the repaired cell: resume takes its code without touching the instance
    fixed = kernel.run("exp.resume_from_failure(); exp.pause(); exp.wait(120); print(exp.status)")
    assert kernel.text(fixed).strip() == "paused"
