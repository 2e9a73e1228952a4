"""A run that is resumed is as if it had never ended; what cannot be is refused beforehand."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.saved_training import snapshot
from tests.unit.experiment.plain_loop import CLASSES, FEATURES, assert_equal, data, seeded
from workbench.experiment import Experiment
from workbench.experiment.checkpoint import folder
from workbench.experiment.report.events import Event
from workbench.experiment.runtime.checkpoint_writer import PINNED
from workbench.experiment.runtime.resume import ResumeError
from workbench.experiment.runtime.weights import load_weights

VAL = data(32, seed=2)


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.Dropout(0.2)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def made(runs: Path, model: Callable[[], nn.Module] = Net, **options: Any) -> Experiment:
    settings: dict[str, Any] = {
        "train": data(), "val": VAL, "batch_size": 16, "optimizer": "adamw", "name": "run",
        "device": "cpu",
    }  # fmt: skip
    return Experiment(seeded(model), runs=runs, **(settings | options))


def values(exp: Experiment, name: str = "train/loss") -> list[float]:
    return exp.scalars.since(name, 0)[1].tolist()


def stopped_at(runs: Path, steps: int, **options: Any) -> Path:
    """A run of three epochs that ends after ``steps``."""
    exp = made(runs, **options)

    def pause(event: Event) -> None:
        if event.step == steps:
            exp.pause()

    exp.subscribe(pause, every_step=True)
    exp.run(epochs=3).wait()
    exp._runner._checkpoints.join()
    exp.close()
    return exp.path


def whole(runs: Path, **options: Any) -> Experiment:
    exp = made(runs, **options)
    exp.run(epochs=3, wait=True)
    exp.close()
    return exp


def resumed(path: Path, **options: Any) -> Experiment:
    exp = made(path.parent, **options)
    exp.resume_from(path)
    return exp


def equal(one: Experiment, other: Experiment) -> None:
    for name in ("train/loss", "val/loss", "val/accuracy", "train/learning_rate"):
        assert values(one, name) == values(other, name), name
    assert_equal(one.model, other.model)


@pytest.mark.parametrize("steps", [1, 3, 4, 6, 11])
def test_it_ends_as_a_run_that_was_not_interrupted(tmp_path: Path, steps: int) -> None:
    path = stopped_at(tmp_path, steps)
    exp = resumed(path)
    assert (exp.status, exp.step_count, exp.path) == ("paused", steps, path)
    exp.resume().wait()
    assert exp.status == "finished"
    equal(exp, whole(tmp_path / "whole"))
    assert [one.name for one in tmp_path.iterdir() if one.name != "whole"] == ["run"]
    exp.close()


def test_cells_that_draw_before_and_after_change_nothing(tmp_path: Path) -> None:
    exp = made(tmp_path)
    exp.run(steps=5, wait=True)
    exp.close()
    torch.manual_seed(99)
    again = made(tmp_path)
    again.resume_from(exp.path)
    torch.rand(3)
    again.run(steps=7, wait=True)
    again.close()
    straight = made(tmp_path / "whole")
    straight.run(steps=12, wait=True)
    straight.close()
    assert values(again) == values(straight)


class Counts(Net):
    """Plain attributes that its forward changes and reads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen, self.average = 0, list[float](), torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            self.seen = [*self.seen[-2:], float(x.mean())]
            self.average = 0.9 * self.average + 0.1 * x.detach().mean()
        return super().forward(x) * (1 + 0.01 * (self.calls + sum(self.seen)) + self.average)


