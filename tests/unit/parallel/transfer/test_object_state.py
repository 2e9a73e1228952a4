"""What objects keep in Python goes to a copy of a training and comes back, in one process."""

from __future__ import annotations

import collections
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.integration.parallel.support import made, rows
from workbench.experiment import Experiment
from workbench.experiment.training import Training
from workbench.parallel.transfer.job_pickle import pack, unpack
from workbench.parallel.transfer.object_state import Changes, ObjectState, differing


@dataclass
class Meter:
    count: int = 0
    values: list[float] = field(default_factory=list[float])


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


class Keeps(nn.Module):
    """Keeps what people keep in a model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 5)
        self.calls, self.name = 0, "first"
        self.history: list[Any] = []
        self.seen: dict[str, Any] = {"rows": {1}}
        self.names: collections.Counter[str] = collections.Counter()
        self.meter, self.slotted = Meter(), Slotted()
        self.queue = torch.zeros(3)
        self.array = np.zeros(3)
        self.random = random.Random(0)
        self.generator = torch.Generator().manual_seed(0)
        self.teacher = [nn.Linear(2, 2)]
        self.pair = ([0], (1, [2]))
        self.mine = [self.layer.weight]
        self.gone_later = 1
        self.add = self.history.append

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Counted(torch.optim.SGD):
    """Has attributes of its own, one of which the class has a default for."""

    scale = 1.0

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr=lr)
        self.count, self.log, self.scale = 0, list[int](), 0.5


class Own:
    """A schedule without ``state_dict``."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.n = optimizer, 0

    def step(self) -> None:
        self.n += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 / (1 + self.n)


class Remembers(nn.Module):
    """A loss with a buffer that it assigns, and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.register_buffer("total", torch.zeros(()))
        self.losses: list[float] = []

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, targets)


class Pair:
    """A training, and its copy as a rank has it."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.local: Training = experiment._training
        folder.mkdir(exist_ok=True)
        self.local.detach_modes()
        self.local.object_state = ObjectState.of(self.local)
        pack(self.local, folder / "payload")
        self.rank = unpack(folder / "payload")
        # they come with a checkpoint; what is computed with empty ones may be NaN
        self.rank.model.load_state_dict(self.local.model.state_dict())
        self.state.begin({})

    @property
    def state(self) -> ObjectState:
        return self.rank.object_state

    def bring_back(self) -> tuple[Changes, list[str]]:
        found = self.state.changes()[0]
        return found, list(self.local.object_state.take(found))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    model = Keeps()
    return Pair(
        made(
            tmp_path / "runs",
            lambda: model,
            optimizer=Counted(model.parameters()),
            scheduler=Own,
            loss=Remembers(),
        ),
        tmp_path,
    )


def values(model: Any) -> dict[str, Any]:
    """All that `Keeps` keeps, as plain values."""
    return {
        "calls": (model.calls, model.name, getattr(model, "gone_later", None)),
        "new": getattr(model, "new", None),
        "history": list(model.history),
        "seen": {key: sorted(one) for key, one in model.seen.items()},
        "names": dict(model.names),
        "meter": (model.meter.count, list(model.meter.values), model.slotted.count),
        "queue": model.queue.tolist(),
        "array": model.array.tolist(),
        "random": model.random.getstate(),
        "generator": model.generator.get_state().tolist(),
        "teacher": model.teacher[0].weight.tolist(),
        "pair": (list(model.pair[0]), list(model.pair[1][1])),
    }


def step_of(model: Any) -> None:
    """What a forward may do."""
    model.calls += 1
    model.name, model.new = "second", (1, 2)
    model.history.append(model.calls)
    model.add("by a method")
    model.seen["rows"].add(2)
    model.seen["more"] = {3}
    model.names.update(["a", "a"])
    model.meter.count += 1
    model.meter.values.append(0.5)
    model.slotted.count += 1
    model.queue[1] = 7
    model.array += 1
    model.random.random()
    torch.rand(3, generator=model.generator)
    with torch.no_grad():
        model.teacher[0].weight.add_(1)
    model.pair[0].append(1)
    model.pair[1][1].append(3)
    if hasattr(model, "gone_later"):
        del model.gone_later


