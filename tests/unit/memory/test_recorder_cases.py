"""Steps of many kinds: the peak is the allocator's own, and every byte of it is told apart."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.models.accounts import profiled
from tests.models.memory_steps import STEPS, WIDTH, mlp, plain, ready
from workbench.experiment import Experiment
from workbench.memory import memory
from workbench.memory.reading.text import live_rows
from workbench.records import CATEGORIES, MemoryRecord

OUTSIDE_THE_DISPATCHER = {
    # torch saves the random state of every checkpointed region: 5,056 bytes each, made in C++ and
    # never read by an operation
    "reentrant_checkpointing": 3 * 5056,
    "checkpointing": 3 * 5056,
}
SCALAR = 8
"""Bytes of ``step.item()`` and the like: a scalar copied between two operations."""


def above_start(record: MemoryRecord) -> int:
    return record.peak_bytes - int(record.series()[:, 0].sum())


def share(record: MemoryRecord, category: str) -> float:
    return record.at_peak()[category] / record.peak_bytes


def nameless(record: MemoryRecord) -> list[tuple[str, str, int]]:
    """Blocks of the peak of which nobody could say what they are, or where they came from."""
    found = []
    for row in live_rows(record, record.peak_event).tolist():
        category = CATEGORIES[record.block_category[row]]
        name = record.strings[record.block_name[row]]
        placed = record.block_module[row] > 0 or record.block_source[row] >= 0
        is_state = category in ("parameters", "gradients", "optimizer", "buffers")
        if not (name or placed if is_state else placed):
            op = record.strings[record.block_op[row]]
            found.append((category, op, int(record.block_bytes[row])))
    return found


@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_the_peak_of_a_step_is_the_allocators_and_every_byte_of_it_is_told_apart(make):
    expected = profiled(lambda: ready(make)).without_scratch
    step = ready(make)
    with memory() as mem:
        step()
    unseen = OUTSIDE_THE_DISPATCHER.get(make.__name__, 0)
    assert expected - unseen - SCALAR <= above_start(mem.record) <= expected
    assert mem.record.notes == ()
    assert mem.record.at_peak()["unknown"] == 0
    missing = nameless(mem.record)
    if make.__name__ == "moving_average":  # of the averaged copy, torch shows its tensors alone
        missing = [row for row in missing if row[0] != "parameters"]
    assert missing == []


def test_the_state_of_an_optimizer_that_allocates_nothing_is_its_state():
    for name in ("fused_optimizer", "scaled_gradients"):
        step = ready(next(make for make in STEPS if make.__name__ == name))
        with memory() as mem:
            step()
        moments = 2 if name == "fused_optimizer" else 1
        parameters = mem.record.at_peak()["parameters"]
        assert mem.record.at_peak()["optimizer"] >= moments * parameters
        assert mem.record.at_peak()["buffers"] < parameters


def test_what_a_graph_of_a_gradient_holds_is_an_activation():
    step = ready(next(make for make in STEPS if make.__name__ == "gradient_penalty"))
    with memory() as mem:
        step()
    record = mem.record
    rows = np.flatnonzero(record.block_op == record.strings.index("aten.threshold_backward"))
    assert "activations" in {CATEGORIES[record.block_category[row]] for row in rows}


def test_gradients_that_were_asked_for_are_gradients():
    step = ready(next(make for make in STEPS if make.__name__ == "gradients_asked_for"))
    with memory() as mem:
        step()
    peak = mem.record.at_peak()
    assert peak["gradients"] == peak["parameters"]


def test_a_target_made_between_two_steps_is_an_input():
    model = mlp()
    with memory() as mem:
        y = torch.randint(0, 10, (64,))
        x = torch.randn(64, WIDTH) * 2
        loss = nn.functional.cross_entropy(model(x), y)  # noqa: F841 - lives to the end
    record = mem.record
    inputs = record.block_bytes[
        (record.block_category == CATEGORIES.index("buffers")) & (record.block_start >= 0)
    ]
    assert sorted(inputs.tolist()) == [64 * 8, 64 * WIDTH * 4]


def test_a_parameter_that_no_module_call_showed_is_named_by_its_place():
    weight = nn.Parameter(torch.randn(WIDTH, 10))
    optimizer = torch.optim.Adam([weight])
    x = torch.randn(32, WIDTH)
    with memory() as mem:
        (x @ weight).sum().backward()
        optimizer.step()
    names = set(mem.record.strings)
    assert {"param_groups[0][0]", "param_groups[0][0].grad", "param_groups[0][0].exp_avg"} <= names


def test_a_step_that_raises_midway_keeps_its_record_and_the_next_is_whole():
    model = mlp()
    step = plain(model)
    expected = whole = None
    for fails in (False, True, False):
        model.zero_grad()
        with memory() as mem:
            try:
                step() if not fails else nn.functional.cross_entropy(model(torch.randn(4, 3)), None)
            except RuntimeError:
                torch.ones(8)
        expected, whole = whole, above_start(mem.record)
    model.zero_grad()
    gc.collect()
    with memory() as mem:
        step()
    assert above_start(mem.record) == whole
    assert expected != whole


def test_workers_batches_are_inputs():
    model = mlp()
    x, y = torch.randn(64, WIDTH), torch.arange(64) % 10
    loader = DataLoader(
        TensorDataset(x, y), batch_size=32, num_workers=1, multiprocessing_context="spawn"
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = iter(loader)  # sends the data set to the worker: shared memory that is no batch
    with memory() as mem:
        for inputs, targets in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    assert share(mem.record, "unknown") == 0
    assert mem.record.at_peak()["buffers"] >= 32 * (WIDTH * 4 + 8)


def test_a_run_that_trains_on_its_own_thread_is_said_to_be_missing(tmp_path):
    experiment = Experiment(
        mlp(), (torch.randn(64, WIDTH), torch.arange(64) % 10), runs=tmp_path, name="digits"
    )
    with memory() as mem:
        experiment.run(steps=2, wait=True)
    (note,) = mem.record.notes
    assert "'digits' trained meanwhile" in note
    assert "wb.memory(experiment)" in note
    with memory() as mem:
        torch.ones(8)
    assert mem.record.notes == ()


def test_batch_and_activations_die_when_the_loop_lets_go_of_them():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    with memory() as mem:
        x = torch.randn(32, WIDTH)
        out = model(x)
        gone = [weakref.ref(tensor.untyped_storage()) for tensor in (x, out)]
        out.sum().backward()
        optimizer.step()
        del x, out
        assert [ref() for ref in gone] == [None, None]
    gone = [weakref.ref(model), weakref.ref(optimizer)]
    gone += [weakref.ref(state["exp_avg"]) for state in optimizer.state.values()]
    gone += [weakref.ref(parameter.grad) for parameter in model.parameters()]
    del model, optimizer
    gc.collect()
    assert {ref() for ref in gone} == {None}
    assert mem.record.peak_bytes > 0
