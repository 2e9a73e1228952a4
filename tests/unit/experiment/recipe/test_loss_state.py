"""What a loss keeps is seen, held and put back; where that cannot be known, it is not called."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.plain_loop import plain_loop, seeded
from workbench.experiment import Experiment
from workbench.experiment.recipe.loss_state import LossState

FEATURES, CLASSES, SIZE = 6, 3, 16


def samples(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    return x, torch.arange(count) % CLASSES


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def warmed_up(x: torch.Tensor, of: torch.Tensor, calls: float) -> torch.Tensor:
    """Rises with the number of calls: one more of them is seen in every later loss."""
    return F.cross_entropy(x, of) * min(1.0, calls / 40)


# -- losses that keep something -----------------------------------------------------------------


class Bank(nn.Module):
    """Compares with features of former batches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.ones(4, CLASSES))

    def forward(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        found = (x @ self.queue.t()).logsumexp(1).mean() + F.cross_entropy(x, of)
        self.queue = x[-4:].detach()
        return found


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return warmed_up(x, of, self.calls)


class Private(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def forward(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        return warmed_up(x, of, self._calls)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Private()

    def forward(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return self.inner(x, of)


class Queue:
    """MoCo's: a new tensor in every call, which may lie where an old one lay."""

    def __init__(self) -> None:
        self.queue = torch.ones(8, CLASSES)

    def __call__(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        found = (x @ self.queue.t()).logsumexp(1).mean() + F.cross_entropy(x, of)
        self.queue = torch.cat([x.detach(), self.queue])[:8]
        return found


class Centre:
    """Written through ``.data``, which torch does not count."""

    def __init__(self) -> None:
        self.centre = torch.zeros(CLASSES)

    def __call__(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        found = F.cross_entropy(x - self.centre, of)
        self.centre.data.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return found


class Nested:
    def __init__(self) -> None:
        self.meter = SimpleNamespace(calls=0)

    def __call__(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        self.meter.calls += 1
        return warmed_up(x, of, self.meter.calls)


class Slots:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return warmed_up(x, of, self.calls)


def closed_over() -> Callable[..., torch.Tensor]:
    calls = 0

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return warmed_up(x, of, calls)

    return loss


def in_a_list() -> Callable[..., torch.Tensor]:
    seen: list[int] = []

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return warmed_up(x, of, len(seen))

    return loss


def by_a_bound_method() -> Callable[..., torch.Tensor]:
    seen: list[int] = []
    add = seen.append

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        add(len(x))
        return warmed_up(x, of, len(add.__self__))  # type: ignore[attr-defined]

    return loss


def in_a_dict() -> Callable[..., torch.Tensor]:
    state = {"calls": 0}

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        state["calls"] += 1
        return warmed_up(x, of, state["calls"])

    return loss


def in_a_full_deque() -> Callable[..., torch.Tensor]:
    means = deque([torch.zeros(CLASSES)] * 2, maxlen=2)

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        away = sum((x - mean).square().mean() for mean in means)
        means.append(x.detach().mean(0))
        return F.cross_entropy(x, of) + 0.1 * away

    return loss


def in_an_array() -> Callable[..., torch.Tensor]:
    calls = np.zeros(1)

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return warmed_up(x, of, float(calls[0]))

    return loss


def in_a_default() -> Callable[..., torch.Tensor]:
    def loss(
        x: torch.Tensor,
        of: torch.Tensor,
        state: dict[str, int] = {"calls": 0},  # noqa: B006 - it is meant
    ) -> torch.Tensor:
        state["calls"] += 1
        return warmed_up(x, of, state["calls"])

    return loss


def on_the_function() -> Callable[..., torch.Tensor]:
    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        held.calls += 1
        return warmed_up(x, of, held.calls)

    held: Any = loss
    held.calls = 0
    return loss


def of_a_class() -> Callable[..., torch.Tensor]:
    class Calls:
        count = 0

    def helper() -> float:
        Calls.count += 1
        return Calls.count

    return lambda x, of: warmed_up(x, of, helper())


def of_a_partial() -> Callable[..., torch.Tensor]:
    def loss(x: torch.Tensor, of: torch.Tensor, state: list[int]) -> torch.Tensor:
        state[0] += 1
        return warmed_up(x, of, state[0])

    return functools.partial(loss, state=[0])


def by_an_iterator() -> Callable[..., torch.Tensor]:
    calls = itertools.count(1)
    return lambda x, of: warmed_up(x, of, next(calls))


def by_a_generator_of_torchs() -> Callable[..., torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return lambda x, of: F.cross_entropy(x, of) * torch.rand((), generator=generator)


calls_of_a_global = 0


def of_a_global() -> Callable[..., torch.Tensor]:
    global calls_of_a_global  # noqa: PLW0603 - it is meant
    calls_of_a_global = 0

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        global calls_of_a_global  # noqa: PLW0603 - it is meant
        calls_of_a_global += 1
        return warmed_up(x, of, calls_of_a_global)

    return loss


SEEN: list[Any] = [
    *(Bank, Counter, Private, Around, Queue, Centre, Nested, Slots, in_a_list, by_a_bound_method),
    *(in_a_dict, in_a_full_deque, in_an_array, in_a_default, on_the_function, of_a_class),
    *(of_a_partial, by_a_generator_of_torchs),
]
NOT_KNOWN: list[Any] = [closed_over, by_an_iterator, of_a_global]


@pytest.mark.parametrize("made", SEEN)
@pytest.mark.parametrize("times", [1, 4, 8])
def test_what_a_loss_keeps_is_seen_and_put_back(made: Callable[[], Any], times: int) -> None:
    """After so many calls, as a tensor's place in memory is another's soon."""
    loss, (x, of) = made(), samples(8, 1)
    loss(x[:, :CLASSES], of)
    state = LossState(loss)
    assert (state.unknown, state.changed()) == ("", "")
    expected = None
    for _ in range(times):
        found = loss(x[:, :CLASSES], of)
        expected = found if expected is None else expected
    assert state.changed()
    assert state.restore()
    assert not state.changed()
    assert torch.equal(loss(x[:, :CLASSES], of), expected)


@pytest.mark.parametrize("made", NOT_KNOWN)
def test_what_cannot_be_known_is_said(made: Callable[[], Any]) -> None:
    assert LossState(made()).unknown


def prints(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    print(len(x))
    return F.cross_entropy(x, of)


def writes_into_torch(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    F.calls_of_ours = getattr(F, "calls_of_ours", 0) + 1  # type: ignore[attr-defined]
    return F.cross_entropy(x, of)


def test_what_reaches_past_every_name_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "calls_of_ours", 0, raising=False)
    assert LossState(prints).unknown == "print(), which it calls"
    assert "written into torch.nn.functional" in LossState(writes_into_torch).unknown
    assert LossState(open(__file__).read).unknown  # noqa: SIM115, PTH123 - a file that is held


class Focal(nn.Module):
    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma
        self.register_buffer("weight", torch.ones(CLASSES))

    def forward(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        each = F.cross_entropy(x, of, weight=self.weight, reduction="none")
        mask = torch.ones_like(each)
        mask[:1] = 1.0  # what it makes in a call is its own
        return ((1 - (-each).exp()) ** self.gamma * each * mask).mean()


def with_a_model() -> Callable[..., torch.Tensor]:
    net = seeded(lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    return lambda x, of: (
        F.cross_entropy(x, of) + 0.1 * sum(p.square().sum() for p in net.parameters())
    )


def compiled() -> Callable[..., torch.Tensor]:
    return torch.compile(lambda x, of: F.cross_entropy(x, of).square(), backend="eager")


PURE: list[Any] = [Focal, nn.CrossEntropyLoss, with_a_model, compiled]


@pytest.mark.parametrize("made", PURE)
def test_a_loss_that_keeps_nothing_is_known_to(made: Callable[[], Any]) -> None:
    loss, (x, of) = made(), samples(8, 1)
    state = LossState(loss)
    loss(x[:, :CLASSES], of)
    assert (state.unknown, state.changed()) == ("", "")


def test_large_tensors_are_watched_without_a_copy() -> None:
    table = torch.zeros(5 * 2**20)
    state = LossState(lambda x, of: x @ table[: len(x)])
    assert not state.changed()
    table.data[7] = 1.0
    assert state.changed() == "table"
    assert not state.restore()


# -- in an experiment ---------------------------------------------------------------------------


@pytest.mark.parametrize("made", [*SEEN, *NOT_KNOWN])
def test_a_loss_that_keeps_something_is_called_for_the_batches_alone(
    tmp_path: Path, made: Callable[[], Any]
) -> None:
    """Losses, and what is kept, are those of a loop that validates."""
    train, val = samples(64, 1), samples(48, 2)
    by_hand, judge = made(), seeded(linear)
    found: list[list[float]] = []

    def validate() -> None:
        with torch.no_grad():
            parts = zip(*(part.split(SIZE) for part in val), strict=True)
            found.append([float(by_hand(judge(x), of)) for x, of in parts])

    parts = list(zip(*(part.split(SIZE) for part in train), strict=True))
    expected = plain_loop(
        judge, parts, torch.optim.SGD(judge.parameters(), lr=0.1), epochs=3, loss_of=by_hand,
        after_epoch=validate,
    )  # fmt: skip
    exp = Experiment(
        seeded(linear), train, val, loss=made(), batch_size=SIZE, shuffle=False, runs=tmp_path,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu",
    )  # fmt: skip
    exp.run(epochs=3, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == expected
    assert exp.scalars.last("val/loss")[0] == pytest.approx(sum(found[-1]) / 3, rel=1e-6)
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert "keep" in note
    assert "something from call to call (" in note


@pytest.mark.parametrize("made", SEEN)
def test_an_evaluation_leaves_what_a_loss_keeps(tmp_path: Path, made: Callable[[], Any]) -> None:
    def losses(*, asked: bool) -> list[float]:
        exp = Experiment(
            seeded(linear), samples(64, 1), loss=made(), batch_size=SIZE, shuffle=False,
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1), runs=tmp_path, device="cpu",
        )  # fmt: skip
        for _ in range(2):
            if asked:
                exp.evaluate(samples(48, 2))
            exp.run(epochs=1, wait=True)
        exp.close()
        return exp.scalars.since("train/loss", 0)[1].tolist()

    assert losses(asked=True) == losses(asked=False)


def test_a_loss_that_changes_in_an_inspection_is_restored_and_reported(tmp_path: Path) -> None:
    """Its batches change nothing, as they have no graph; the look has one."""
    calls = [0]

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            calls[0] += 1
        return warmed_up(x, of, 10 + calls[0])

    exp = Experiment(
        seeded(linear), samples(64, 1), samples(48, 2), loss=loss, batch_size=SIZE, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(epochs=2, wait=True)
    exp.close()
    assert calls == [8], "one for each step"
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert "it keeps something from call to call (calls)" in note
