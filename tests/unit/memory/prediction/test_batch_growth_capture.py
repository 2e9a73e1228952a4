"""A captured step learns its growth when somebody asks, and nothing of the experiment changes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.memory.prediction.test_fake_run import Choosy
from workbench.experiment import Experiment
from workbench.memory import MemoryProbe, memory
from workbench.memory.prediction import batch_growth_capture
from workbench.memory.prediction.batch_growth_capture import with_determined_growth
from workbench.records import GROWTHS, MemoryRecord

UNKNOWN = GROWTHS.index("unknown")


def experiment(folder: Path, model: nn.Module | None = None, **options: Any) -> Experiment:
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
    data = torch.randn(40, 16), torch.arange(40) % 10
    return Experiment(model, data, batch_size=16, runs=folder, **options)


def captured(exp: Experiment) -> MemoryRecord:
    return exp.capture(MemoryProbe()).wait()


def is_known(record: MemoryRecord) -> bool:
    return not (record.block_growth == UNKNOWN).any()


def test_what_is_shown_of_an_experiment_knows_how_it_grows(tmp_path):
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    record = memory(exp).record
    assert is_known(record)
    assert record.batch_size == 16
    exp.close()


def test_a_capture_alone_does_not_until_somebody_asks(tmp_path):
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    record = captured(exp)
    assert not is_known(record)
    found = with_determined_growth(exp, record)
    assert is_known(found)
    assert with_determined_growth(exp, found) is found
    assert with_determined_growth(exp, record, most=5) is record, (
        "a step of so many blocks would take a while"
    )
    exp.close()


def test_a_view_of_a_long_step_learns_it_when_another_batch_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_growth_capture, "MOST_BY_DEFAULT", 5)
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    view = memory(exp)
    assert not is_known(view.record)
    view.what_if(batch=16)
    assert not is_known(view.record), "as recorded, nothing has to be known"
    low, high = view.what_if(batch=1 << 20).peak_interval
    assert low == high > 0
    assert is_known(view.record), "and is saved with it"
    exp.close()


def test_a_view_outlives_its_experiment_and_keeps_none(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_growth_capture, "MOST_BY_DEFAULT", 5)
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    view, left = memory(exp), weakref.ref(exp._training)
    exp.close()
    del exp
    gc.collect()
    assert left() is None
    low, high = view.what_if(batch=1 << 20).peak_interval
    assert low < high, "as far as the record alone knows"


def test_the_batch_is_that_of_the_capture_not_that_of_the_next_step(tmp_path):
    """The third of forty samples in sixteens are eight."""
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    record = captured(exp)
    exp.run(steps=1, wait=True)
    assert is_known(with_determined_growth(exp, record))
    exp.close()


@pytest.mark.parametrize("modes", ["bf16", "checkpoint"])
def test_modes_are_no_hindrance(tmp_path, modes):
    exp = experiment(tmp_path, modes=modes)
    exp.run(steps=1, wait=True)
    assert is_known(memory(exp).record)
    exp.close()


def test_where_it_cannot_be_found_out_it_stays_unknown(tmp_path):
    exp = experiment(tmp_path, Choosy())
    record = memory(exp).record
    assert not is_known(record)
    assert record.peak_bytes > 0
    exp.close()


def test_hooks_of_the_users_are_given_no_fake_tensors(tmp_path):
    seen: list[Any] = []
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
    model[0].register_forward_hook(lambda _, __, output: seen.append(type(output)))
    exp = experiment(tmp_path, model)
    exp.run(steps=1, wait=True)
    assert not is_known(memory(exp).record)
    assert set(seen) == {torch.Tensor}
    exp.close()


def test_the_steps_that_follow_are_bit_identical(tmp_path):
    def losses(*, asks: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(), nn.Linear(32, 10))
        exp = experiment(tmp_path, model)
        exp.run(steps=2, wait=True)
        record = captured(exp)
        exp.run(steps=2, wait=True)
        if asks:
            assert is_known(with_determined_growth(exp, record))
        run = exp.run(steps=4, wait=True)
        found = run.metrics["train/loss"]["value"].tolist()
        exp.close()
        return found

    assert losses(asks=True) == losses(asks=False)


def test_a_step_that_raises_says_so_in_its_record(tmp_path, caplog):
    model = nn.Sequential(nn.Linear(16, 64), nn.Linear(8, 10))
    exp = experiment(tmp_path, model)
    notes = memory(exp).record.notes
    assert notes[0].startswith("The step ended with RuntimeError: mat1 and mat2")
    assert not [said for said in caplog.records if "fake_tensor" in said.name]
    exp.close()


def test_why_it_is_not_known_is_a_note_where_somebody_asked(tmp_path):
    exp = experiment(tmp_path)
    exp.run(steps=1, wait=True)
    record = captured(exp)
    exp.close()
    found = with_determined_growth(exp, record)
    assert not is_known(found)
    assert "is closed" in found.notes[-1]
    assert len(with_determined_growth(exp, found).notes) == len(found.notes)
