from __future__ import annotations

import gc
import shutil
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from torch import nn

from workbench.experiment import Experiment
from workbench.metrics import TensorBoardObserver, attach
from workbench.metrics.run_description import hyper_parameters

Read = Callable[[Path], EventAccumulator]
EPOCHS, STEPS_PER_EPOCH = 2, 8


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def make(tmp_path: Path, **options: Any) -> Experiment:
    """An experiment that nothing else is attached to."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 8, generator=generator)
    y = (x[:, :3]).argmax(1)
    return Experiment(
        Net(),
        (x, y),
        (x[:64], y[:64]),
        batch_size=32,
        optimizer="sgd",
        name="digits",
        runs=tmp_path / "runs",
        device="cpu",
        **options,
    )


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    experiment = make(tmp_path)
    detach = attach(experiment)
    experiment.run(epochs=1, wait=True)
    experiment.modes = "bf16"
    experiment.learning_rate = 0.05
    experiment.run(epochs=EPOCHS - 1, wait=True)
    detach()
    experiment.close()
    return experiment.path


def text(found: EventAccumulator, tag: str) -> list[str]:
    return [
        event.tensor_proto.string_val[0].decode() for event in found.Tensors(f"{tag}/text_summary")
    ]


def test_every_curve_of_a_run_is_in_its_event_file(trained: Path, read: Read) -> None:
    found = read(trained)
    steps = [event.step for event in found.Scalars("train/loss")]
    assert steps == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    for tag in ("val/loss", "val/accuracy"):
        assert [e.step for e in found.Scalars(tag)] == [STEPS_PER_EPOCH, EPOCHS * STEPS_PER_EPOCH]
    sampled = {"train/accuracy", "train/learning_rate", "train/gradient_norm"}
    assert sampled <= set(found.Tags()["scalars"])
    assert found.Scalars("train/gradient_norm")[0].value > 0
    assert 0 <= found.Scalars("val/accuracy")[-1].value <= 1


def test_the_curves_hold_what_the_run_measured(tmp_path: Path, read: Read) -> None:
    experiment = make(tmp_path)
    detach = attach(experiment)
    run = experiment.run(epochs=1, wait=True)
    detach()
    written = [event.value for event in read(experiment.path).Scalars("train/loss")]
    assert written == pytest.approx(run.metrics["train/loss"]["value"].tolist(), rel=1e-6)


def test_the_last_confusion_matrix_is_always_drawn(trained: Path, read: Read) -> None:
    images = read(trained).Images("val/confusion_matrix")
    assert images[-1].step == EPOCHS * STEPS_PER_EPOCH
    assert images[-1].encoded_image_string.startswith(b"\x89PNG")


def test_the_run_text_says_what_ran_where(trained: Path, read: Read) -> None:
    described = text(read(trained), "run")[0]
    assert "| Model | Net," in described
    assert "| Modes | fp32 |" in described
    assert f"| torch | {torch.__version__}" in described
    changes = "\n".join(text(read(trained), "changes"))
    assert "modes fp32 → bf16" in changes
    assert "learning rate 0.05" in changes


def test_hyper_parameters_are_what_the_hparams_plugin_reads(trained: Path, read: Read) -> None:
    data = read(trained).summary_metadata["_hparams_/session_start_info"].plugin_data.content
    start = plugin_data_pb2.HParamsPluginData.FromString(data).session_start_info
    assert start.hparams["model"].string_value == "Net"
    assert start.hparams["optimizer"].string_value == "SGD"
    assert start.hparams["seed"].number_value == 0
    assert start.hparams["learning_rate"].number_value > 0


def test_hyper_parameters_are_of_the_group_whose_rate_is_shown(tmp_path: Path) -> None:
    """A first group at rate 0, as for a part that is frozen; its rate may be a tensor."""
    model = Net()
    rate = torch.tensor(0.25)
    experiment = Experiment(
        model,
        (torch.randn(8, 8), torch.zeros(8, dtype=torch.long)),
        optimizer=torch.optim.SGD(
            [
                {"params": list(model[0].parameters()), "lr": 0.0},
                {"params": list(model[2].parameters()), "lr": rate, "momentum": 0.5},
            ]
        ),
        runs=tmp_path / "runs",
        device="cpu",
    )
    found = hyper_parameters(experiment)
    assert (found["learning_rate"], found["momentum"]) == (0.25, 0.5)


def test_a_hostile_name_cannot_break_out_of_the_table(tmp_path: Path, read: Read) -> None:
    experiment = make(tmp_path)
    type(experiment.model).__name__, kept = "<script>|\n" + "x" * 10_000, "Net"
    try:
        detach = attach(experiment)
        experiment.run(steps=1, wait=True)
        detach()
    finally:
        Net.__name__ = kept
    described = text(read(experiment.path), "run")[0]
    assert "<script>" not in described
    assert all(row.count("|") == 3 for row in described.splitlines())
    assert max(map(len, described.splitlines())) < 1000


def test_the_experiment_is_not_kept_alive_and_no_thread_stays(tmp_path: Path) -> None:
    experiment = make(tmp_path)
    attach(experiment)
    experiment.run(epochs=1, wait=True)
    gone = weakref.ref(experiment.model)
    del experiment
    gc.collect()
    assert gone() is None
    for thread in threading.enumerate():
        if thread.name == "workbench-writer":
            thread.join(120)
    assert not [t for t in threading.enumerate() if t.name == "workbench-writer"]


def test_lost_points_are_counted_where_the_panel_looks(tmp_path: Path) -> None:
    experiment = make(tmp_path)
    observer = TensorBoardObserver(experiment)
    observer.writer._capacity = 4
    experiment.run(epochs=1, wait=True)
    observer.detach()
    assert experiment.dropped_points == observer.writer.dropped > 0
    assert experiment.status == "finished"


def test_training_goes_on_when_the_run_directory_is_gone(tmp_path: Path) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("a file where the folder should be")
    experiment = make(tmp_path)
    observer = TensorBoardObserver(experiment)
    experiment.run(epochs=1, wait=True)
    assert experiment.status == "finished"
    assert experiment.step_count == STEPS_PER_EPOCH
    assert observer.writer.close(timeout=0.2) is False
    assert experiment.dropped_points >= STEPS_PER_EPOCH


@pytest.mark.parametrize("closed", [False, True])
def test_files_that_are_removed_meanwhile_are_begun_anew_and_it_is_said(
    tmp_path: Path, read: Read, closed: bool
) -> None:
    experiment = make(tmp_path)
    observer = TensorBoardObserver(experiment)
    experiment.run(steps=3, wait=True)
    if closed:
        assert observer.writer.close()
    shutil.rmtree(experiment.path)
    experiment.run(steps=4, wait=True)
    observer.detach()
    found = read(experiment.path)
    assert [event.step for event in found.Scalars("train/loss")] == [4, 5, 6, 7]
    assert [note for note in experiment.notes if "were removed" in note]
    assert experiment.dropped_points == 0
    experiment.close()


def test_losses_are_the_same_with_and_without_tensorboard(tmp_path: Path) -> None:
    losses = []
    for watched in (False, True):
        torch.manual_seed(1)
        experiment = make(tmp_path / str(watched))
        detach = attach(experiment) if watched else lambda: None
        run = experiment.run(epochs=1, wait=True)
        detach()
        losses.append(run.metrics["train/loss"]["value"].tolist())
    assert losses[0] == losses[1]
