"""What a custom Function keeps on its ``ctx`` and freeing the graph would free, and nothing else.

The judge is Python: what is gone when the graph is, by weak references.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import types
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

import workbench as wb

SIZE = 250_000
MADE: list[weakref.ref[torch.Tensor]] = []


def big():
    tensor = torch.ones(SIZE)
    MADE.append(weakref.ref(tensor))
    return tensor


@pytest.fixture(autouse=True)
def made():
    MADE.clear()
    gc.collect()
    return MADE


def are_gone():
    gc.collect()
    return [one() is None for one in MADE]


class Config:
    def __init__(self):
        self.cache = big()

    def method(self):
        return self.cache


@dataclass
class Nested:
    inner: Any
    others: list[Any] = field(default_factory=list)


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keep):
        ctx.stash = keep()
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


def keeping(keep, x=None):
    x = torch.randn(8, requires_grad=True) if x is None else x
    return Keeps.apply(x, keep)


def bytes_and_notes(loss):
    record = wb.graph(loss.sum()).record
    return record.saved_bytes, [note for note in record.notes if "held elsewhere" in note]


def shared_cell(config):
    def keep():
        return config.cache

    return keep


HELD = {
    "an object": lambda config: config,
    "its attributes": vars,
    "a bound method": lambda config: config.method,
    "in a new list": lambda config: [config, [3, config]],
    "in a new object": lambda config: Nested(config, [config.method]),
    "a partial": lambda config: functools.partial(print, config),
    "a closure": shared_cell,
    "a lambda": lambda config: lambda: config,
    "a dictionary of methods": lambda config: {"run": config.method, "config": (config,)},
}


@pytest.mark.parametrize("way", HELD)
def test_what_is_held_elsewhere_is_not_counted_and_noted(way):
    config = Config()
    loss = keeping(lambda: HELD[way](config))
    num_bytes, notes = bytes_and_notes(loss)
    del loss
    assert are_gone() == [False]
    assert num_bytes == 0
    (note,) = notes
    assert "with 977 KiB of tensors" in note


def twice(value):
    return [value, {"again": value}, Nested(value), big()]


def cycle(value):
    found = Nested(value)
    found.others.append(found)
    return found


OWNED = {
    "a list": lambda: [big(), big()],
    "an object": lambda: [Config(), Config()],
    "a bound method": lambda: [Config().method, Config().method],
    "in an object in a list": lambda: Nested([Config()], [Nested(big())]),
    "an object twice": lambda: twice(Config()),
    "a cycle": lambda: cycle([big(), big()]),
    "a closure": lambda: [shared_cell(Config()), shared_cell(Config())],
    "a generator": lambda: (one for one in [big(), big()]),
    "a default dictionary": lambda: collections.defaultdict(list, a=[big()], b=[big()]),
    "an ordered dictionary": lambda: collections.OrderedDict(a=[big()], b=Config()),
    "a chain": lambda: itertools.chain([big()], [big()]),
    "a namespace": lambda: types.SimpleNamespace(a=Config(), b=[big()]),
    "a distribution": lambda: torch.distributions.Normal(big(), big(), validate_args=False),
}


@pytest.mark.parametrize("way", OWNED)
def test_what_only_the_graph_holds_is_counted(way):
    loss = keeping(OWNED[way])
    num_bytes, notes = bytes_and_notes(loss)
    assert are_gone() == [False, False]
    del loss
    assert are_gone() == [True, True]
    assert num_bytes == 2 * SIZE * 4
    assert notes == []


def test_two_nodes_of_one_graph_may_share_what_they_keep():
    shared = [big(), Config()]
    once = [shared]
    loss = keeping(lambda: once[0], keeping(lambda: once[0]))
    del shared
    once.clear()
    assert bytes_and_notes(loss) == (2 * SIZE * 4, [])


def test_a_tensor_that_a_node_keeps_counts_as_one_that_it_saves():
    """Whoever else holds it: the node needs it for backward."""
    config = Config()
    assert bytes_and_notes(keeping(lambda: config.cache)) == (SIZE * 4, [])
    loss = keeping(lambda: [config, config.cache])
    assert bytes_and_notes(loss) == (SIZE * 4, [])


def test_what_is_counted_elsewhere_in_the_graph_is_not_said_to_be_missing():
    config = Config()
    x = config.cache.clone().requires_grad_()
    config.cache = x.exp()
    loss = keeping(lambda: config, x).sum() + config.cache.sin().sum()
    assert bytes_and_notes(loss) == (SIZE * 4, [])


def test_modules_and_small_settings_are_no_news():
    model, settings = nn.Linear(3, 3), {"p": 0.5}
    loss = keeping(lambda: [model, settings, model.forward, Nested(settings)])
    record = wb.graph(loss.sum()).record
    assert (record.saved_bytes, record.notes) == (0, ())


def test_a_parameter_that_is_held_elsewhere_is_in_no_note():
    class Trainer:
        def __init__(self, model):
            self.weight = model.weight

        def step(self):
            return self

    model = nn.Linear(300, 300)
    trainer = Trainer(model)
    loss = keeping(lambda: trainer.step, model(torch.randn(2, 300)))
    record = wb.graph(loss.sum(), model=model).record
    assert not any("held elsewhere" in note for note in record.notes)
