"""What a run does when user code, data or numbers fail: nothing is lost, and it is said where."""

from __future__ import annotations

import gc
import json
import random
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.integration.support import Rows, batchless, net, same, weights
from workbench.experiment import (
    Experiment,
    RunError,
)
from workbench.experiment.data.sampler import EpochSampler
from workbench.experiment.report.events import Closed, Event


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
        run.wait(120)
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
    exp.resume_from_failure().wait(120)
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
        entry.name == "forward" and "test_failures" in str(entry.path) for entry in caught.traceback
    )
    exp.close()


def test_a_loader_that_raises_half_way(tmp_path: Path) -> None:
    rows = Rows()
    loader = DataLoader(rows, batch_size=8)
    exp = Experiment(net(), loader, runs=tmp_path, device="cpu")
    with pytest.raises(RunError, match="sample 40 cannot be read"):
        exp.run(epochs=1).wait(120)
    failure = exp.failure
    assert failure is not None
    assert failure.scope == "Rows.__getitem__"
    assert "while the data was fetched for batch 6 of epoch 1" in failure.subtitle
    assert exp.step_count == 5
    rows.bad = False
    exp.resume().wait(120)
    assert exp.step_count == 8, "the resume repeated or lost a batch"
    exp.close()


class Augmented(Dataset[tuple[torch.Tensor, int]]):
    """Draws for every sample, from three generators, and cannot read one of them when told to."""

    def __init__(self, bad: int | None) -> None:
        self.bad = bad
        self.inputs = torch.arange(64 * 6, dtype=torch.float32).view(64, 6) / 64
        self.fetched = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        noise = torch.randn(6) * random.random() + float(np.random.rand())
        self.fetched += 1
        if self.fetched == self.bad:
            raise OSError("the disk is away")
        return self.inputs[at] + noise, at % 3


@pytest.mark.parametrize("given", [None, 1, 4 * 8 + 5])
def test_a_batch_that_was_fetched_half_is_drawn_anew(tmp_path: Path, given: int | None) -> None:
    """The judge is a plain loop over data that never fails."""

    def dropping() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 3))

    plain = dropping()
    order = EpochSampler(64, seed=3)
    loader = DataLoader(Augmented(None), 8, sampler=order, generator=torch.Generator())
    _seed_all(3)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    expected: list[float] = []
    for epoch in range(2):
        order.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(plain(x), y)
            loss.backward()
            optimizer.step()
            expected.append(loss.item())

    exp = Experiment(
        dropping(),
        Augmented(given),
        batch_size=8,
        seed=3,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
        runs=tmp_path,
        device="cpu",
    )
    _seed_all(3)
    run = exp.run(epochs=2)
    if given is not None:
        with pytest.raises(RunError, match="the disk is away"):
            run.wait(120)
        assert exp.message.endswith("run stopped, nothing lost")
        run = exp.resume()
    run.wait(120)
    assert exp.scalars.history()["train/loss"]["value"].tolist() == expected
    exp.close()


def _seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def test_a_loader_with_an_order_of_its_own_that_raises_begins_anew_and_it_is_said(
    tmp_path: Path,
) -> None:
    rows = Rows()
    loader = DataLoader(rows, batch_size=8)
    exp = Experiment(net(), loader, order="loader", runs=tmp_path, device="cpu")
    with pytest.raises(RunError, match="sample 40 cannot be read"):
        exp.run(epochs=1).wait(120)
    assert exp.message == "step 6: OSError; run stopped, the loader begins anew"
    assert exp.failure is not None
    assert "going on begins a new pass over it" in exp.failure.subtitle
    rows.bad = False
    exp.resume().wait(120)
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
        "Paused before the optimizer step, so the weights are those of step 7.",
        "exp.failure says what was found about it. exp.resume_from_failure() leaves this batch out "
        "and goes on; with learning_rate= or modes= it changes that first.",
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
    exp.resume_from_failure(learning_rate=0.01).wait(120)
    assert exp.status == "finished"
    assert exp.step_count == 11
    exp.close()


class Miscompiled(nn.Module):
    """Stands for a compiler's fault: its gradient is NaN only where it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.always = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.linear(x)
        if torch.compiler.is_compiling() or self.always:
            out = out + (out - out.detach()).sqrt().clamp(max=0)  # 0 / 0 in backward
        return out


@pytest.mark.parametrize(
    ("always", "said"),
    [
        (False, "the same step is finite"),
        (True, "not finite either"),
    ],
)
def test_a_compiled_step_that_is_not_finite_is_computed_without_compile(
    tmp_path: Path, always: bool, said: str
) -> None:
    model = Miscompiled()
    exp = Experiment(
        model, batchless(), batch_size=16, modes="compile:whole", runs=tmp_path, device="cpu"
    )
    model.always = always
    with pytest.raises(ArithmeticError, match="gradients are NaN"):
        exp.run(steps=5, wait=True)
    assert exp.failure is not None
    facts = {fact.label: fact.value for fact in exp.failure.values}
    assert facts["First non-finite"] == "backward; every output is finite"
    assert facts["Without compile"] == said
    model.always = False
    exp.modes = ""
    exp.resume_from_failure().wait(120)
    assert exp.status == "finished"
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
    with pytest.raises(ArithmeticError, match="gradients are infinite"):
        exp.run(wait=True)
    assert exp.failure is not None
    assert exp.failure.title == "Gradients became infinite at step 1"
    assert same(before, weights(exp))
    exp.close()


def test_a_failure_holds_no_tensors(tmp_path: Path) -> None:
    exp = Experiment(Fails(), batchless(), runs=tmp_path, device="cpu")
    exp.model.broken = True
    with pytest.raises(RunError):
        exp.run().wait(120)
    gc.collect()
    inner = weakref.ref(exp.model)
    exp.close()
    del exp
    gc.collect()
    assert inner() is None


def test_a_waiting_call_raises_without_this_packages_frames(tmp_path: Path) -> None:
    model = Fails()
    model.broken = True
    exp = Experiment(model, batchless(), batch_size=16, runs=tmp_path, device="cpu")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        exp.run(wait=True)
    files = [Path(str(frame.path)).parts for frame in caught.traceback]
    below = files[next(i for i, parts in enumerate(files) if "torch" in parts) :]
    assert not any("workbench" in parts for parts in below), "frames of the step itself"
    assert caught.traceback[-1].name == "forward" or "torch" in files[-1]


def test_closing_keeps_how_a_run_ended_and_ends_the_experiment(tmp_path: Path) -> None:
    model = Fails()
    model.broken = True
    exp = Experiment(model, batchless(), batch_size=16, runs=tmp_path, device="cpu")
    told: list[Event] = []
    exp.subscribe(told.append)
    exp.run()
    with pytest.raises(RunError):
        exp.wait(120)
    exp.close()
    exp.close()
    assert exp.status == "exception"
    assert json.loads((exp.path / "run.json").read_text())["status"] == "exception"
    assert [type(event) for event in told].count(Closed) == 1
    for again in (exp.run, exp.step, exp.resume):
        with pytest.raises(RuntimeError, match="is closed; make a new Experiment"):
            again()


def test_closing_a_paused_run_stops_it(tmp_path: Path) -> None:
    exp = Experiment(Fails(), batchless(), batch_size=16, runs=tmp_path, device="cpu")
    exp.step(2).wait(120)
    exp.close()
    assert exp.status == "stopped"
    assert json.loads((exp.path / "run.json").read_text())["status"] == "stopped"
