"""What a custom Function keeps on its ``ctx`` is found wherever it is, and counted once."""

from __future__ import annotations

import collections
import decimal
import fractions
import functools
import itertools
import re
import threading
import types
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import workbench as wb
from workbench.graph.core.held_tensors import Search

SIZE = 8


def tensor():
    return torch.randn(SIZE)


class Named(NamedTuple):
    value: Any


@dataclass
class Data:
    value: Any


class Slotted:
    __slots__ = ("other", "value")

    def __init__(self, value):
        self.value = value


class Below(Slotted):
    __slots__ = ("more",)


class Guarded:
    """Reading it in any way of Python's runs code of its class."""

    def __init__(self, value):
        object.__setattr__(self, "value", value)

    def __getattribute__(self, name):
        raise AssertionError("it was read")

    __iter__ = __len__ = __eq__ = __hash__ = lambda *_: pytest.fail("it was looked at")


class GuardedList(list):
    def __iter__(self):
        raise AssertionError("it was walked through")


class Chain(itertools.chain):
    """Of a class in C, which holds more than its attributes say."""


class Cyclic:
    def __init__(self, value):
        self.me, self.value = self, value


def closure(value):
    return lambda: value


def default(value):
    return lambda given=value: given


PLACES = {
    "a list": lambda t: [t],
    "lists in lists": lambda t: [[[t], 3], "text"],
    "a dictionary": lambda t: {"a": {"b": (1, t)}},
    "a default dictionary": lambda t: collections.defaultdict(list, a=[t]),
    "a deque": lambda t: collections.deque([t]),
    "a set": lambda t: {t},
    "a named tuple": Named,
    "a dataclass": lambda t: Data([t]),
    "an attribute": lambda t: types.SimpleNamespace(a=types.SimpleNamespace(b=t)),
    "a slot": Slotted,
    "a slot of a base": Below,
    "a closure": closure,
    "a default": default,
    "a closure in a list": lambda t: [closure(closure(t))],
    "a partial": lambda t: functools.partial(max, t, key=None),
    "a keyword of a partial": lambda t: functools.partial(sorted, key=t),
    "a method": lambda t: Data(t).__repr__,
    "a method of the tensor": lambda t: t.add,
    "an exception": ValueError,
    "a guarded object": Guarded,
    "a guarded list": lambda t: GuardedList([t]),
    "a cycle": Cyclic,
    "a distribution": lambda t: torch.distributions.Normal(t, 1.0, validate_args=False),
    "an array": lambda t: t.numpy(),
    "an array of objects": lambda t: np.array([t, None], dtype=object),
    "an iterator": lambda t: iter([t]),
    "a generator": lambda t: (one for one in [t]),
    "an iterator in an attribute": lambda t: Data(iter([t])),
    "a class in C": lambda t: Chain([t]),
    "a view of memory": lambda t: memoryview(t.numpy()),
    "a long list": lambda t: [*range(300_000), t],
}


def keeping(keep):
    """A loss whose graph has a node that keeps ``keep(x)``, and saves nothing else."""

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.stash = keep(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    return Keeps.apply(torch.randn(SIZE, requires_grad=True)).sum()


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_on_ctx_is_counted(place):
    record = wb.graph(keeping(lambda x: PLACES[place](x.exp()))).record
    scale = 4 if place == "a distribution" else 0
    assert record.saved_bytes == SIZE * 4 + scale
    (node,) = [node for node in record.nodes if node.type == "KeepsBackward"]
    assert node.saved_bytes == record.saved_bytes
    assert not any("looked" in note for note in record.notes)


def test_a_tensor_that_is_saved_and_kept_twice_is_counted_once():
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            value = x.exp()
            ctx.save_for_backward(value, x)
            ctx.nested = {"value": [value, value[2:], x], "weight": Data(weight)}
            return x * weight

        @staticmethod
        def backward(ctx, gradient):
            return gradient, gradient

    weight = nn.Parameter(torch.randn(SIZE))
    model = nn.Module()
    model.weight = weight
    x = torch.randn(SIZE)
    record = wb.graph(Keeps.apply(x, weight).sum(), model=model).record
    assert record.saved_bytes == x.nbytes
    assert record.input_bytes == x.nbytes
    assert record.parameter_bytes == weight.nbytes


def node_over(value):
    with torch.enable_grad():
        return value.requires_grad_().exp().grad_fn


def raised(value):
    try:
        raise ValueError(len(value))
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (node_over, "1 of ExpBackward0"),
        (lambda t: [node_over(t), node_over(t)], "2 of ExpBackward0"),
        (lambda t: Data(raised(t)), "1 of traceback"),
        (lambda t: t.numpy().copy(), "1 of ndarray"),
    ],
)
def test_what_cannot_be_inspected_is_noted(keep, said):
    record = wb.graph(keeping(lambda x: keep(x.detach().exp()))).record
    assert record.saved_bytes == 0
    (note,) = [note for note in record.notes if "could not be inspected" in note]
    assert said in note


@pytest.mark.parametrize(
    "keep",
    [
        lambda _: nn.Linear(3, 3),
        lambda _: [nn.Sequential(nn.Linear(3, 3)).forward],
        lambda _: torch.optim.SGD([torch.ones(3, requires_grad=True)]),
        lambda _: torch.utils.data.TensorDataset(torch.ones(3)),
        lambda _: (torch.Generator(), torch.float32, torch.device("cpu"), torch.Size([3])),
        lambda _: [torch, types, int, nn.Linear, print, len, None, ..., 1.5, "text", b"", 3j],
        lambda _: lambda: torch.ones(3),
        lambda _: [threading.Lock(), decimal.Decimal(1), fractions.Fraction(1), re.compile("a")],
        lambda _: [weakref.ref(tensor), threading.Event(), np.float32(1), datetime.now(UTC)],
    ],
)
def test_what_lives_on_its_own_or_holds_nothing_is_not_counted(keep):
    record = wb.graph(keeping(keep)).record
    assert record.saved_bytes == 0
    assert record.notes == ()


def test_a_search_has_an_end_and_says_so():
    search = Search(most=100)
    found = search.within([[number] for number in range(1_000)] + [tensor()])
    assert not found.is_complete
    assert not search.within([[1]]).is_complete
    record = wb.graph(keeping(lambda x: [[] for _ in range(200_000)] + [x])).record
    assert any("not all were inspected" in note for note in record.notes)


def test_the_same_object_on_many_nodes_is_looked_at_once():
    shared = [[[]] for _ in range(10_000)]
    losses = [keeping(lambda _: shared) for _ in range(50)]
    record = wb.graph(sum(losses)).record
    assert not any("looked" in note for note in record.notes)


def test_only_containers_are_searched_where_that_is_requested():
    search = Search(into_objects=False)
    value = tensor()
    assert search.within([closure((value,))]).tensors == [value]
    assert search.within(Data(value)).tensors == []
    assert search.within(Data(value)).closed == []


def test_a_pack_hook_may_return_an_object():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: Data({"kept": [t]}), lambda d: d):
        loss = torch.randn(SIZE, requires_grad=True).exp().sin().sum()
    record = wb.graph(loss).record
    assert record.saved_bytes == SIZE * 4
    assert not any("packed" in note for note in record.notes)
