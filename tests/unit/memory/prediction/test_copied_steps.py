"""Two steps the way CUDA would run them: on fake tensors, and for real where those will not do."""

from __future__ import annotations

import psutil
import pytest
import torch
from torch import nn

from tests.unit.memory.prediction.test_fake_run import Choosy
from tests.unit.memory.step_copies import mlp, next_step
from workbench.memory.prediction import copied_steps as module
from workbench.memory.prediction.copied_steps import EAGER, UNROLLED, copied_steps, plain_steps
from workbench.memory.prediction.step_copy import StepCopyError
from workbench.records import GROWTHS
from workbench.torch_private.memory import is_fake


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 10))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 16), torch.arange(8)


def test_what_ran_another_way_is_said():
    found = copied_steps(next_step(dropping(), batch()))
    assert found.what == "a copy on fake tensors"
    assert found.changes == (
        "Dropout keeps masks of booleans.",
        "The optimizer works on lists of tensors (foreach).",
    )
    plain = copied_steps(mlp())
    assert plain.changes == ("The optimizer works on lists of tensors (foreach).",)
    assert plain.reasons == ()


def test_the_list_that_foreach_makes_lives_at_once():
    """AdamW divides by the roots of all second moments: one more copy of the parameters."""
    step = mlp(512)
    num_bytes = sum(p.numel() for p in step.model.parameters()) * 4
    record = copied_steps(step).record
    totals, phase = record.series().sum(axis=0), record.phases[5]
    above = totals[phase.start + 1 : phase.end].max() - totals[phase.end]
    assert num_bytes <= above < 1.1 * num_bytes
    told = next_step(step.model, step.batch, optimizer=torch.optim.AdamW(
        step.model.parameters(), foreach=False
    ))  # fmt: skip
    record = copied_steps(told).record
    totals, phase = record.series().sum(axis=0), record.phases[5]
    largest = 512 * 16 * 4
    above = totals[phase.start + 1 : phase.end].max() - totals[phase.end]
    assert above < 2.1 * largest, "a root and a quotient of one parameter after another"


def test_the_batch_can_be_chosen_and_growth_is_known():
    record = copied_steps(mlp(), batch=20).record
    assert record.batch_size == 20
    assert {GROWTHS[kind] for kind in record.block_growth} == {"fixed", "batch"}


def test_a_model_that_looks_at_values_is_run_for_real_and_that_is_a_reason():
    torch.manual_seed(0)
    found = copied_steps(next_step(Choosy(), batch()))
    assert found.what == "a copy"
    assert found.record.peak_bytes > 0
    assert "Run for real on a copy" in found.reasons[-1]
    assert "DataDependent" in found.reasons[-1]
    with pytest.raises(StepCopyError):
        copied_steps(next_step(Choosy(), batch()), fake=True)


def test_a_real_copy_that_would_not_fit_is_not_made(monkeypatch):
    step = next_step(Choosy(), batch())
    size = 4 * sum(p.numel() * 4 for p in step.model.parameters())
    little = psutil.virtual_memory()._replace(available=size)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: little)
    with pytest.raises(StepCopyError, match=r"more than half of the .* that are free"):
        copied_steps(step)


class Broad(Choosy):
    """Activations that are much larger than its weights and its input."""

    largest = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not is_fake(type(x)):
            Broad.largest = max(Broad.largest, len(x))
        many = x.repeat(1, 64)
        return super().forward((many * many).reshape(-1, 64, 16).mean(1))


@pytest.mark.parametrize(("size", "ran"), [(8, 8), (16, 16), (1_000, 8), (10**6, 0)])
def test_a_real_copy_takes_no_batch_that_would_not_fit(monkeypatch, size, ran):
    monkeypatch.setattr(Broad, "largest", 0)
    little = psutil.virtual_memory()._replace(available=2 * 2**20)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: little)
    step = next_step(Broad(), batch())
    if ran == size:
        assert copied_steps(step, batch=size).record.batch_size == size
    else:
        with pytest.raises(StepCopyError, match=r"more than half of the .* that are free"):
            copied_steps(step, batch=size)
    assert Broad.largest == ran, "what does not fit is not run"


def test_a_layer_that_is_one_kernel_on_a_gpu_is_a_reason():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.head = nn.GRU(16, 8, batch_first=True), nn.Linear(8, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.gru(x[:, None])[0][:, 0])

    assert UNROLLED in copied_steps(next_step(Recurrent(), batch())).reasons


def test_compiled_code_is_predicted_as_written_and_that_is_a_reason():
    found = copied_steps(next_step(dropping(), batch(), modes="compile"))
    assert EAGER in found.reasons


def test_two_plain_steps_have_the_batch_and_twice_that():
    once, twice = plain_steps(mlp(), 8)
    assert (once.batch_size, twice.batch_size) == (8, 16)
    assert len(once.phases) == 6, "the optimizer had no state yet"
    with pytest.raises(StepCopyError, match="cannot be run"):
        plain_steps(next_step(Choosy(), batch()), 8)
    with pytest.raises((StepCopyError, ValueError)):
        plain_steps(mlp(), 0)
