"""The runner as a person meets it: background runs, failures, interrupts, bad input, freeing."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from workbench.experiment import (
    DataError,
    Experiment,
    RunError,
    StepContext,
    StepProbe,
    experiments,
)
from workbench.experiment.events import Event, StatusChanged
from workbench.records import MemoryChart, Record


def batchless() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(160, 6, generator=generator), torch.arange(160) % 3


def net(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, classes))


@pytest.fixture
def exp(tmp_path: Path) -> Iterator[Experiment]:
    experiment = Experiment(net(), batchless(), batch_size=16, runs=tmp_path, device="cpu")
    yield experiment
    experiment.close()


def weights(experiment: Experiment) -> list[torch.Tensor]:
    return [p.detach().clone() for p in experiment.model.parameters()]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_runs_in_the_background_and_finishes(exp: Experiment) -> None:
    run = exp.run(epochs=5)
    assert run.wait(30).status == "finished"
    assert exp.step_count == exp.total_steps == 50
    assert exp.epoch == 5
    assert run.metrics["train/loss"]["value"][-1] < run.metrics["train/loss"]["value"][0]
    assert not any(t.name.startswith("workbench-") for t in threading.enumerate())


def test_a_second_run_is_refused_clearly(exp: Experiment) -> None:
    exp.run(epochs=10_000)
    with pytest.raises(RuntimeError, match=r"is training already \(step \d+ of 100000\); pause"):
        exp.run()
    exp.stop()
    exp.wait(30)
    assert exp.status == "stopped"


def test_pause_resume_and_stop(exp: Experiment) -> None:
    run = exp.run(epochs=10_000)
    while exp.step_count < 5:
        time.sleep(0.001)
    run.pause()
    run.wait(30)
    at = exp.step_count
    assert exp.status == "paused"
    time.sleep(0.05)
    assert exp.step_count == at, "a paused run went on"
    run.resume()
    while exp.step_count == at:
        time.sleep(0.001)
    run.stop()
    run.wait(30)
    assert exp.message == f"step {exp.step_count}: stopped"


def test_stop_while_paused(exp: Experiment) -> None:
    exp.step().wait()
    assert exp.status == "paused"
    exp.stop()
    assert exp.status == "stopped"
    with pytest.raises(RuntimeError, match="is stopped, not paused; start it with run"):
        exp.resume()


def test_settings_change_at_a_step_boundary_while_it_runs(exp: Experiment) -> None:
    exp.run(epochs=10_000)
    while exp.step_count < 3:
        time.sleep(0.001)
    exp.learning_rate = 0.25
    exp.modes = "bf16"
    deadline = time.monotonic() + 30
    while exp.modes != "bf16" or exp.timings.max_abs_delta_logit("bf16") is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    exp.stop()
    exp.wait(30)
    assert exp.optimizer.param_groups[0]["lr"] == 0.25
    assert 0 < (exp.timings.max_abs_delta_logit("bf16") or 0) < 0.1
    texts = ", ".join(marker.text for marker in exp.markers)
    assert "lr 2.5e-1" in texts
    assert "bf16" in texts


def test_the_switch_is_told_with_its_first_step(exp: Experiment) -> None:
    said: list[str] = []
    exp.subscribe(lambda e: said.append(e.message) if isinstance(e, StatusChanged) else None)
    exp.run(steps=3, wait=True)
    exp.modes = "bf16"
    exp.run(steps=3, wait=True)
    told = [text for text in said if "switched" in text]
    assert len(told) == 1
    assert told[0].startswith("step 4: switched to bf16; first step took ")


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.norm = nn.BatchNorm1d(6)
        self.broken = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        if self.broken:
            return self.inner(h.mean(1, keepdim=True))
        return self.inner(h)


def test_an_exception_shows_the_users_line_and_loses_nothing(tmp_path: Path) -> None:
    model = Fails()
    exp = Experiment(model, batchless(), batch_size=16, runs=tmp_path, device="cpu")
    exp.run(steps=4, wait=True)
    before = weights(exp)
    running = model.norm.running_mean.clone()
    model.broken = True
    run = exp.run(epochs=2)
    with pytest.raises(RunError, match="mat1 and mat2 shapes cannot be multiplied"):
        run.wait(30)
    failure = exp.failure
    assert failure is not None
    assert exp.status == "exception"
    assert exp.message == "step 5: RuntimeError; run stopped, nothing lost"
    assert failure.scope == "Fails.forward"
    assert failure.subtitle.startswith("Step 5 was not applied.")
    assert [line.text.strip() for line in failure.code if line.current] == [
        "return self.inner(h.mean(1, keepdim=True))"
    ]
    assert {(fact.label, fact.value) for fact in failure.values} >= {
        ("h", "[16, 6] fp32"),
        ("inner.weight", "[3, 6] fp32"),
    }
    assert failure.num_user_frames == 1 < failure.num_frames
    assert "> " in failure.traceback
    assert "workbench/experiment" not in failure.traceback
    assert same(before, weights(exp))
    assert torch.equal(running, model.norm.running_mean), "half a forward left its mark"
    model.broken = False
    exp.resume_from_failure().wait(30)
    assert exp.status == "finished"
    assert exp.step_count == 20
    exp.close()


def test_waiting_raises_the_users_own_exception(tmp_path: Path) -> None:
    model = Fails()
    model.broken = True
    exp = Experiment(model, batchless(), runs=tmp_path, device="cpu")
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        exp.run(wait=True)
    assert any(
        entry.name == "forward" and "test_runner" in str(entry.path) for entry in caught.traceback
    )
    exp.close()


class Rows(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.bad = True

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.bad and index == 40:
            raise OSError("sample 40 cannot be read")
        return torch.full((6,), index / 64), index % 3


def test_a_loader_that_raises_half_way(tmp_path: Path) -> None:
    rows = Rows()
    loader = DataLoader(rows, batch_size=8)
    exp = Experiment(net(), loader, runs=tmp_path, device="cpu")
    with pytest.raises(RunError, match="sample 40 cannot be read"):
        exp.run(epochs=1).wait(30)
    failure = exp.failure
    assert failure is not None
    assert failure.scope == "Rows.__getitem__"
    assert "while the data was fetched for batch 6 of epoch 1" in failure.subtitle
    assert exp.step_count == 5
    rows.bad = False
    exp.resume().wait(30)
    assert exp.step_count == 8, "the resume repeated or lost a batch"
    exp.close()


def test_worker_processes_are_gone_after_the_run(tmp_path: Path) -> None:
    rows = Rows()
    rows.bad = False
    loader = DataLoader(
        rows, batch_size=8, shuffle=True, num_workers=1, multiprocessing_context="spawn"
    )
    exp = Experiment(net(), loader, runs=tmp_path, device="cpu")
    exp.run(epochs=1, wait=True)
    assert exp.step_count == 8
    exp.close()


class Explodes(nn.Module):
    """Its second layer gives NaN when told to; batch norm sees the batch before that."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
        self.at = -1
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        h = self.body[0](self.norm(x))
        if self.at > 0 and self.calls >= self.at:
            h = h * float("inf")
        return self.body[1](h)


