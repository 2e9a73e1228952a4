"""A prediction is a record like any other, marked as one, and leaves everything as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.integration.support import reach
from tests.unit.allocator.traces import FILES, path_of
from tests.unit.memory.prediction.test_fake_run import Choosy
from workbench.allocator.simulator.gpus import CONTEXT_BYTES, gpu_named
from workbench.allocator.simulator.settings import SettingsError
from workbench.experiment import Experiment
from workbench.memory import memory
from workbench.memory.prediction.predict import predicted_recording
from workbench.memory.prediction.unknowns import AS_RECORDED, NOT_CALIBRATED
from workbench.memory.reading.fragmentation import fragmentation
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.records import CATEGORIES, MemoryRecord

MIB = 2**20


def experiment(folder: Path, model: nn.Module | None = None, **options: Any) -> Experiment:
    torch.manual_seed(0)
    model = model or nn.Sequential(
        nn.Linear(16, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)
    )
    data = torch.randn(256, 16), torch.arange(256) % 10
    return Experiment(model, data, batch_size=32, runs=folder, optimizer="adamw", **options)


def check(record: MemoryRecord) -> None:
    """What holds of every record of an allocator, and of every prediction."""
    parts = fragmentation(record, recorded_settings(record))
    np.testing.assert_array_equal(parts.sum(axis=0), record.reserved())
    assert (parts >= 0).all()
    MemoryRecord.from_bytes(record.to_bytes())
    low, high = record.peak_interval
    assert low <= record.reserved().max() <= high
    assert record.is_predicted
    assert record.basis.startswith("Predicted")


def test_the_next_step_on_a_gpu_that_is_not_here(tmp_path):
    exp = experiment(tmp_path)
    record = memory(exp, card="RTX 4090", settings="expandable_segments:True", batch=64).record
    check(record)
    card = gpu_named("RTX 4090")
    assert (record.card, record.card_bytes, record.batch_size) == (card.name, card.usable_bytes, 64)
    assert record.settings == "expandable_segments:True"
    assert (record.device, record.experiment, record.step) == ("cuda", exp.name, 1)
    assert record.segment_expandable.all()
    assert [phase.name for phase in record.phases] == ["forward", "backward", "optimizer"]
    optimizer = record.series()[CATEGORIES.index("optimizer")]
    assert optimizer[0] == optimizer[-1] > 0, "the second step: its state was made in the first"
    assert NOT_CALIBRATED in record.reasons
    exp.close()


def test_the_printed_summary_says_predicted_the_interval_and_the_reasons(tmp_path):
    exp = experiment(tmp_path)
    text = str(memory(exp, card=16 * 2**30))
    assert "predicted, not measured: on a 16 GiB GPU" in text
    assert "to" in text.partition("reserved at most")[0].splitlines()[-1], "an interval"
    assert NOT_CALIBRATED in text
    assert "foreach" in text
    exp.close()


def test_each_of_gpu_settings_and_batch_alone_asks_for_a_prediction(tmp_path):
    exp = experiment(tmp_path)
    for options in ({"card": "T4"}, {"settings": ""}, {"batch": 48}):
        record = memory(exp, **options).record
        check(record)
        assert record.batch_size == options.get("batch", 32)
    assert not memory(exp).record.is_predicted
    exp.close()


def losses(folder: Path, *, predicts: bool) -> list[float]:
    exp = experiment(folder, modes="bf16")
    run = exp.run(steps=3, wait=True)
    if predicts:
        memory(exp, card="T4", batch=128)
    run = exp.run(steps=3, wait=True)
    if predicts:
        memory(exp, card="H100 80 GB")
    run = exp.run(steps=2, wait=True)
    found = run.metrics["train/loss"]["value"].tolist()
    state = exp.model.state_dict()
    found += [float(value.double().sum()) for value in state.values()]
    exp.close()
    return found


def test_the_steps_that_follow_are_bit_identical(tmp_path):
    assert losses(tmp_path / "a", predicts=True) == losses(tmp_path / "b", predicts=False)


def test_it_works_while_a_run_trains_in_the_background(tmp_path):
    def trained(*, predicts: bool) -> list[float]:
        exp = experiment(tmp_path)
        run = exp.run(steps=300)
        if predicts:
            reach(exp, 5)
            check(memory(exp, card="RTX 4090").record)
        run.wait(120)
        assert exp.status == "finished"
        found = run.metrics["train/loss"]["value"].tolist()
        exp.close()
        return found

    assert trained(predicts=True) == trained(predicts=False)


def blocks_of_layers() -> nn.Module:
    blocks = (
        nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 16))
        for _ in range(4)
    )
    return nn.Sequential(nn.Sequential(*blocks), nn.Linear(16, 10))


def test_modes_that_come_with_the_next_step_are_those_of_the_prediction(tmp_path):
    """Before a first step, and where modes were changed since the last one."""

    def kept(exp: Experiment) -> int:
        record = memory(exp, card="T4", batch=4096).record
        activations = record.series()[CATEGORIES.index("activations")]
        return int(activations[record.phases[0].end])

    exp = experiment(tmp_path, blocks_of_layers())
    plain = kept(exp)
    exp.modes = "checkpoint"
    checkpointed = kept(exp)
    assert checkpointed < plain / 3
    exp.run(steps=1, wait=True)
    assert kept(exp) == checkpointed
    exp.modes = ""
    assert kept(exp) == plain
    exp.run(steps=1, wait=True)
    assert kept(exp) == plain
    exp.modes = "checkpoint"
    assert kept(exp) == checkpointed
    exp.close()


def test_compiled_blocks_are_predicted_as_they_are_written(tmp_path):
    exp = experiment(tmp_path, blocks_of_layers(), modes="compile")
    compiled = memory(exp, card="T4").record
    exp.modes = ""
    assert memory(exp, card="T4").record.peak_interval == compiled.peak_interval
    exp.close()


def test_a_model_that_needs_its_values_is_run_on_a_copy_and_nothing_of_it_changes(tmp_path):
    exp = experiment(tmp_path, Choosy())
    before = {name: value.clone() for name, value in exp.model.state_dict().items()}
    record = memory(exp, card="T4").record
    check(record)
    assert any("Run for real on a copy" in reason for reason in record.reasons)
    assert all(torch.equal(value, before[name]) for name, value in exp.model.state_dict().items())
    assert all(parameter.grad is None for parameter in exp.model.parameters())
    exp.close()


def test_a_step_that_does_not_fit_says_what_was_refused(tmp_path):
    exp = experiment(tmp_path)
    view = memory(exp, card=CONTEXT_BYTES + 64 * MIB, batch=2**16)
    record = view.record
    MemoryRecord.from_bytes(record.to_bytes())
    assert len(record.oom_event) == 1
    assert record.title.startswith("Out of memory: ")
    assert f"{record.experiment}, step {record.step:,}, on " in record.title
    again = memory(record, card="A100 80 GB").record
    assert again.title == f"{record.experiment}, step {record.step:,}"
    assert str(memory(record)).startswith("Out of memory: ")
    assert record.reserved().max() <= record.card_bytes
    assert "out of memory" in str(view).lower()
    exp.close()


def test_a_fault_of_the_model_is_the_callers(tmp_path):
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)

    exp = experiment(tmp_path, Broken())
    with pytest.raises(RuntimeError, match="the step cannot be run") as caught:
        memory(exp, card="T4")
    assert "\n" not in str(caught.value)
    assert exp.status == "idle"
    exp.close()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"card": "RTX 9999"}, ValueError, "no GPU is called"),
        ({"card": 1000}, ValueError, "has nothing left"),
        ({"settings": "max_split_size_mb:3"}, SettingsError, "max_split_size is"),
        ({"batch": 0}, ValueError, "at least 1"),
        ({"batch": "64"}, TypeError, "a whole number of samples, got str"),
        ({"batch": True}, TypeError, "got bool"),
        ({"card": True}, TypeError, "or bytes, got bool"),
        ({"card": 23.6}, TypeError, "or bytes, got float"),
    ],
)
def test_bad_input_is_said(tmp_path, options, error, text):
    exp = experiment(tmp_path)
    with pytest.raises(error, match=text):
        memory(exp, **options)
    exp.close()


def test_there_must_be_something_to_predict_from():
    for target in (None, torch.ones(2), 3):
        with pytest.raises(TypeError, match=r"to predict from; .* takes an Experiment"):
            memory(target, card="T4")


# -- of recordings ------------------------------------------------------------------------------


def test_what_was_recorded_on_the_cpu_on_a_gpu(tmp_path):
    exp = experiment(tmp_path)
    exp.run(steps=2, wait=True)
    view = memory(exp)
    path = view.save(tmp_path / "step.safetensors")
    found = memory(path, card="T4").record
    check(found)
    assert AS_RECORDED in found.reasons
    again = memory(view.record, card="T4").record
    assert again.peak_interval == found.peak_interval
    larger = memory(view.record, card="T4", batch=64).record
    check(larger)
    assert larger.batch_size == 64
    exp.close()


@pytest.mark.parametrize("name", FILES[1:])
def test_what_was_recorded_on_a_gpu_is_served_as_it_is(name):
    trace = memory(path_of(name)).record
    found = memory(path_of(name), card="H100 80 GB").record
    check(found)
    assert found.reasons == ()
    np.testing.assert_array_equal(found.reserved(), trace.reserved())


def test_a_prediction_can_be_asked_about_another_gpu(tmp_path):
    exp = experiment(tmp_path)
    first = memory(exp, card="RTX 4090").record
    second = memory(first, card="T4", settings="expandable_segments:True").record
    check(second)
    assert second.card == "T4"
    assert "a prediction for RTX 4090" in second.reasons[0]
    assert set(first.reasons) <= set(second.reasons)
    exp.close()


def test_a_recording_that_does_not_know_its_batch_says_so():
    with memory() as mem:
        torch.ones(4) * 2
    with pytest.raises(ValueError, match="does not say how many samples"):
        memory(mem.record, batch=8)


def test_the_interval_of_what_is_refused_is_what_it_would_take(step_record):
    small = predicted_recording(step_record, "513 MiB")
    assert len(small.oom_event) == 1
    assert small.peak_interval == predicted_recording(step_record).peak_interval
    assert small.peak_interval[0] > small.card_bytes
