"""What the record of work on a simulated GPU says of that work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.memory import MemoryProbe, memory
from workbench.memory.prediction.predict import OF_CPU_STORAGES
from workbench.memory.prediction.unknowns import NOT_CALIBRATED
from workbench.records import CATEGORIES


def test_it_says_how_many_samples_its_own_batch_had(tmp_path: Path) -> None:
    data = torch.randn(100, 16), torch.arange(100) % 3
    exp = Experiment(nn.Linear(16, 3), data, batch_size=64, device="cpu", runs=tmp_path)
    exp.card = "1 GiB"
    sizes: list[int] = []
    for _ in range(2):
        pending = exp.capture(MemoryProbe())
        exp.run(steps=1, wait=True)
        sizes.append(pending.wait().batch_size)
    assert sizes == [64, 36], "the last batch of the epoch is smaller"


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_state_of_the_optimizer_is_known_from_the_step_that_made_it(
    tmp_path: Path, optimizer: str
) -> None:
    data = torch.randn(64, 16), torch.arange(64) % 3
    given = {"optimizer": optimizer, "lr": 0.1, "batch_size": 16, "device": "cpu"}
    exp = Experiment(nn.Linear(16, 3), data, runs=tmp_path, **given)
    exp.card = "1 GiB"
    state, unknown = CATEGORIES.index("optimizer"), CATEGORIES.index("unknown")
    first, second = (memory(exp).record for _ in range(2))
    for record in (first, second):
        assert not record.series()[unknown].any()
    assert first.series()[state, 0] == 0
    assert first.series()[state, -1] == second.series()[state, 0] > 0
    assert [note for note in first.notes if "made its state in this step" in note]
    assert second.notes == ()
    exp.close()


def test_a_step_that_ran_out_in_its_update_does_not_claim_that_the_state_is_there(
    tmp_path: Path,
) -> None:
    """16 MiB each of weights, gradients and first moments fit, second moments do not."""
    data = torch.randn(64, 2048), torch.arange(64) % 3
    model = nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.Linear(2048, 3))
    exp = Experiment(model, data, batch_size=16, device="cpu", runs=tmp_path)
    exp.card = f"{512 + 60} MiB"
    pending = exp.capture(MemoryProbe())
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(steps=1, wait=True)
    record = pending.wait()
    state = record.series()[CATEGORIES.index("optimizer")]
    assert state[-1] > 0, record.title
    assert "optimizer" in record.title
    assert not [note for note in record.notes if "made its state" in note]
    exp.close()


def test_on_another_gpu_it_does_not_claim_what_a_gpus_libraries_hold(tmp_path: Path) -> None:
    data = torch.randn(100, 16), torch.arange(100) % 3
    exp = Experiment(nn.Linear(16, 3), data, batch_size=64, device="cpu", runs=tmp_path)
    exp.card = "1 GiB"
    pending = exp.capture(MemoryProbe())
    exp.run(steps=1, wait=True)
    again = memory(pending.wait(), card="T4").record
    assert OF_CPU_STORAGES in again.reasons
    assert NOT_CALIBRATED in again.reasons
    assert not any("as it was there" in reason for reason in again.reasons)
    later = memory(again, card="A100 80 GB").record
    assert any("as it was there" in reason for reason in later.reasons), "and the reasons stay"
    assert OF_CPU_STORAGES in later.reasons