def test_nan_pauses_with_evidence_and_the_last_good_weights(tmp_path: Path) -> None:
    model = Explodes()
    exp = Experiment(model, batchless(), batch_size=16, runs=tmp_path, device="cpu")
    exp.run(steps=6, wait=True)
    exp.learning_rate = 0.5
    model.at = 8  # two more steps: the first is good
    good: list[list[torch.Tensor]] = []
    exp.subscribe(lambda _event: good.append(weights(exp)), every_step=True)
    with pytest.raises(ArithmeticError, match="loss is NaN") as raised:
        exp.run(steps=5, wait=True)
    assert raised.value.__notes__ == [
        "Loss became NaN at step 8. "
        "Paused before the optimizer step, so the weights are those of step 7."
    ]
    failure = exp.failure
    assert failure is not None
    assert exp.status == "nan"
    assert exp.step_count == 7
    assert failure.title == "Loss became NaN at step 8"
    assert (
        failure.subtitle == "Paused before the optimizer step, so the weights are those of step 7."
    )
    assert exp.message == "step 8: loss is NaN; paused, step not applied"
    facts = {fact.label: fact.value for fact in failure.values}
    assert facts["First non-finite"] == "body.1, forward"
    assert facts["Learning rate"] == "5.0e-1 since step 6"
    assert any(label.startswith("Gradient norm") for label in facts)
    assert all(torch.isfinite(p).all() for p in model.state_dict().values())
    model.at = -1
    exp.resume_from_failure(learning_rate=0.01).wait(30)
    assert exp.status == "finished"
    assert exp.step_count == 11
    exp.close()


