"""What a GPU holds instead: each by its own arithmetic, on steps that were really recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.memory.step_copies import mlp, next_step
from workbench.memory import memory
from workbench.memory.prediction.fake_run import run_copy
from workbench.memory.prediction.step_copy import copy_of_step
from workbench.memory.prediction.substitutions import (
    CONVOLUTIONS,
    attention_scratch,
    blas_workspaces,
    boolean_masks,
    counters_on_host,
    has_op,
    lstm_reserves,
    lstm_workspaces,
    without_workspaces,
)
from workbench.records import CATEGORIES, MemoryRecord

FLOAT, BOOL = 4, 1
MIB = 2**20


def steps_of(model: nn.Module, *shape: int) -> MemoryRecord:
    torch.manual_seed(0)
    step = next_step(model, (torch.randn(shape), torch.arange(shape[0]) % 10))
    return run_copy(copy_of_step(step, fake=False), title="digits")


def checked(record: MemoryRecord) -> MemoryRecord:
    """A record that was changed is still one."""
    return MemoryRecord.from_bytes(record.to_bytes())


def made_by(record: MemoryRecord, op: str) -> list[int]:
    return [row for row, at in enumerate(record.block_op.tolist()) if record.strings[at] == op]


def names(record: MemoryRecord) -> list[str]:
    return [record.strings[row] for row in record.block_name.tolist()]


# -- dropout -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_mask_has_a_byte_for_each_element(dtype):
    x = torch.randn(64, 256, dtype=dtype, requires_grad=True)
    with memory() as mem:
        nn.functional.dropout(x, 0.5).sum().backward()
    (row,) = [row for row, name in enumerate(names(mem.record)) if name.endswith("dropout mask")]
    assert mem.record.block_bytes[row] == 64 * 256 * dtype.itemsize
    found = boolean_masks(mem.record)
    assert checked(found.record).block_bytes[row] == 64 * 256 * BOOL
    others = np.arange(len(mem.record.block_bytes)) != row
    np.testing.assert_array_equal(found.record.block_bytes[others], mem.record.block_bytes[others])
    assert found.what == ("1 dropout mask counted with a byte for each element, as CUDA has it.")


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: nn.functional.dropout(x, 0.5, inplace=True),
        lambda x: nn.functional.alpha_dropout(x, 0.5, training=True),
    ],
)
def test_what_has_no_fused_kernel_keeps_what_it_has(drop):
    x = torch.randn(64, 256, requires_grad=True)
    with memory() as mem:
        drop(x * 1).sum().backward()
    assert any(name.endswith("dropout noise") for name in names(mem.record))
    assert boolean_masks(mem.record).record is mem.record


def test_without_dropout_there_is_nothing_to_do():
    record = steps_of(nn.Linear(16, 10), 8, 16)
    for change in (boolean_masks, without_workspaces, lstm_reserves, attention_scratch):
        found = change(record)
        assert found.record is record
        assert found.what == ""


def test_drawing_into_a_tensor_of_ones_own_is_no_mask():
    with memory() as mem:
        torch.empty(64).bernoulli_(0.5)
    assert not any("mask" in name for name in names(mem.record))


# -- the optimizer ------------------------------------------------------------------------------


def test_step_counts_stay_on_the_host():
    step = mlp()
    record = run_copy(copy_of_step(step, fake=True), title="digits")
    found = counters_on_host(record)
    num_parameters = len(list(step.model.parameters()))
    assert len(record.block_bytes) - len(found.record.block_bytes) == num_parameters
    kept = checked(found.record).block_category == CATEGORIES.index("optimizer")
    moments = 2 * sum(p.numel() for p in step.model.parameters()) * FLOAT
    assert found.record.block_bytes[kept & (found.record.block_end < 0)].sum() == moments


# -- products -----------------------------------------------------------------------------------


def test_forward_and_backward_have_a_workspace_each_from_their_first_product_on():
    record = steps_of(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)), 8, 16)
    found = checked(blas_workspaces(record, 8 * MIB).record)
    rows = made_by(found, "cuBLAS workspace")
    assert found.block_bytes[rows].tolist() == [8 * MIB, 8 * MIB]
    assert (found.block_end[rows] == -1).all(), "they are never given back"
    product = min(record.block_start[made_by(record, "aten.addmm")])
    forward, backward = record.phases[0], record.phases[1]
    starts = found.block_start[rows].tolist()
    assert starts[0] == product
    assert forward.start <= starts[0] < forward.end
    assert backward.start <= starts[1] < backward.end
    rest = np.setdiff1d(np.arange(len(found.block_bytes)), rows)
    assert len(rest) == len(record.block_bytes)


def test_a_model_without_products_needs_no_workspace():
    record = steps_of(Scale(), 8, 10)
    assert blas_workspaces(record, 8 * MIB).record is record
    assert not has_op(record, CONVOLUTIONS)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


# -- LSTM ---------------------------------------------------------------------------------------


class Sequence(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, width, depth, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def test_an_lstm_keeps_four_gates_and_a_cell_state_of_every_step_until_its_backward():
    batch, length, width, depth = 4, 25, 32, 3
    record = steps_of(Sequence(width, depth), batch, length, 16)
    if not made_by(record, "aten.mkldnn_rnn_layer"):
        pytest.skip("this build of torch unrolls an LSTM on the CPU")
    found = checked(lstm_reserves(without_workspaces(record).record).record)
    rows = made_by(found, "cuDNN reserve space")
    each = 5 * batch * length * width * FLOAT
    assert found.block_bytes[rows].tolist() == [each] * depth * 2, "two steps were recorded"
    for row in rows:
        step = 0 if found.block_start[row] < record.phases[3].start else 3
        forward, backward = record.phases[step], record.phases[step + 1]
        assert forward.start <= found.block_start[row] < forward.end
        assert backward.start <= found.block_end[row] <= backward.end
    first = sorted(rows[:depth], key=lambda row: found.block_start[row])
    ends = [int(found.block_end[row]) for row in first]
    assert ends == sorted(ends, reverse=True), "the last layer's backward is the first"


def test_what_onednn_keeps_is_left_out():
    record = steps_of(Sequence(32, 2), 4, 25, 16)
    if not made_by(record, "aten.mkldnn_rnn_layer"):
        pytest.skip("this build of torch unrolls an LSTM on the CPU")
    rows = lstm_workspaces(record)
    assert len(rows) == 2 * 2
    found = checked(without_workspaces(record).record)
    calls = made_by(found, "aten.mkldnn_rnn_layer")
    assert sorted(set(found.block_bytes[calls].tolist())) == [
        4 * 32 * FLOAT, 4 * 25 * 32 * FLOAT,
    ]  # states and outputs  # fmt: skip


# -- attention ----------------------------------------------------------------------------------


def attention_of(*, num_queries: int, dtype: torch.dtype) -> MemoryRecord:
    q = torch.randn(2, 4, num_queries, 16, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(2, 4, 64, 16, dtype=dtype, requires_grad=True) for _ in range(2))
    with memory() as mem:
        nn.functional.scaled_dot_product_attention(q * 1, k * 1, v * 1).sum().backward()
    return mem.record


def test_attention_in_float32_has_no_sum_of_its_own():
    record = attention_of(num_queries=64, dtype=torch.float32)
    assert attention_scratch(record).record is record


@pytest.mark.parametrize("num_queries", [64, 32])
def test_the_sum_of_an_attentions_backward_lives_as_long_as_that_runs(num_queries):
    record = attention_of(num_queries=num_queries, dtype=torch.bfloat16)
    found = checked(attention_scratch(record).record)
    (row,) = made_by(found, "attention's scratch")
    assert found.block_bytes[row] == 2 * 4 * num_queries * 16 * FLOAT
    gradients: Any = made_by(found, "aten._scaled_dot_product_flash_attention_for_cpu_backward")
    assert found.block_start[row] == found.block_start[gradients].min()
    assert found.block_end[row] > found.block_start[gradients].max()
