"""Optimizers and schedulers as given, as callables and by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.saved_training import last_checkpoint, part
from tests.unit.experiment.plain_loop import (
    CLASSES,
    assert_equal,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
    weights,
)
from workbench.experiment import Experiment
from workbench.experiment.recipe.optimizers import describe_optimizer, make_optimizer


def test_names_callables_and_instances() -> None:
    model = nn.Linear(2, 2)
    assert type(make_optimizer(None, model)) is torch.optim.AdamW
    assert type(make_optimizer("SGD", model)) is torch.optim.SGD
    made = make_optimizer(lambda p: torch.optim.Adam(p, lr=0.5, foreach=False), model)
    assert made.defaults["foreach"] is False
    assert make_optimizer(made, model) is made
    assert describe_optimizer(made) == "Adam, learning rate 5.0e-1"


def test_a_learning_rate_goes_with_a_name_only() -> None:
    model = nn.Linear(2, 2)
    assert make_optimizer(None, model, lr=3e-3).param_groups[0]["lr"] == 3e-3
    sgd = make_optimizer("sgd", model, lr=1).param_groups[0]
    assert (sgd["lr"], sgd["momentum"]) == (1.0, 0.9)
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    for given in (own, lambda p: torch.optim.SGD(p, lr=0.1)):
        with pytest.raises(ValueError, match=r"lr=0.5 is for an optimizer given by name"):
            make_optimizer(given, model, lr=0.5)
    with pytest.raises(ValueError, match="lr is -1; it must be a positive finite number"):
        make_optimizer("adam", model, lr=-1)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    made = make_optimizer("adam", model)
    assert len(made.param_groups[0]["params"]) == 2


def test_what_is_no_optimizer_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="optimizer is a int; valid: adamw"):
        make_optimizer(3, model)
    with pytest.raises(TypeError, match="callable returned a NoneType"):
        make_optimizer(lambda p: None, model)
    with pytest.raises(ValueError, match="holds none of the model's parameters"):
        make_optimizer(torch.optim.SGD(nn.Linear(2, 2).parameters()), model)


# -- optimizers that no experiment can use ----------------------------------------------------


class NeedsClosure(torch.optim.SGD):
    """As SAM is written: step() evaluates the closure anew."""

    def step(self, closure: Callable[[], torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure()
        super().step()
        return loss


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, NeedsClosure])
@pytest.mark.parametrize("called", [False, True])
def test_an_optimizer_that_needs_a_closure_is_refused_before_the_run(
    tmp_path: Path, kind: Callable[..., torch.optim.Optimizer], called: bool
) -> None:
    model = seeded(linear)
    given = (lambda p: kind(p, lr=0.1)) if called else kind(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="from a closure; a step of an experiment") as refused:
        Experiment(model, data(), optimizer=given, runs=tmp_path, device="cpu")
    assert str(refused.value).startswith(kind.__name__)  # type: ignore[attr-defined]
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [], "it left a run directory"
    assert_equal(model, seeded(linear))


def test_a_closure_that_may_be_left_out_is_no_reason_to_refuse() -> None:
    class Optional(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    class Wrapped(torch.optim.SGD):
        def step(self, *args: Any, **settings: Any) -> Any:
            return super().step(*args, **settings)

    model = nn.Linear(2, 2)
    for kind in (Optional, Wrapped):
        given = kind(model.parameters(), lr=0.1)
        assert make_optimizer(given, model) is given


# -- a loss that has parameters ---------------------------------------------------------------


class Centres(nn.Module):
    """ArcFace-like: the classes are directions that the loss learns."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, CLASSES))
        self.scale = nn.Parameter(torch.tensor(4.0), requires_grad=False)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        cosine = F.linear(F.normalize(features), F.normalize(self.weight))
        return F.cross_entropy(self.scale * cosine, labels)


def with_loss(seed: int = 3) -> tuple[nn.Linear, Centres]:
    torch.manual_seed(seed)
    return linear(), Centres()


