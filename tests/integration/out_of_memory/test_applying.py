"""A remedy that somebody chooses, in a cell or in the panel, and what is no choice any more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.out_of_memory.support import MIB, experiment, refused
from workbench.experiment import Experiment, RunError
from workbench.panel.channel import commands


@pytest.fixture(scope="module")
def failed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    exp = experiment(tmp_path_factory.mktemp("failed"), "CNN")
    refused(exp, 48 * MIB)
    yield exp
    exp.close()


@pytest.fixture
def failed(failed_once: Experiment) -> Iterator[Experiment]:
    """One that ran out of memory, with nothing applied; it is not run again."""
    yield failed_once
    failed_once.modes = "fp32"


def test_a_remedy_can_be_applied_by_its_number(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    with pytest.raises(ValueError, match="none, as nothing was tried"):
        exp.apply_remedy()
    refused(exp, 48 * MIB)
    with pytest.raises(ValueError, match="there is no remedy 99"):
        exp.apply_remedy(99)
    exp.apply_remedy()
    exp.resume().wait(120)
    assert exp.status == "finished"
    exp.close()


@pytest.mark.parametrize("how", ["number", "name", "itself"])
def test_a_remedy_is_chosen_by_its_number_by_its_name_or_by_itself(
    failed: Experiment, how: str
) -> None:
    assert failed.failure is not None
    assert failed.modes == "fp32"
    remedy = failed.failure.remedies[1]
    assert remedy.name == "checkpoint stages"
    failed.apply_remedy({"number": 1, "name": remedy.name, "itself": remedy}[how])
    assert remedy.code == f'exp.modes = "{failed.modes}"' != 'exp.modes = "fp32"'


def test_what_is_no_remedy_of_the_failure_is_said(failed: Experiment) -> None:
    assert failed.failure is not None
    remedies = failed.failure.remedies
    valid = f"valid are: 0 to {len(remedies) - 1}, or a name: 'bf16', 'checkpoint stages'"
    with pytest.raises(ValueError, match=f"there is no remedy 'bf17'; {valid}"):
        failed.apply_remedy("bf17")
    with pytest.raises(ValueError, match=f"there is no remedy 'bf16'; {valid}"):
        failed.apply_remedy(dataclasses.replace(remedies[0], peak_bytes=1))
    for bad in (True, None, 1.5, ["bf16"]):
        wrong: Any = bad
        with pytest.raises(TypeError, match=f"by its number, .* got {type(bad).__name__}"):
            failed.apply_remedy(wrong)
    assert failed.modes == "fp32"


def test_what_was_tried_on_another_gpu_is_not_applied(failed: Experiment) -> None:
    before = failed.card
    failed.card = "8 GiB"
    with pytest.raises(ValueError, match=r"bf16 was tried with exp\.card = '560 MiB', and"):
        failed.apply_remedy()
    assert (failed.card, failed.modes) == ("8 GiB", "fp32")
    failed.card = before
    failed.apply_remedy()
    assert failed.modes == "bf16"


def test_what_was_tried_is_forgotten_where_the_run_fails_otherwise(tmp_path: Path) -> None:
    def fault(*_: object) -> None:
        raise LookupError("the user's own")

    exp = experiment(tmp_path, "CNN")
    refused(exp, 48 * MIB)
    exp.apply_remedy()
    exp.model.register_forward_hook(fault)
    with pytest.raises(RunError, match="the user's own"):
        exp.resume().wait(120)
    with pytest.raises(ValueError, match="there is no remedy 0; valid are: none, as nothing was"):
        exp.apply_remedy()
    exp.close()


def test_the_panel_applies_a_remedy_and_goes_on(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "CNN")
    refused(exp, 48 * MIB)
    for bad in (True, "0", None, 1.5):
        with pytest.raises(commands.CommandError, match="the number of a remedy"):
            commands.execute(exp, "apply_remedy", {"index": bad})
    with pytest.raises(ValueError, match="there is no remedy -1"):
        commands.execute(exp, "apply_remedy", {"index": -1})
    commands.execute(exp, "apply_remedy", {"index": 0})
    exp.wait(120)
    assert exp.status == "finished"
    exp.close()


def test_what_was_tried_and_does_not_fit_is_not_applied(tmp_path: Path) -> None:
    """What the training holds by now is more than the GPU: no batch helps."""
    exp = Experiment(
        nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3)),
        (torch.randn(64, 512), torch.arange(64) % 3),
        batch_size=16,
        runs=tmp_path,
    )
    exp.run(steps=1, wait=True)
    exp.card = f"{512 + 3} MiB"
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(steps=1, wait=True)
    with pytest.raises(RunError, match="Out of memory"):
        exp.wait()
    assert exp.failure is not None
    assert not any(remedy.fits for remedy in exp.failure.remedies)
    with pytest.raises(ValueError, match=r"does not fit; .* choose a larger GPU"):
        exp.apply_remedy()
    assert (exp.batch_size, exp.modes) == (16, "fp32")
    exp.card = "T4"
    exp.resume()
    exp.wait()
    assert exp.step_count >= 2
    exp.close()