class Extra(Net):
    def __init__(self) -> None:
        super().__init__()
        self.holder: Any = [0]

    def get_extra_state(self) -> Any:
        return {"count": self.holder[0]}

    def set_extra_state(self, state: Any) -> None:
        self.holder[0] = state["count"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.holder[0] += 1
        return super().forward(x) * (1 + self.holder[0] / 100)


class Grows(Net):
    """A buffer that the forward makes, and gives another shape."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            before = dict(self.named_buffers()).get("memory", torch.zeros(0, CLASSES))
            out = super().forward(x)
            self.register_buffer("memory", torch.cat([before, out.detach()[:1]]), persistent=False)
            return out + self.get_buffer("memory").mean()
        return super().forward(x)


class Remembers(Dataset[Any]):
    """A generator and a count of its own."""

    def __init__(self) -> None:
        self.generator, self.count = torch.Generator().manual_seed(4), 0
        self.x, self.y = data()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.count += 1
        noise = torch.rand((), generator=self.generator) + 0.001 * self.count
        return self.x[index] + noise, int(self.y[index])


def sgd_groups(model_parameters: Any) -> torch.optim.Optimizer:
    parameters = list(model_parameters)
    return torch.optim.SGD(
        [{"params": parameters[:2], "lr": 0.05}, {"params": parameters[2:]}], lr=0.1, momentum=0.9
    )


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    rest = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, rest], [3])


class Centres(nn.Module):
    """A loss with a parameter and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(CLASSES))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        loss = nn.functional.cross_entropy(logits * self.scale, labels)
        return loss * (1 + 0.01 * self.calls)


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "attributes": lambda: {"model": Counts},
    "extra state": lambda: {"model": Extra},
    "buffers that grow": lambda: {"model": Grows},
    "a data set that remembers": lambda: {"train": Remembers()},
    "groups and schedules": lambda: {
        "optimizer": sgd_groups, "scheduler": cosine, "schedule_every": "step",
    },
    "plateau": lambda: {
        "optimizer": "sgd", "lr": 0.5, "scheduler": lambda o: (
            torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.5)
        ),
    },
    "a loss that is trained": lambda: {"loss": Centres()},
    "fp16": lambda: {"modes": "fp16"},
    "clipped": lambda: {"clip_grad_norm": 0.1},
    "no shuffle, no val": lambda: {"shuffle": False, "val": VAL},
    "adagrad": lambda: {"optimizer": "adagrad"},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [6, 8])
def test_everything_that_a_step_depends_on_comes_along(
    tmp_path: Path, case: str, steps: int
) -> None:
    path = stopped_at(tmp_path, steps, **CASES[case]())
    exp = resumed(path, **CASES[case]())
    exp.resume().wait()
    equal(exp, whole(tmp_path / "whole", **CASES[case]()))
    exp.close()


def test_settings_that_were_changed_in_the_run_stay(tmp_path: Path) -> None:
    def until_six(exp: Experiment) -> None:
        exp.run(steps=3, wait=True)
        exp.learning_rate = 0.003
        exp.model.body[0].weight.requires_grad_(False)
        exp.modes = "bf16"
        exp.run(steps=3, wait=True)

    first, straight = made(tmp_path), made(tmp_path / "whole")
    until_six(first)
    first.close()
    until_six(straight)
    straight.run(steps=4, wait=True)
    exp = resumed(first.path)
    assert exp.modes == "bf16"
    assert exp.learning_rate == 0.003
    assert not exp.model.body[0].weight.requires_grad
    exp.run(steps=4, wait=True)
    assert values(exp) == values(straight)
    assert_equal(exp.model, straight.model)
    exp.close()
    straight.close()


