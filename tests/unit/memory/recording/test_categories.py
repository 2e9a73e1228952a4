"""Roles come from who holds a storage, the rest from how long it lived."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.memory.recording.categories import (
    adopt_inputs,
    adopt_model,
    adopt_optimizer,
    categorize,
)
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block
from workbench.records import CATEGORIES, Phase

PHASES = [
    Phase(name="forward", start=0, end=4),
    Phase(name="backward", start=4, end=8),
    Phase(name="optimizer", start=10, end=14),
]


@pytest.mark.parametrize(
    ("start", "end", "category"),
    [
        (0, 3, "temporaries"),
        (0, 4, "activations"),
        (0, -1, "activations"),
        (5, 7, "temporaries"),
        (5, 8, "unknown"),
        (5, -1, "unknown"),
        (8, 9, "temporaries"),
        (8, 10, "unknown"),
        (8, -1, "unknown"),
        (11, 13, "temporaries"),
        (11, 14, "temporaries"),
        (11, -1, "unknown"),
        (14, 15, "temporaries"),
        (14, -1, "unknown"),
        (-1, 5, "unknown"),
        (-1, -1, "unknown"),
    ],
)
def test_a_life_tells_activations_from_temporaries(start: int, end: int, category: str):
    block = Block(1, "cpu", 0)
    block.start, block.end = start, end
    assert CATEGORIES[categorize([block], PHASES)[0]] == category


def test_a_role_is_stronger_than_a_life():
    block = Block(1, "cpu", 0)
    block.start, block.end, block.category = 0, 3, "gradients"
    assert CATEGORIES[categorize([block], PHASES)[0]] == "gradients"


def adopted(adopt) -> dict[str, str]:
    recorder = Recorder()
    adopt(recorder)
    recorder.close()
    return {block.name: block.category for block in recorder.blocks}


def test_a_shared_parameter_is_counted_once():
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    assert adopted(lambda recorder: adopt_model(recorder, model)) == {"0.weight": "parameters"}


def test_optimizer_state_is_named_after_its_parameter():
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()

    def adopt(recorder: Recorder) -> None:
        adopt_model(recorder, model)
        adopt_optimizer(recorder, optimizer)

    assert adopted(adopt) == {
        "weight": "parameters",
        "weight.grad": "gradients",
        "weight.step": "optimizer",
        "weight.exp_avg": "optimizer",
        "weight.exp_avg_sq": "optimizer",
    }


def test_what_is_two_things_keeps_the_stronger():
    model = nn.Linear(4, 4, bias=False)
    batch = (model.weight.detach(), torch.ones(3))

    def adopt(recorder: Recorder) -> None:
        adopt_inputs(recorder, batch)
        adopt_model(recorder, model)
        adopt_inputs(recorder, batch)

    assert adopted(adopt) == {"weight": "parameters", "batch.targets": "buffers"}


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        ((torch.ones(2), torch.ones(3)), {"batch.inputs", "batch.targets"}),
        (
            {"input_ids": torch.ones(2), "labels": torch.ones(3)},
            {"batch.input_ids", "batch.labels"},
        ),
        (({"a": torch.ones(2)}, torch.ones(3)), {"batch.inputs", "batch.targets"}),
        ([torch.ones(2), "text", 3, torch.ones(4)], {"batch.inputs", "batch.3"}),
    ],
)
def test_inputs_of_any_nesting_are_named(batch, names: set[str]):
    found = adopted(lambda recorder: adopt_inputs(recorder, batch))
    assert set(found) == names
    assert set(found.values()) == {"buffers"}