GIVEN: dict[str, tuple[Any, Callable[[list[nn.Parameter]], torch.optim.Optimizer]]] = {
    "none": (None, lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "name": ("sgd", lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9)),
    "callable": (lambda p: torch.optim.SGD(p, lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5)),
}


@pytest.mark.parametrize("given", [*GIVEN, "instance"])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_parameters_of_a_loss_are_trained(tmp_path: Path, given: str, clip: float | None) -> None:
    """As in a loop over both: same losses, same weights, and they are in the checkpoint."""
    expected, its_loss = with_loss()
    both = [*expected.parameters(), *its_loss.parameters()]
    judge = GIVEN["callable" if given == "instance" else given][1]

    def clipped() -> None:
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(both, clip)

    losses = plain_loop(
        expected, batches(data()), judge([p for p in both if p.requires_grad]), epochs=2,
        loss_of=its_loss, before_update=clipped,
    )  # fmt: skip
    model, loss = with_loss()
    before = weights(loss)
    optimizer: Any = GIVEN[given][0] if given in GIVEN else None
    if given == "instance":
        optimizer = judge([*model.parameters(), *loss.parameters()])
    exp = Experiment(
        model, data(), loss=loss, optimizer=optimizer, clip_grad_norm=clip, batch_size=16,
        shuffle=False, runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(epochs=2, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == losses
    assert_equal(model, expected)
    assert_equal(loss, its_loss)
    assert not torch.equal(loss.weight, before["weight"])
    assert torch.equal(loss.scale, before["scale"]), "a frozen parameter was trained"
    saved = part(last_checkpoint(exp.path), "loss")
    torch.testing.assert_close(saved, dict(its_loss.state_dict()), rtol=0, atol=0)


def test_an_optimizer_that_leaves_out_the_parameters_of_the_loss_is_refused(tmp_path: Path) -> None:
    model, loss = with_loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words = (
        r"the loss has 1 trainable parameter \(of shape \[3, 3\]\) that SGD does not hold, so it "
        r"would never learn: make it from \[\*model.parameters\(\), \*loss.parameters\(\)\]"
    )
    for given in (optimizer, lambda p: torch.optim.SGD(model.parameters(), lr=0.1)):
        with pytest.raises(ValueError, match=words):
            Experiment(model, data(), loss=loss, optimizer=given, runs=tmp_path, device="cpu")
    loss.requires_grad_(False)
    exp = Experiment(model, data(), loss=loss, optimizer=optimizer, runs=tmp_path, device="cpu")
    exp.run(steps=1, wait=True)
    exp.close()


def test_a_loss_that_holds_the_model_trains_no_parameter_twice(tmp_path: Path) -> None:
    """A penalty on weights needs them: they are the model's and the loss's at once."""

    class Penalised(nn.Module):
        def __init__(self, model: nn.Linear) -> None:
            super().__init__()
            self.model = model

        def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(logits, labels) + self.model.weight.square().sum()

    expected, model = seeded(linear), seeded(linear)
    optimizer = torch.optim.SGD(expected.parameters(), lr=1e-2, momentum=0.9)
    losses = plain_loop(expected, batches(data()), optimizer, loss_of=Penalised(expected))
    exp = Experiment(
        model, data(), loss=Penalised(model), optimizer="sgd", batch_size=16, shuffle=False,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(epochs=1, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == losses
    assert_equal(model, expected)


def test_parameters_of_a_loss_stay_in_the_optimizer_when_the_model_is_swapped(
    tmp_path: Path,
) -> None:
    """An equal model goes on as if nothing had happened, and the loss with it."""
    expected, its_loss = with_loss()
    both = [*expected.parameters(), its_loss.weight]
    losses = plain_loop(
        expected, batches(data()), torch.optim.Adam(both, lr=0.1), epochs=2, loss_of=its_loss
    )
    model, loss = with_loss()
    exp = Experiment(
        model, data(), loss=loss, optimizer=lambda p: torch.optim.Adam(p, lr=0.1), batch_size=16,
        shuffle=False, runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(steps=3, wait=True)
    exp.model = linear()
    exp.run(steps=5, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == losses
    assert_equal(exp.model, expected)
    assert_equal(loss, its_loss)
