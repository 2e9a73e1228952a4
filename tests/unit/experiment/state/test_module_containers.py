"""Lists, dictionaries, sets and queues of a model are as before a step that went wrong."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.parallel.support import Net, made
from workbench.experiment.control import RunError
from workbench.experiment.state.module_containers import MOST_COPIED
from workbench.experiment.state.module_state import ModuleState

MANY = MOST_COPIED + 10


class Holds(nn.Module):
    """Keeps one thing, and does one thing to it in a forward."""

    def __init__(self, held: Any, change: Callable[[Any], object]) -> None:
        super().__init__()
        self.held, self.change = held, change

    def forward(self) -> None:
        self.change(self)


def put(name: Any, value: Any) -> Callable[[Any], object]:
    return lambda module: module.held.__setitem__(name, value)


CHANGES: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "appended": ([1], lambda module: module.held.append(2)),
    "an element": ([1, 2], put(0, 5)),
    "sorted": ([2, 1], lambda module: module.held.sort()),
    "cleared": ([2, 1], lambda module: module.held.clear()),
    "appended to many": ([*range(MANY)], lambda module: module.held.extend([1, 2])),
    "a value": ({"a": 1}, put("a", 2)),
    "a key": ({"a": 1}, put("b", 2)),
    "a key of many": (dict.fromkeys(range(MANY), 0), put("new", 2)),
    "order": (
        OrderedDict({"a": 1, "b": 2}), lambda module: module.held.move_to_end("a"),
    ),
    "a default": (defaultdict(int), lambda module: module.held["x"]),
    "counted": (Counter("aab"), lambda module: module.held.update("abc")),
    "a set": ({1}, lambda module: module.held.add(2)),
    "a queue": (deque([1, 2], maxlen=2), lambda module: module.held.append(3)),
    "a queue of many": (deque(range(MANY)), lambda module: module.held.append(3)),
    "inside": ({"a": [1, {"b": [2]}]}, lambda module: module.held["a"][1]["b"].append(3)),
    "another": ([1], lambda module: setattr(module, "held", [*module.held, 2])),
    "another kind": ([1], lambda module: setattr(module, "held", None)),
    "no more": ([1], lambda module: delattr(module, "held")),
    "tensors": ([torch.zeros(2)], lambda module: module.held.append(torch.ones(2))),
}  # fmt: skip


def said(module: Any) -> Any:
    held = module.held
    return repr(list(held.items()) if isinstance(held, dict) else held)


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_forward_does_to_it_is_undone(what: str) -> None:
    held, change = CHANGES[what]
    module = Holds(held, change)
    state = ModuleState(module)
    before = said(module)
    for _ in range(3):
        state.remember(exactly=False)
        module()
        assert not hasattr(module, "held") or said(module) != before
        state.restore()
        assert module.held is held
        assert said(module) == before


def test_what_steps_that_went_through_left_stays() -> None:
    module = Holds([], lambda module: module.held.append([len(module.held)]))
    state = ModuleState(module)
    for count in range(MANY):
        state.remember(exactly=False)
        module()
        state.release()
        state.restore()
        assert len(module.held) == count + 1
    state.remember(exactly=False)
    module.held[3].append(1)  # of many, inside: nobody looks there
    module()
    state.restore()
    assert len(module.held) == MANY


def test_one_made_anew_in_each_forward_is_followed() -> None:
    def change(module: Any) -> None:
        module.held = {"calls": module.held["calls"] + 1, "log": [*module.held["log"], 1]}

    module = Holds({"calls": 0, "log": list[int]()}, change)
    state = ModuleState(module)
    for calls in range(5):
        state.remember(exactly=False)
        module()
        state.release()
        state.remember(exactly=False)
        module()
        module.held["log"].append(2)
        state.restore()
        assert module.held == {"calls": calls + 1, "log": [1] * (calls + 1)}


def test_activations_in_a_list_are_not_kept_alive() -> None:
    weight = torch.ones(3, requires_grad=True)

    def change(module: Any) -> None:
        module.held.clear()
        module.held.append(weight * 2)

    module = Holds([], change)
    state = ModuleState(module)
    state.remember(exactly=False)
    module()
    last = weakref.ref(module.held[0])
    state.remember(exactly=False)
    module()
    assert last() is None
    state.restore()
    assert len(module.held) == 1


@pytest.mark.parametrize("count", [5, MANY])
def test_a_list_that_is_as_it_was_is_not_written(count: int) -> None:
    class Watched(list[int]):
        def clear(self) -> None:
            raise AssertionError

    module = Holds(Watched(range(count)), lambda module: None)
    state = ModuleState(module)
    state.remember(exactly=False)
    module()
    state.restore()


def test_a_count_and_a_list_agree_after_a_step_that_went_wrong(tmp_path: Path) -> None:
    class Counts(Net):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.heard, self.kept = 0, [0], {"calls": 0}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.calls += 1
                self.heard.append(self.calls)
                self.kept["calls"] = self.calls
            return super().forward(x)

    x, y = torch.randn(48, 16), torch.randint(0, 4, (48,))
    x[20] = torch.nan
    experiment = made(tmp_path / "runs", Counts, (x, y), shuffle=False)
    run = experiment.run(epochs=1)
    with pytest.raises(RunError, match="NaN at step 2"):
        run.wait(60)
    model: Any = experiment.model
    assert (model.calls, model.heard, model.kept) == (1, [0, 1], {"calls": 1})


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_tensors_in_a_container_are_no_obstacle(layout: str) -> None:
    eye = torch.eye(3)
    adjacency = eye.to_sparse() if layout == "coo" else eye.to_sparse_csr()
    module = Holds({"adjacency": adjacency, "calls": 0}, put("calls", 1))
    state = ModuleState(module)
    state.remember(exactly=False)
    module()
    state.restore()
    assert module.held["calls"] == 0
    assert module.held["adjacency"] is adjacency
