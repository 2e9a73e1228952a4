"""What a run with twice the batch says of the blocks of a recording."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.unit.memory.step_copies import next_step, trained
from workbench.experiment.runtime.step_boundary import NextStep
from workbench.memory.prediction.batch_growth import growth_between, with_growth
from workbench.memory.prediction.copied_steps import plain_steps
from workbench.memory.prediction.fake_run import run_copy
from workbench.memory.prediction.step_copy import copy_of_step
from workbench.memory.simulation.what_if import what_if
from workbench.records import CATEGORIES, GROWTHS, MemoryRecord

BATCH = 8


class Pairs(nn.Module):
    """Sixteen samples, sixteen features, and scores of every sample against every other."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, BATCH), nn.Linear(BATCH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return self.head(h + (h @ h.T).softmax(-1).sum(1, keepdim=True))


def step() -> NextStep:
    torch.manual_seed(0)
    return trained(next_step(Pairs(), (torch.randn(BATCH, 16), torch.arange(BATCH))))


def recorded(step: NextStep, **options: Any) -> MemoryRecord:
    """On real tensors, as a recording would be."""
    return run_copy(copy_of_step(step, fake=False, **options), title="pairs", num_steps=1)


def of_op(record: MemoryRecord, op: str, phase: int = 0) -> list[str]:
    bounds = record.phases[phase]
    inside = (record.block_start >= bounds.start) & (record.block_start < bounds.end)
    is_op = np.array([record.strings[row] == op for row in record.block_op.tolist()])
    return [GROWTHS[kind] for kind in record.block_growth[inside & is_op]]


def test_each_block_is_fixed_or_grows_or_is_not_known():
    mine = step()
    found = with_growth(recorded(mine), *plain_steps(mine, BATCH))
    assert of_op(found, "aten.addmm") == ["batch", "batch"], "though a layer is as wide as it"
    assert of_op(found, "aten.mm") == ["square"], "the scores"
    assert of_op(found, "aten.sum") == ["batch"]
    for name, kind in (("parameters", "fixed"), ("gradients", "fixed"), ("optimizer", "fixed")):
        rows = found.block_category == CATEGORIES.index(name)
        assert {GROWTHS[value] for value in found.block_growth[rows]} == {kind}


def test_what_is_said_to_grow_is_really_twice_as_large_with_twice_the_batch():
    mine = step()
    found = with_growth(recorded(mine), *plain_steps(mine, BATCH))
    twice = recorded(mine, batch=2 * BATCH)
    grows = found.block_growth == GROWTHS.index("batch")
    fixed = found.block_growth == GROWTHS.index("fixed")
    assert grows.sum() > 5
    np.testing.assert_array_equal(twice.block_requested[grows], 2 * found.block_requested[grows])
    np.testing.assert_array_equal(twice.block_requested[fixed], found.block_requested[fixed])
    square = found.block_growth == GROWTHS.index("square")
    assert square.sum() > 1
    np.testing.assert_array_equal(twice.block_requested[square], 4 * found.block_requested[square])


