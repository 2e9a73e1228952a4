"""An interrupt while a run begins: it has begun and pauses, or nothing has happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.integration.scripts import Scripts

BEGINNING = """
import os, signal, sys
import torch
from torch import nn
import workbench as wb
from workbench.experiment.report.events import RunStarted
from workbench.experiment.runtime.runner import Runner
from workbench.metrics.writer import EventWriter

torch.set_num_threads(1)
x = torch.randn(256, 8)
y = (x[:, 0] > 0).long()
exp = wb.Experiment(nn.Linear(8, 2), (x, y), batch_size=8, runs=sys.argv[1], name="run")

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

def once(owner, name, *, before):
    whole = getattr(owner, name)
    def interrupted(self, *arguments, **options):
        setattr(owner, name, whole)
        if before:
            interrupt()
        found = whole(self, *arguments, **options)
        if not before:
            interrupt()
        return found
    setattr(owner, name, interrupted)

def at_start(event):
    if type(event) is RunStarted:
        unsubscribe()
        interrupt()

def begun(wait):
    try:
        exp.run(epochs=1_000_000, wait=wait)
    except KeyboardInterrupt:
        exp.wait()
        print(exp.status)
    else:
        print("not interrupted")

def afterwards():
    if exp.status == "paused":
        exp.resume()
        exp.stop()
        exp.wait()
    print(exp.predict(x[:2]).shape[0])
    before = exp.step_count
    exp.run(steps=3, wait=True)
    print(exp.step_count - before)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(str(exp.path), size_guidance={"scalars": 0})
    found.Reload()
    print(len(found.Scalars("train/loss")) == exp.step_count)
"""


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("unsubscribe = exp.subscribe(at_start)", "idle"),
        ("once(Runner, '_take', before=True)", "idle"),
        ("once(Runner, '_occupy', before=False)", "idle"),
        ("once(Runner, '_begin', before=True)", "paused"),
        ("once(Runner, '_begin', before=False)", "paused"),
        ("once(EventWriter, '_ensure_thread', before=True)", "idle"),
    ],
)
@pytest.mark.parametrize("wait", [True, False])
def test_a_run_that_was_interrupted_as_it_began_can_be_begun_again(
    tmp_path: Path, fork_server: ForkServer, where: str, status: str, wait: bool
) -> None:
    scripts = Scripts(tmp_path, fork_server, BEGINNING)
    done = scripts.ended(f"{where}\nbegun(wait={wait})\nafterwards()\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [status, "2", "3", "True"], done.stderr
