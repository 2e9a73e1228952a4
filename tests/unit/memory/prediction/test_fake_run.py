"""Steps of a copy, recorded: on fake tensors the same blocks as on real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.memory.step_copies import mlp, next_step
from workbench.memory.prediction.fake_run import run_copy
from workbench.memory.prediction.step_copy import StepCopyError, copy_of_step
from workbench.records import CATEGORIES, MemoryRecord

GIB = 2**30


def record_of(step: Any, **options: Any) -> MemoryRecord:
    fake = options.pop("fake", True)
    return run_copy(copy_of_step(step, fake=fake, **options), title="digits, step 3")


def blocks(record: MemoryRecord) -> list[tuple[str, str, str, int]]:
    rows = zip(
        record.block_op, record.block_module, record.block_category, record.block_bytes,
        strict=True,
    )  # fmt: skip
    strings = record.strings
    return [(strings[op], strings[at], CATEGORIES[kind], int(size)) for op, at, kind, size in rows]


def test_fake_tensors_and_real_ones_make_the_same_record():
    step = mlp()
    fake, real = record_of(step), record_of(step, fake=False)
    assert blocks(fake) == blocks(real)
    assert fake.block_start.tolist() == real.block_start.tolist()
    assert fake.block_end.tolist() == real.block_end.tolist()
    assert (fake.peak_bytes, fake.batch_size, fake.device) == (real.peak_bytes, 8, "cpu")


def test_two_steps_are_recorded_the_first_makes_the_optimizers_state():
    record = record_of(mlp())
    assert [phase.name for phase in record.phases] == ["forward", "backward", "optimizer"] * 2
    optimizer = record.series()[CATEGORIES.index("optimizer")]
    num_weights = 16 * 32 + 32 + 32 * 10 + 10
    assert optimizer[record.phases[0].end] == 0
    assert optimizer[record.phases[2].end] == 2 * num_weights * 4 + 4 * 4
    assert optimizer[-1] == optimizer[record.phases[2].end]


def test_every_byte_has_a_category():
    record = record_of(mlp())
    unknown = record.block_category == CATEGORIES.index("unknown")
    assert not record.block_bytes[unknown].any()
    activations = record.series()[CATEGORIES.index("activations")]
    assert activations[record.phases[0].end] >= 8 * 32 * 4 + 8 * 10 * 4


def test_it_takes_no_memory_however_large_the_batch():
    record = record_of(mlp(), batch=2**27)
    assert record.peak_bytes > 16 * GIB
    assert record.batch_size == 2**27


def test_gradients_are_clipped_where_the_training_clips_them():
    plain = mlp()
    step = next_step(plain.model, plain.batch, clip_grad_norm=1.0)
    ops = {op for op, *_ in blocks(record_of(step))}
    assert "aten.linalg_vector_norm" in ops
    assert "aten.linalg_vector_norm" not in {op for op, *_ in blocks(record_of(plain))}


class Choosy(nn.Module):
    """Goes one way or another, by what its values are."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(16, 10), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) if x.mean() > 0 else self.other(x)


def test_control_flow_that_depends_on_values_needs_real_tensors():
    torch.manual_seed(0)
    step = next_step(Choosy(), (torch.randn(8, 16), torch.arange(8)))
    with pytest.raises(StepCopyError, match=r"the step cannot be run .*DataDependent"):
        record_of(step)
    assert record_of(step, fake=False).peak_bytes > 0


def test_a_fault_of_the_model_is_said_in_one_line():
    step = mlp()
    step = next_step(step.model, (torch.randn(8, 15), torch.arange(8)))
    with pytest.raises(StepCopyError) as caught:
        record_of(step)
    assert "RuntimeError" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_left_behind_on_the_thread():
    record_of(mlp())
    assert torch.ones(2).sum().item() == 2
    with pytest.raises(StepCopyError):
        record_of(next_step(Choosy(), (torch.randn(8, 16), torch.arange(8))))
    assert torch.ones(2).sum().item() == 2
    assert torch.is_grad_enabled()
