"""Validations, batches and models that leave less to try; each says what was not tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.integration.out_of_memory.support import BATCH, CNN, MIB, images, refused
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.experiment import Experiment, RunError


def test_validation_that_does_not_fit_gets_remedies_of_its_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = CNN()
    val = images(512)
    exp = Experiment(model, images(32), val, batch_size=8, device="cpu", runs=tmp_path)
    exp.val_batch_size = 512
    exp.card = CONTEXT_BYTES + 24 * MIB
    with pytest.raises(RunError, match="validation after step 4"):
        exp.run(epochs=1).wait(120)
    assert exp.failure is not None
    names = [remedy.name for remedy in exp.failure.remedies]
    assert not any("checkpoint" in name or name.startswith("batch") for name in names)
    smaller = next(one for one in exp.failure.remedies if one.name.startswith("validation batch"))
    assert smaller.fits
    assert smaller.code == f"exp.val_batch_size = {smaller.name.split()[-1]}"
    exec(smaller.code, {"exp": exp})
    exp.resume().wait(120)
    assert exp.status == "finished"
    assert exp.step_count == 4
    exp.close()


def test_batches_that_come_ready_made_are_left_as_they_are(tmp_path: Path) -> None:
    x, y = images(64)
    batches = [(x[:32], y[:32]), (x[32:], y[32:])]
    exp = Experiment(CNN(), batches, device="cpu", runs=tmp_path)
    record = refused(exp, 6 * MIB)
    assert not any(remedy.name.startswith("batch") for remedy in record.remedies)
    assert any("batches come ready-made" in note for note in record.notes)
    exp.close()


class Stubborn(CNN):
    """Takes batches of one size only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.reshape(BATCH, 3, 24, 24))


def test_what_a_model_raises_under_a_change_is_said_with_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    exp = Experiment(Stubborn(), images(BATCH), batch_size=BATCH, device="cpu", runs=tmp_path)
    record = refused(exp, 24 * MIB)
    smaller = next(one for one in record.remedies if one.name.startswith("batch"))
    assert not smaller.fits
    assert "RuntimeError: shape" in smaller.basis
    exp.card = None
    exp.resume().wait(120)
    assert exp.status == "finished"
    exp.close()


def test_workers_and_collation_of_a_loader_are_used(tmp_path: Path) -> None:
    data: Any = [(row, int(label)) for row, label in zip(*images(96), strict=True)]
    loader = DataLoader(data, 48, shuffle=True, num_workers=2)
    exp = Experiment(CNN(), loader, device="cpu", runs=tmp_path)
    record = refused(exp, 10 * MIB)
    smaller = next(one for one in record.remedies if one.name.startswith("batch"))
    exec(smaller.code, {"exp": exp})
    exp.resume().wait(120)
    assert exp.status == "finished"
    exp.close()