def test_all_that_a_model_keeps_comes_back_into_the_same_objects(pair: Pair) -> None:
    local: Any = pair.local.model
    twin: Any = unpack_again(pair)
    held = {name: getattr(local, name) for name in ("history", "seen", "meter", "queue", "teacher")}
    inner, weight = local.seen["rows"], local.teacher[0].weight
    for _ in range(2):
        step_of(pair.rank.model)
        step_of(twin)
    _, said = pair.bring_back()
    assert values(local) == values(twin)
    assert all(getattr(local, name) is one for name, one in held.items())
    assert local.seen["rows"] is inner
    assert local.teacher[0].weight is weight
    assert local.mine[0] is local.layer.weight
    assert not said


def unpack_again(pair: Pair) -> Any:
    """One more copy of the model, that one process goes on with."""
    import copy

    twin = copy.deepcopy(pair.local.model)
    twin.add = twin.history.append
    return twin


def test_optimizer_loss_and_schedule_come_back(pair: Pair) -> None:
    there: Any = pair.rank
    assert (there.optimizer.count, there.optimizer.scale) == (0, 0.5), "of the class, or not there"
    there.optimizer.count += 4
    there.optimizer.log.append(3)
    there.schedule.scheduler.step()
    loss = there.loss.function
    loss.n = loss.n + 1
    loss.total.add_(2)
    loss.losses.append(0.25)
    log, schedule = pair.local.optimizer.log, pair.local.schedule.scheduler
    pair.bring_back()
    local: Any = pair.local
    assert (local.optimizer.count, local.optimizer.log) == (4, [3])
    assert local.optimizer.log is log
    assert local.schedule.scheduler is schedule
    assert schedule.n == 1
    assert schedule.optimizer is local.optimizer
    assert (float(local.loss.function.n), float(local.loss.function.total)) == (1, 2)
    assert local.loss.function.losses == [0.25]


def test_what_a_cell_changes_meanwhile_stays(pair: Pair) -> None:
    pair.local.model.name = "of a cell"
    pair.rank.model.calls = 3
    pair.bring_back()
    local: Any = pair.local.model
    assert (local.calls, local.name) == (3, "of a cell")


def test_an_activation_comes_without_its_graph_and_what_is_not_pickled_is_named(pair: Pair) -> None:
    there: Any = pair.rank.model
    there.last = there(rows()[0][:4])
    there.history.append(there.last.mean())
    there.new = Unpicklable()
    _, said = pair.bring_back()
    local: Any = pair.local.model
    assert local.last.grad_fn is None
    torch.testing.assert_close(local.last, there.last.detach())
    assert len(local.history) == 1
    assert not hasattr(local, "new")
    assert said == [
        "model.new changed on the ranks and cannot be pickled: what is here is what was here before"
    ]


def test_new_objects_may_hold_those_that_were_there(pair: Pair) -> None:
    there: Any = pair.rank.model
    there.history.append({"meter": there.meter, "weight": there.layer.weight})
    there.meter.count = 9
    pair.bring_back()
    local: Any = pair.local.model
    assert local.history[0]["meter"] is local.meter
    assert local.history[0]["weight"] is local.layer.weight
    assert local.meter.count == 9


def test_what_is_tried_is_undone(pair: Pair) -> None:
    there: Any = pair.rank.model
    before = values(there)
    with pair.state.undone():
        step_of(there)
    after = values(there)
    own = ("calls", "new")  # of the module itself, which the guard puts back
    assert {k: v for k, v in after.items() if k not in own} == {
        k: v for k, v in before.items() if k not in own
    }


def test_ranks_that_differ_are_distinguished(tmp_path: Path) -> None:
    copies = [Pair(made(tmp_path / "runs", Keeps), tmp_path / str(at)) for at in range(2)]
    digests: list[dict[str, bytes]] = []
    for at, copy in enumerate(copies):
        there: Any = copy.rank.model
        there.calls = 4
        there.history.append(at)
        there.names.update(["a"])
        digests.append(copy.state.changes()[1])
    assert differing(digests) == ["model.history"]


def counted_by_a_closure() -> Callable[..., torch.Tensor]:
    heard: list[float] = []

    def loss(logits: torch.Tensor, targets: torch.Tensor, *, into: list[float]) -> torch.Tensor:
        into.append(len(heard))
        return nn.functional.cross_entropy(logits, targets)

    return functools.partial(loss, into=[])


def test_what_a_partial_function_was_given_comes_back(tmp_path: Path) -> None:
    pair = Pair(made(tmp_path / "runs", Keeps, loss=counted_by_a_closure()), tmp_path)
    there: Any = pair.rank.loss.function
    there.keywords["into"].append(1.0)
    pair.bring_back()
    local: Any = pair.local.loss.function
    assert local.keywords["into"] == [1.0]