class BadGradient(nn.Module):
    """A finite loss whose gradient is not: sqrt at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.scale.sqrt()


def test_gradients_that_are_not_finite_are_never_applied(tmp_path: Path) -> None:
    exp = Experiment(BadGradient(), batchless(), runs=tmp_path, device="cpu")
    before = weights(exp)
    with pytest.raises(ArithmeticError, match="gradients are NaN"):
        exp.run(wait=True)
    assert exp.failure is not None
    assert exp.failure.title == "Gradients became NaN at step 1"
    assert same(before, weights(exp))
    exp.close()


def test_an_interrupt_pauses_the_run_cleanly(exp: Experiment) -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        exp.run(epochs=1_000_000, wait=True)
    assert exp.status == "paused"
    at = exp.step_count
    exp.step(2).wait(30)
    assert exp.step_count == at + 2


def test_an_experiment_that_is_deleted_frees_its_model(tmp_path: Path) -> None:
    exp = Experiment(net(), batchless(), runs=tmp_path, device="cpu")
    run = exp.run(epochs=1)
    run.wait(30)
    exp.step(2).wait(30)  # paused with an iterator at hand
    model, optimizer = weakref.ref(exp.model), weakref.ref(exp.optimizer)
    del exp, run
    gc.collect()
    assert model() is None
    assert optimizer() is None
    assert experiments() == []


def test_an_experiment_deleted_while_it_trains_stops(tmp_path: Path) -> None:
    exp = Experiment(net(), batchless(), runs=tmp_path, device="cpu")
    exp.run(epochs=1_000_000)
    model = weakref.ref(exp.model)
    del exp
    deadline = time.monotonic() + 30
    while model() is not None:
        assert time.monotonic() < deadline, "it trains on"
        gc.collect()
        time.sleep(0.01)


def test_a_failure_holds_no_tensors(tmp_path: Path) -> None:
    exp = Experiment(Fails(), batchless(), runs=tmp_path, device="cpu")
    exp.model.broken = True
    with pytest.raises(RunError):
        exp.run().wait(30)
    gc.collect()
    inner = weakref.ref(exp.model)
    exp.close()
    del exp
    gc.collect()
    assert inner() is None


def test_two_experiments_of_one_name_at_once(tmp_path: Path) -> None:
    first, second = (
        Experiment(net(), batchless(), name="same", runs=tmp_path, device="cpu") for _ in range(2)
    )
    assert (first.name, second.name) == ("same", "same-2")
    runs = [first.run(epochs=3), second.run(epochs=3)]
    for run in runs:
        run.wait(30)
    for experiment in (first, second):
        facts = json.loads((experiment.path / "run.json").read_text())
        assert facts["schema"] == "workbench.run/1"
        assert (facts["name"], facts["status"]) == (experiment.name, "finished")
        assert facts["step"] == experiment.step_count
        experiment.close()


def test_a_folder_that_cannot_be_written_to_does_not_stop_the_training(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    exp = Experiment(net(), batchless(), runs=blocked, device="cpu")
    assert "nothing is written to disk" in exp.message
    exp.run(wait=True)
    assert exp.status == "finished"
    exp.close()


def test_the_checkpoint_holds_the_last_step(exp: Experiment) -> None:
    exp.run(steps=7, wait=True)
    state = torch.load(exp.path / "checkpoints" / "last.pt", weights_only=True)
    assert state["step"] == 7
    assert torch.equal(state["model"]["0.weight"], exp.model.state_dict()["0.weight"])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ("not a model", batchless()), TypeError, "model is a str; it must be"),
        (lambda: (nn.Linear, batchless()), TypeError, r"class Linear; give an instance"),
        (lambda: (nn.ReLU(), batchless()), ValueError, "ReLU has no parameters"),
        (lambda: (net().requires_grad_(False), batchless()), ValueError, "no trainable parameters"),
        (lambda: (nn.LazyLinear(3), batchless()), ValueError, "lazy parameters"),
        (lambda: (net(), None), ValueError, "train is None"),
        (lambda: (net(), 5), DataError, "train is a int; valid:"),
        (lambda: (net(), (torch.zeros(0, 6), torch.zeros(0))), DataError, "no samples"),
        (lambda: (net(), (torch.zeros(4, 6), torch.zeros(3))), DataError, "4 inputs and 3 labels"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(
    make: Any, error: type[Exception], words: str, tmp_path: Path
) -> None:
    model, train = make()
    with pytest.raises(error, match=words):
        Experiment(model, train, runs=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "adamm"}, r"unknown optimizer 'adamm'; valid: adamw, adam, sgd"),
        ({"device": "cuda:77"}, r"unknown device 'cuda:77'; this machine has: cpu"),
        ({"device": "warp"}, r"unknown device 'warp'"),
        ({"modes": "turbo"}, r"unknown mode 'turbo'; valid modes are: "),
        ({"loss": "hinge"}, r"unknown loss 'hinge'; valid: cross_entropy, bce"),
        ({"batch_size": 0}, "batch_size is 0; it must be a whole number from 1"),
        ({"epochs": -1}, "epochs is -1"),
        ({"clip_grad_norm": float("nan")}, "clip_grad_norm is nan"),
    ],
)
def test_bad_options_list_what_is_valid(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    settings = {"device": "cpu", **options}
    with pytest.raises(ValueError, match=words):
        Experiment(net(), batchless(), runs=tmp_path, **settings)
    assert list(tmp_path.iterdir()) == [], "a refused experiment left a folder"


@pytest.mark.parametrize(
    ("model", "targets", "words"),
    [
        (lambda: net(2), lambda: torch.arange(160) % 3, "labels run from 0 to 2; the model has 2"),
        (net, lambda: torch.rand(160), r"cross entropy needs integer classes \[batch\]: use"),
        (net, lambda: torch.zeros(160, 2, dtype=torch.long), r"must be \[64\] for these logits"),
        (
            lambda: nn.Sequential(net(), nn.Flatten(0), nn.Unflatten(0, (-1, 2))),
            lambda: torch.arange(160) % 2,
            r"returned \[96, 2\] float32 for labels \[64\] int64",
        ),
    ],
)
def test_bad_labels_and_logits_are_said_in_one_sentence(
    model: Any, targets: Any, words: str, tmp_path: Path
) -> None:
    exp = Experiment(model(), (batchless()[0], targets()), runs=tmp_path, device="cpu")
    with pytest.raises(DataError, match=words):
        exp.run(wait=True)
    exp.close()


def test_a_bad_label_in_a_later_batch_is_explained_too(tmp_path: Path) -> None:
    inputs, targets = batchless()
    targets[-1] = 99
    exp = Experiment(net(), (inputs, targets), batch_size=16, shuffle=False, runs=tmp_path)
    with pytest.raises(DataError, match=r"labels run from 0 to 99; the model has 3 classes"):
        exp.run(wait=True)
    assert exp.step_count == 9
    exp.close()


def test_events_come_in_order(exp: Experiment) -> None:
    seen: list[Event] = []
    exp.subscribe(seen.append)
    exp.run(epochs=1, wait=True)
    names = [type(event).__name__ for event in seen]
    assert names == ["StatusChanged", "RunStarted", "EpochDone", "StatusChanged"]


def test_a_faulty_observer_does_not_end_the_run(exp: Experiment) -> None:
    def faulty(event: Event) -> None:
        raise ValueError("observer")

    exp.subscribe(faulty, every_step=True)
    exp.run(steps=3, wait=True)
    assert exp.status == "finished"


def test_steps_asked_for_in_quick_succession_are_all_done(exp: Experiment) -> None:
    for _ in range(200):
        exp.step()
    exp.wait(60)
    assert exp.step_count == 200
    assert exp.status in ("paused", "finished")


def test_a_resume_right_after_a_pause_wins(exp: Experiment) -> None:
    exp.run(epochs=1_000_000)
    for _ in range(300):
        exp.pause()
        exp.resume()
    at = exp.step_count
    deadline = time.monotonic() + 30
    while exp.step_count < at + 20:
        assert time.monotonic() < deadline, f"it is {exp.status}"
        time.sleep(0.001)
    exp.stop()


def test_a_run_right_after_a_step_or_a_pause_waits_for_it(exp: Experiment) -> None:
    for _ in range(20):
        exp.step()
        exp.run(epochs=1_000_000)
        exp.pause()
        exp.run(steps=3, wait=True)
    assert exp.status == "finished"


def test_a_capture_waited_for_right_after_another_never_hangs(exp: Experiment) -> None:
    for count in range(1, 101):
        record = exp.capture(Counter()).wait(30)
        assert isinstance(record, MemoryChart)
        assert record.step == count == exp.step_count or exp.status == "training"
    exp.wait(30)
    assert exp.step_count == 100


class Counter(StepProbe):
    kind = "memory"

    def before_step(self, context: StepContext) -> None:
        self.step = context.step

    def finish(self) -> Record:
        return MemoryChart(
            step=self.step,
            device="cpu",
            basis="",
            num_points=0,
            bytes=[],  # type: ignore[arg-type]  # a record makes the array
            phases=(),
            peak_point=0,
            peak_bytes=0,
            peak_label="",
            at_peak=(),
            reserved_bytes=-1,
        )


class FaultyProbe(Counter):
    def after_forward(self, loss: torch.Tensor) -> None:
        raise ValueError("probe is broken")


def test_a_faulty_probe_is_told_to_its_owner_and_no_step_is_lost(exp: Experiment) -> None:
    handle = exp.capture(FaultyProbe())
    exp.run(steps=3, wait=True)
    assert exp.step_count == 3
    with pytest.raises(RuntimeError, match="the memory capture failed: ValueError: probe is"):
        handle.wait(1)
    assert exp.captures.infos() == ()


class Unfinished(Counter):
    def finish(self) -> Record:
        raise RuntimeError("there is nothing to record of this step")


def test_a_capture_of_a_step_that_fails_adds_nothing_to_the_users_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exp = Experiment(net(), (batchless()[0], batchless()[1] + 5), runs=tmp_path, device="cpu")
    handle = exp.capture(Unfinished())
    with pytest.raises(DataError, match="labels run from 5"):
        exp.run(wait=True)
    with pytest.raises(RuntimeError, match="there is nothing to record"):
        handle.wait(1)
    assert caplog.records == []
    exp.close()


def test_epochs_changed_under_way_move_the_end_of_the_run(exp: Experiment) -> None:
    exp.run(epochs=1000)
    exp.pause()
    exp.wait(30)
    exp.epochs = exp.epoch + 1
    assert exp.total_steps == (exp.epoch + 1) * exp.steps_per_epoch
    exp.resume().wait(30)
    assert exp.status == "finished"
    assert exp.step_count == exp.total_steps
    exp.run(epochs=2).wait(30)
    assert exp.step_count == exp.total_steps