def test_curves_marks_and_the_best_are_those_of_the_run(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.run(epochs=2, wait=True)
    first.learning_rate = 0.01
    first.run(steps=2, wait=True)
    first.close()
    exp = resumed(first.path)
    for name in first.scalars.names():
        assert exp.scalars.since(name, 0)[0].tolist() == first.scalars.since(name, 0)[0].tolist()
        assert values(exp, name) == values(first, name), name
    assert exp.markers == first.markers
    assert exp.best_accuracy == first.best_accuracy
    exp.close()


# -- refused ------------------------------------------------------------------------------------


def refused(exp: Experiment, source: Path, match: str, **options: Any) -> None:
    """Nothing of the experiment and nothing on disk has changed."""
    before, files = snapshot(exp._training), times(source)
    with pytest.raises((folder.CheckpointError, RuntimeError), match=match):
        exp.resume_from(source, **options)
    assert flat(snapshot(exp._training)) == flat(before)
    assert times(source) == files
    exp.close()


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = dict(enumerate(value)).items()
    else:
        return {path: value.tolist() if isinstance(value, torch.Tensor) else value}
    return {at: one for key, inner in items for at, one in flat(inner, f"{path}.{key}").items()}


def contents_of(run: Path) -> dict[Path, bytes]:
    files = (path for path in run.rglob("*") if path.is_file() and path.name != "run.lock")
    return {path: path.read_bytes() for path in files}


def times(run: Path) -> dict[Path, int]:
    files = (path for path in run.rglob("*") if path.name != "run.lock")
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model": lambda: Net(9)}, r"of another model(.|\n)*body\.0\.weight +8x\d+ +9x\d+"),
        (
            {"model": lambda: nn.Linear(FEATURES, CLASSES)},
            r"parameters in the optimizer's groups of the run was \[6\], and is \[2\]",
        ),
        ({"model": lambda: Net().double()}, r"8x\d+ +8x\d+ float64"),
        ({"batch_size": 8}, "batch size of train of the run was 16, and is 8"),
        ({"seed": 3}, "seed of the run was 0, and is 3"),
        ({"train": data(40)}, "number of samples in train"),
        ({"optimizer": sgd_groups}, "the optimizer of the run was AdamW, and is SGD"),
        ({"shuffle": False}, "the shuffling of train of the run was True, and is False"),
        ({"clip_grad_norm": 1.0}, "clipping of the run was None, and is 1.0"),
        ({"scheduler": cosine}, "the schedule of the run was none, and is SequentialLR"),
        ({"val": None}, "the validation data of the run was given, and is none"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_with_what_differs(
    tmp_path: Path, options: dict[str, Any], match: str
) -> None:
    path = stopped_at(tmp_path, 3)
    refused(made(tmp_path / "other", **options), path, match)


def test_where_there_is_none_it_says_when_one_is_written(tmp_path: Path) -> None:
    exp = made(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResumeError, match="no such folder"):
        exp.resume_from(tmp_path / "nowhere")
    with pytest.raises(ResumeError, match="has no checkpoint: one is written at the end"):
        exp.resume_from(tmp_path / "empty")
    exp.close()


def test_one_of_a_newer_version_is_refused_by_its_name(tmp_path: Path) -> None:
    path = stopped_at(tmp_path, 3)
    for one in folder.found_in(path / "checkpoints"):
        file = one.path / folder.MANIFEST
        file.write_text(file.read_text().replace(folder.SCHEMA, "workbench.checkpoint/2"))
    refused(
        made(tmp_path / "other"), path, r"another version of Workbench \(workbench.checkpoint/2"
    )


def test_of_several_the_newest_that_is_whole_is_taken(tmp_path: Path) -> None:
    exp = made(tmp_path, checkpoint_every=2)
    exp.run(steps=2, wait=True)
    exp.run(steps=2, wait=True)
    exp.close()
    newest, before = folder.found_in(exp.path / "checkpoints")
    (newest.path / "__0_0.distcp").write_bytes(b"")
    again = resumed(exp.path)
    assert again.step_count == before.step == 2
    again.run(steps=2, wait=True)
    assert values(again) == values(exp)
    again.close()


def test_a_run_that_is_in_use_is_refused_and_said_by_whom(tmp_path: Path) -> None:
    exp = made(tmp_path)
    exp.run(steps=3, wait=True)
    refused(made(tmp_path / "other"), exp.path, "in use by another experiment of this process")
    exp.close()
    resumed(exp.path).close()


def test_an_experiment_that_has_trained_is_refused(tmp_path: Path) -> None:
    path = stopped_at(tmp_path, 3)
    exp = made(tmp_path / "other")
    exp.run(steps=1, wait=True)
    refused(exp, path, "has trained already")


def test_an_older_checkpoint_is_continued_in_a_run_of_its_own(tmp_path: Path) -> None:
    exp = made(tmp_path)
    exp.run(steps=2, wait=True)
    (first,) = folder.found_in(exp.path / "checkpoints")
    (first.path / PINNED).touch()
    exp.run(steps=3, wait=True)
    exp.close()
    files = contents_of(exp.path)
    refused(made(tmp_path / "other"), exp.path, "newer checkpoint, of step 5", step=2)
    fork = made(tmp_path)
    fork.resume_from(exp.path, 2, fork=True)
    assert fork.path.name == "run-2"
    fork.run(steps=3, wait=True)
    fork.close()
    assert values(fork) == values(exp)
    assert contents_of(exp.path) == files
    facts = fork._folder.read()
    assert (facts["forked_from"], facts["forked_at"]) == (str(exp.path), 2)
    again = made(tmp_path)
    again.resume_from(fork.path)
    assert values(again) == values(fork)
    again.close()


def test_the_best_is_the_one_with_the_best_validation(tmp_path: Path) -> None:
    exp = made(tmp_path)
    for _ in range(4):
        exp.run(epochs=1, wait=True)
    exp.close()
    accuracies = values(exp, "val/accuracy")
    best = 1 + accuracies.index(max(accuracies))
    fork = made(tmp_path)
    fork.resume_from(exp.path, "best", fork=True)
    assert fork.epoch == best
    fork.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_run_that_cannot_be_written_to_can_be_forked(tmp_path: Path) -> None:
    path = stopped_at(tmp_path, 3)
    path.chmod(0o500)
    try:
        fork = made(tmp_path / "other")
        fork.resume_from(path, fork=True)
        fork.run(steps=1, wait=True)
        fork.close()
    finally:
        path.chmod(0o700)


def test_a_run_whose_folder_was_deleted_goes_on_and_says_so(tmp_path: Path) -> None:
    path = stopped_at(tmp_path, 3)
    exp = resumed(path)
    shutil.rmtree(path)
    exp.run(steps=2, wait=True)
    assert exp.status == "finished"
    exp.close()


class Draws(Dataset[Any]):
    """Draws from a generator of its own, and counts."""

    def __init__(self) -> None:
        self.rng, self.count = np.random.default_rng(0), 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.count += 1
        noise = torch.from_numpy(self.rng.normal(size=FEATURES)).float()
        return noise + 0.01 * self.count, index % CLASSES


@pytest.mark.parametrize("order", ["workbench", "loader"])
def test_data_with_a_generator_of_its_own_goes_on_in_the_middle_of_an_epoch(
    tmp_path: Path, order: Any
) -> None:
    def options() -> dict[str, Any]:
        return {"train": DataLoader(Draws(), 16, shuffle=True), "order": order, "val": None}

    expected = whole(tmp_path / "whole", **options())
    stopped_at(tmp_path / "stopped", 6, **options())
    again = made(tmp_path / "stopped", **options())
    again.resume_from(tmp_path / "stopped" / "run")
    again.resume().wait()
    assert values(again) == values(expected)
    again.close()


def test_a_loss_that_keeps_something_is_told(tmp_path: Path) -> None:
    class Anneals:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return nn.functional.cross_entropy(logits, labels) * self.calls

    path = stopped_at(tmp_path, 6, loss=Anneals(), val=None)
    again = made(tmp_path, loss=Anneals(), val=None)
    again.resume_from(path)
    (note,) = [note for note in again.notes if "Anneals keeps something" in note]
    assert "calls" in note
    again.close()


class CountsCalls(Net):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        return super().forward(x)


def test_attributes_of_a_model_that_was_swapped_in_go_on(tmp_path: Path) -> None:
    exp = made(tmp_path, CountsCalls)
    exp.run(steps=2, wait=True)
    exp.model = seeded(CountsCalls)
    exp.run(steps=3, wait=True)
    calls = exp.model.calls
    assert calls >= 3
    exp.close()
    again = made(tmp_path, CountsCalls)
    again.resume_from(exp.path)
    assert again.model.calls == calls
    again.close()


class Expanded(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ones", torch.ones(()).expand(4))


def test_a_buffer_of_one_number_in_many_places_is_replaced(tmp_path: Path) -> None:
    path = stopped_at(tmp_path, 6, model=Expanded)
    again = made(tmp_path, Expanded)
    again.resume_from(path)
    assert torch.equal(again.model.ones, torch.ones(4))
    again.close()


def test_points_of_a_checkpoint_that_was_not_written_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = made(tmp_path)
    exp.run(steps=5, wait=True)
    write = folder.write

    def full(*_given: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write", full)
    exp.run(steps=5, wait=True)
    assert "No space left" in exp.message
    monkeypatch.setattr(folder, "write", write)
    exp.run(steps=5, wait=True)
    exp.close()
    again = made(tmp_path)
    again.resume_from(exp.path)
    assert again.scalars.since("train/loss", 0)[0].tolist() == list(range(1, 16))
    again.close()


def test_the_best_epoch_that_waits_to_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [0.1, 0.9, 0.2]
    exp = made(tmp_path, monitor=("mine", "max"))
    exp.on("validated", lambda event: exp.log("mine", measured[event.epoch - 1]))
    begun, go_on, write = threading.Event(), threading.Event(), folder.write

    def slow(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return write(*given)

    monkeypatch.setattr(folder, "write", slow)
    exp.on("step", lambda event: exp.pause() if event.step == 9 else None)
    exp.run(epochs=3)
    exp.wait()
    assert begun.is_set()
    go_on.set()
    exp._runner.wait_for_checkpoint()
    exp.close()
    assert exp.best is not None
    assert exp.best.step == 8
    assert load_weights(Net(), exp.path, "best").step == 8
