"""What other packages provide to an experiment, whoever creates it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.services import Services, only, provided


def experiment(folder: Path) -> Experiment:
    data = torch.randn(8, 4), torch.arange(8) % 2
    return Experiment(nn.Linear(4, 2), data, batch_size=4, runs=folder)


def test_an_experiment_that_is_made_without_wb_has_everything(
    ran: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    script = f"""
import torch
from torch import nn
from workbench.experiment import Experiment

exp = Experiment(nn.Linear(4, 2), (torch.randn(8, 4), torch.arange(8) % 2), runs={str(tmp_path)!r})
exp.run(wait=True)
from workbench.panel.channel.hub import hub

assert exp in hub()._living(), "it is in the panels"
assert sorted(one.kind for one in exp.captures.infos()) == ["graph", "memory"]
shown = exp._repr_mimebundle_()
assert "text/html" in (shown[0] if isinstance(shown, tuple) else shown)
exp.card = "1 GiB"  # a tool of memory's simulates it
exp.close()
assert list(exp.path.glob("events.out.tfevents*")), "TensorBoard has its curves"
"""
    done = ran(script)
    assert done.returncode == 0, done.stderr


def test_one_keeps_what_was_provided_when_it_was_made(tmp_path: Path) -> None:
    seen: list[Experiment] = []
    with only(Services(on_new=(seen.append,), display=lambda _experiment: {"text/plain": "shown"})):
        exp = experiment(tmp_path)
        assert seen == [exp]
    assert exp._repr_mimebundle_() == {"text/plain": "shown"}
    other = experiment(tmp_path)
    assert seen == [exp]
    assert other._repr_mimebundle_() != {"text/plain": "shown"}
    exp.close()
    other.close()


def test_what_is_provided_in_a_block_ends_with_it() -> None:
    before = provided()

    def fails_inside() -> None:
        with only(replace(before, send=None)):
            assert provided().send is None
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails_inside()
    assert provided() is before


def test_workbenchs_own_are_complete() -> None:
    with only(None):
        own = provided()
    assert own.on_new
    assert None not in (own.display, own.send, own.memory_tool)


def test_by_itself_it_says_what_it_lacks(tmp_path: Path) -> None:
    with only(Services()):
        exp = experiment(tmp_path)
    with pytest.raises(RuntimeError, match=r"wb\.Experiment"):
        exp.card = "8 GiB"
    assert "Linear" in exp._repr_mimebundle_()["text/plain"]
    exp.close()
