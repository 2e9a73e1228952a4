"""Values of the user's own: read back from the metrics and from TensorBoard's files."""

from __future__ import annotations

import _thread
import gc
import io
import threading
import weakref
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from tests.unit.experiment.experiments import experiment
from tests.unit.experiment.plain_loop import CLASSES, FEATURES, data, linear, seeded
from workbench.experiment.experiment import Experiment
from workbench.experiment.services import only

mpl.use("agg")


def points(exp: Experiment, name: str) -> list[tuple[int, float]]:
    exp.scalars.flush()
    steps, values = exp.scalars.since(name, 0)
    return list(zip(steps.tolist(), values.tolist(), strict=True))


def written(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0, "scalars": 0})
    found.Reload()
    return found


class Logs(nn.Module):
    """Logs in its forward, as many do with what they want to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, CLASSES)
        self.log: Any = None
        self.calls = 0
        self.fails_at = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out = self.body(x)
        if self.training and self.log is not None:
            self.log("mean", out.mean())
            if self.calls == self.fails_at:
                raise RuntimeError("once")
        return out


def test_a_curve_is_at_the_step_that_was_done(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))
    exp.log("before", 1)
    exp.on("step", lambda event: exp.log("twice", 2 * event.step))
    exp.run(epochs=1, wait=True)
    exp.log("after", torch.tensor([3.0]))
    assert points(exp, "before") == [(0, 1.0)]
    assert points(exp, "twice") == [(step, 2.0 * step) for step in range(1, 5)]
    assert points(exp, "after") == [(4, 3.0)]
    exp.close()


def test_in_a_forward_it_belongs_to_the_step_that_is_computed(tmp_path: Path) -> None:
    model = seeded(Logs)
    exp = experiment(tmp_path, model, val=data(32, seed=5))
    model.log = exp.log
    exp.run(epochs=1, wait=True)
    assert [step for step, _ in points(exp, "mean")] == [1, 2, 3, 4]
    exp.close()


def test_a_step_that_fails_and_is_repeated_logs_once(tmp_path: Path) -> None:
    model = seeded(Logs)
    exp = experiment(tmp_path, model)
    model.log, model.fails_at = exp.log, 3
    with pytest.raises(RuntimeError, match="once"):
        exp.run(epochs=1, wait=True)
    assert [step for step, _ in points(exp, "mean")] == [1, 2]
    model.fails_at = -1
    exp.resume_from_failure().wait()
    assert [step for step, _ in points(exp, "mean")] == [1, 2, 3, 4]
    exp.close()


def test_forwards_for_inspection_log_nothing(tmp_path: Path) -> None:
    """The first step of other modes computes the batch twice, and a capture computes one again."""
    model = seeded(Logs)
    exp = experiment(tmp_path, model)
    model.log = exp.log
    exp.run(steps=2, wait=True)
    exp.modes = "bf16"
    exp.run(steps=2, wait=True)
    with only(None):
        import workbench as wb

        wb.graph(exp)
    assert [step for step, _ in points(exp, "mean")] == [1, 2, 3, 4]
    exp.close()


def test_numbers_of_every_kind(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))
    exp.log("one", True)
    exp.log("one", np.float32(0.5))
    exp.log("one", np.array([[2]]))
    exp.log("one", torch.tensor(3, dtype=torch.int8))
    exp.log("one", torch.tensor(0.25, dtype=torch.bfloat16, requires_grad=True))
    exp.log("many", {"a": 1, "b": {"c": 2.0}})
    assert [value for _, value in points(exp, "one")] == [1.0, 0.5, 2.0, 3.0, 0.25]
    assert points(exp, "many/a") == [(0, 1.0)]
    assert points(exp, "many/b/c") == [(0, 2.0)]
    exp.close()


def test_a_tensor_may_be_written_afterwards(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))
    running = torch.zeros(())
    for value in (1.0, 2.0, 3.0):
        running.fill_(value)
        exp.log("running", running)
    assert [value for _, value in points(exp, "running")] == [1.0, 2.0, 3.0]
    exp.close()


def test_all_of_it_is_in_tensorboard(tmp_path: Path) -> None:
    grey = np.linspace(0, 1, 12).reshape(3, 4)
    colour = np.arange(3 * 4 * 3, dtype=np.uint8).reshape(3, 4, 3)
    first = torch.rand(3, 5, 6)
    figure = Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([1, 2])
    mask = np.eye(4, dtype=bool)
    with only(None):
        exp = experiment(tmp_path, seeded(linear))
    exp.run(epochs=1, wait=True)
    exp.log("curve", 0.5)
    exp.log("words", "**bold**")
    pictures = {
        "grey": grey, "colour": colour, "first": first, "figure": figure, "mask": mask,
        "pil": Image.fromarray(colour),
    }  # fmt: skip
    for name, picture in pictures.items():
        exp.log(name, picture)
    colour[:] = 0  # it has been copied
    exp.close()
    found = written(exp.path)
    assert [(one.step, one.value) for one in found.Scalars("curve")] == [(4, 0.5)]
    (words,) = found.Tensors("words/text_summary")
    assert words.tensor_proto.string_val[0] == b"**bold**"
    back = {}
    for name in pictures:
        (one,) = found.Images(name)
        assert one.step == 4
        back[name] = np.asarray(Image.open(io.BytesIO(one.encoded_image_string)).convert("RGB"))
    assert np.array_equal(back["grey"][:, :, 0], np.round(grey * 255))
    expected = np.arange(3 * 4 * 3, dtype=np.uint8).reshape(3, 4, 3)
    assert np.array_equal(back["colour"], expected)
    assert np.array_equal(back["pil"], expected)
    assert np.array_equal(back["first"], np.round(first.permute(1, 2, 0).numpy() * 255))
    assert back["figure"].shape == (50, 100, 3)
    assert np.array_equal(back["mask"][:, :, 0], mask * 255)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("train/loss", 1.0, "logged by the run itself"),
        ("memory/mine", 1.0, "logged by the run itself"),
        ("", 1.0, "give a name"),
        (3, 1.0, "give a name"),
        ("x", None, "valid: a number"),
        ("x", [1, 2], "valid: a number"),
        ("x", 1j, "valid: a number"),
        ("x", torch.tensor(1j), "complex"),
        ("x", torch.randn(3, 4, 4), "floats must be in 0..1"),
        ("x", torch.full((4, 4), float("nan")), "NaN"),
        ("x", np.full((4, 4), 300), "0..255"),
        ("x", torch.rand(4), "no image"),
        ("x", torch.rand(2, 8, 8, 3), "no image"),
        ("x", np.array(["a", "b"]), "valid: a number"),
    ],
)
def test_what_cannot_be_logged_is_refused_with_what_can(
    tmp_path: Path, name: Any, value: Any, says: str
) -> None:
    exp = experiment(tmp_path, seeded(linear))
    with pytest.raises((TypeError, ValueError), match=says):
        exp.log(name, value)
    assert not exp.scalars.names()
    exp.close()
    with pytest.raises(RuntimeError, match="closed"):
        exp.log("late", 1)


def test_functions_are_called_with_what_happened(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), val=data(32, seed=5))
    seen: list[tuple[str, int]] = []
    steps: list[float] = []
    ends = [
        exp.on("step", lambda event: steps.append(event.loss.item())),
        exp.on("validated", lambda event: seen.append((f"{event.loss:.12g}", event.epoch))),
        exp.on("epoch", lambda event: seen.append(("epoch", event.epoch))),
    ]
    exp.run(epochs=2, wait=True)
    of_validation = [f"{value:.12g}" for _, value in points(exp, "val/loss")]
    assert seen == [(of_validation[0], 1), ("epoch", 1), (of_validation[1], 2), ("epoch", 2)]
    assert steps == [value for _, value in points(exp, "train/loss")]
    for end in ends:
        end()
    exp.run(epochs=1, wait=True)
    assert (len(seen), len(steps)) == (4, 8)
    exp.close()


def test_a_function_may_set_what_a_cell_may(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))

    def lower(event: Any) -> None:
        exp.learning_rate = 0.1 / (1 + event.epoch)
        if event.epoch == 3:
            exp.stop()

    exp.on("epoch", lower)
    exp.run(epochs=9, wait=True)
    assert (exp.status, exp.epoch, exp.learning_rate) == ("stopped", 3, 0.1 / 4)
    exp.close()


def test_one_that_raises_is_reported_and_ends_no_run(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))

    def broken(_event: Any) -> None:
        raise ValueError("no such file")

    exp.on("step", broken)
    exp.run(epochs=1, wait=True)
    assert (exp.status, exp.step_count) == ("finished", 4)
    (note,) = [note for note in exp.notes if "broken" in note]
    assert note == (
        "broken, which exp.on('step', ...) calls, raised ValueError after step 1: no such file"
    )
    exp.close()


def test_what_is_no_event_or_no_function_is_refused(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))
    with pytest.raises(ValueError, match="valid: 'step', 'epoch', 'validated'"):
        exp.on("batch", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give a function"):
        exp.on("step", 3)  # type: ignore[arg-type]
    exp.close()


def test_a_function_may_predict_and_evaluate_and_changes_no_number(tmp_path: Path) -> None:
    held_out = data(32, seed=5)

    def trained(*, looked_at: bool) -> tuple[Experiment, list[float], list[float]]:
        exp = experiment(
            tmp_path, seeded(lambda: nn.Sequential(nn.Dropout(0.5), linear())), val=held_out
        )
        predicted, evaluated = list[float](), list[float]()

        def look(_event: Any) -> None:
            logits = exp.predict(held_out[0])
            predicted.append((logits.argmax(1) == held_out[1]).double().mean().item())
            evaluated.append(exp.evaluate(held_out).loss)

        if looked_at:
            exp.on("validated", look)
            exp.on("step", lambda _event: exp.predict(held_out[0]))
        exp.run(epochs=3, wait=True)
        exp.close()
        return exp, predicted, evaluated

    (plain, *_), (exp, predicted, evaluated) = trained(looked_at=False), trained(looked_at=True)
    for name in ("train/loss", "val/loss", "val/accuracy"):
        assert points(exp, name) == points(plain, name)
    assert predicted == [value for _, value in points(exp, "val/accuracy")]
    assert evaluated == [value for _, value in points(exp, "val/loss")]
    assert not [note for note in exp.notes if "raised" in note]


def test_a_prediction_logs_nothing(tmp_path: Path) -> None:
    class Always(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(FEATURES, CLASSES)
            self.log: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.log is not None:
                self.log("always", 1.0)
            return self.body(x)

    model = seeded(Always)
    exp = experiment(tmp_path, model)
    model.log = exp.log
    exp.run(epochs=1, wait=True)
    exp.predict(data()[0])
    exp.evaluate(data())
    exp.run(steps=1, wait=True)
    assert [step for step, _ in points(exp, "always")] == [1, 2, 3, 4, 5]
    exp.close()


def test_a_hook_of_another_thread_belongs_to_the_step(tmp_path: Path) -> None:
    """Autograd calls hooks of tensors on a GPU on a thread of its own."""
    model = seeded(linear)
    exp = experiment(tmp_path, model)
    fails = [True]

    def hook(gradient: torch.Tensor) -> None:
        over = threading.Event()

        def foreign() -> None:
            exp.log("norm", gradient.norm())
            over.set()

        _thread.start_new_thread(foreign, ())
        assert over.wait(60)
        if exp.step_count == 2 and fails:
            fails.clear()
            raise RuntimeError("once")

    model.weight.register_hook(hook)
    with pytest.raises(RuntimeError, match="once"):
        exp.run(epochs=1, wait=True)
    exp.resume_from_failure().wait()
    assert [step for step, _ in points(exp, "norm")] == [1, 2, 3, 4]
    exp.close()


def test_a_deleted_experiment_is_freed_at_once(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear))
    exp.on("step", lambda event: event.step)
    exp.log("x", 1)
    exp.run(epochs=1, wait=True)
    exp._runner.wait_for_checkpoint()
    model = weakref.ref(exp.model)
    gc.collect()
    gc.disable()
    try:
        del exp
        assert model() is None, "without the garbage collector"
    finally:
        gc.enable()