def test_scores_of_all_samples_against_all_are_predicted_for_another_batch():
    mine = step()
    found = with_growth(recorded(mine), *plain_steps(mine, BATCH))
    assert not (found.block_growth == GROWTHS.index("unknown")).any()
    for batch in (64 * BATCH, BATCH // 2):
        low, high = what_if(found, batch=batch).peak_interval
        assert low == high == what_if(recorded(mine, batch=batch)).outcome.peak_reserved


class Penalty(nn.Module):
    """The gradient of its inputs is asked for, and kept with them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        h = self.body(x)
        (slope,) = torch.autograd.grad(h.square().sum(), x, create_graph=True)
        return h + slope.square().sum(1, keepdim=True)


def test_gradients_of_the_inputs_grow_and_those_of_parameters_do_not():
    torch.manual_seed(0)
    mine = trained(next_step(Penalty(), (torch.randn(BATCH, 16), torch.arange(BATCH))))
    record = recorded(mine)
    found = with_growth(record, *plain_steps(mine, BATCH))
    is_gradient = found.block_category == CATEGORIES.index("gradients")
    kinds = {
        found.strings[found.block_name[row]]: GROWTHS[found.block_growth[row]]
        for row in np.flatnonzero(is_gradient).tolist()
    }
    assert kinds == {"batch.inputs.grad": "batch", "body.weight.grad": "fixed",
                     "body.bias.grad": "fixed"}  # fmt: skip
    alone = with_growth(record)
    inputs = [name == "batch.inputs.grad" for name in alone.strings]
    rows = np.array(inputs)[alone.block_name]
    assert (alone.block_growth[rows] == GROWTHS.index("unknown")).all()


class Distances(Pairs):
    """B (B - 1) / 2 numbers: more than four times as many with twice the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return self.head(h) + nn.functional.pdist(h).square().mean()


def test_what_grows_otherwise_and_faster_than_the_batch_is_within_the_interval():
    torch.manual_seed(0)
    mine = trained(next_step(Distances(), (torch.randn(BATCH, 16), torch.arange(BATCH))))
    found = with_growth(recorded(mine), *plain_steps(mine, BATCH))
    assert (found.block_growth == GROWTHS.index("steep")).any()
    low, high = what_if(found, batch=128 * BATCH).peak_interval
    real = what_if(recorded(mine, batch=128 * BATCH)).outcome.peak_reserved
    assert low < real < high


def test_without_runs_only_what_a_model_holds_is_known():
    found = with_growth(recorded(step()))
    known = {CATEGORIES[kind] for kind in found.block_category[found.block_growth == 0]}
    assert known == {"parameters", "gradients", "optimizer"}
    activations = found.block_category == CATEGORIES.index("activations")
    assert (found.block_growth[activations] == GROWTHS.index("unknown")).all()


def test_runs_of_another_model_say_nothing():
    other = trained(next_step(nn.Linear(16, 10), (torch.randn(BATCH, 16), torch.arange(BATCH))))
    found = with_growth(recorded(step()), *plain_steps(other, BATCH))
    assert set(of_op(found, "aten.mm") + of_op(found, "aten.softmax")) <= {"unknown"}


def test_blocks_of_a_library_in_between_leave_the_rest_known():
    """As a CUDA library's workspaces do: operation, module and size are what is left to go by."""
    mine = step()
    record = recorded(mine)
    exact = with_growth(record, *plain_steps(mine, BATCH))
    row = int(np.flatnonzero(record.block_start >= 0)[0])
    strings = (*record.strings, "a workspace")
    op = record.block_op.copy()
    op[row] = len(strings) - 1
    found = with_growth(
        dataclasses.replace(record, strings=strings, block_op=op), *plain_steps(mine, BATCH)
    )
    assert found.block_growth[row] == GROWTHS.index("unknown")
    known = found.block_growth != GROWTHS.index("unknown")
    assert known.mean() > 0.6
    np.testing.assert_array_equal(found.block_growth[known], exact.block_growth[known])


def test_statistics_of_another_type_than_on_fake_tensors_are_known_all_the_same():
    """Batch norm of bfloat16 keeps statistics in float32, on fake tensors in bfloat16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 10))
    batch = torch.randn(BATCH, 3, 8, 8), torch.arange(BATCH)
    mine = next_step(trained(next_step(model, batch)).model, batch, modes="bf16")
    mine = dataclasses.replace(mine, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    record = run_copy(copy_of_step(mine, fake=False), title="norm")
    found = with_growth(record, *plain_steps(mine, BATCH))
    kinds = of_op(found, "aten.native_batch_norm")
    assert kinds == ["batch", "fixed", "fixed"]


def test_two_runs_that_do_not_match_say_nothing():
    mine = step()
    once, twice = plain_steps(mine, BATCH)
    assert (growth_between(once, once) == GROWTHS.index("unknown")).all(), "not twice the batch"
    assert (growth_between(twice, once) == GROWTHS.index("unknown")).all()
