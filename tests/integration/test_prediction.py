"""Predictions of whole models against recordings, and against arithmetic that is not ours.

What a copy on fake tensors allocates must be what a step really allocates; a batch that is worked
out must be what a step of that batch really allocates; and what a GPU does differently must come to
what the shapes say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.integration.test_memory_models import bert, convnet, lstm, resnet, transformer
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.experiment import Experiment
from workbench.experiment.runtime.step_boundary import between_steps
from workbench.memory import memory
from workbench.memory.prediction.fake_run import run_copy
from workbench.memory.prediction.step_copy import copy_of_step
from workbench.memory.prediction.substitutions import lstm_workspaces
from workbench.memory.reading.recorded_program import lifetimes_of_record
from workbench.memory.reading.text import describe
from workbench.memory.simulation.batch_scaling import assumptions
from workbench.records import CATEGORIES, GROWTHS, MemoryRecord

Make = Callable[[], tuple[nn.Module, torch.Tensor]]
MODELS = [convnet, resnet, transformer, lstm, bert]
FLOAT = 4
MIB = 2**20


def experiment(
    make: Make, folder: Path, *, batch: int | None = None, modes: str = ""
) -> Experiment:
    """An experiment that has done two steps, so that nothing is made for the first time."""
    torch.manual_seed(0)
    model, x = make()
    size = batch or len(x)
    x = x.repeat(-(-3 * size // len(x)), *[1] * (x.dim() - 1))
    exp = Experiment(
        model,
        (x, torch.arange(len(x)) % 10),
        batch_size=size,
        optimizer=torch.optim.AdamW(model.parameters()),
        runs=folder,
        modes=modes,
    )
    exp.run(steps=2, wait=True)
    return exp


def recorded(make: Make, folder: Path, **options: object) -> MemoryRecord:
    exp = experiment(make, folder, **options)
    record = memory(exp).record
    exp.close()
    return record


def made(record: MemoryRecord) -> list[tuple[str, int]]:
    """Operation and size of every block that a step made, in order; oneDNN's workspaces apart."""
    rows = np.flatnonzero(record.block_start >= 0)
    rows = np.setdiff1d(rows, lstm_workspaces(record))
    rows = rows[np.argsort(record.block_start[rows])]
    return [
        (record.strings[record.block_op[row]], int(record.block_requested[row]))
        for row in rows.tolist()
    ]


def without_mixed_up(blocks: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Without the gradients of an LSTM layer.

    What torch says of their shapes on fake tensors has a bias and a state in each other's place.
    """
    mixed_up = ("aten.mkldnn_rnn_layer_backward", "aten.new_empty_strided")
    return [(op, size) for op, size in blocks if op not in mixed_up]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_copy_on_fake_tensors_allocates_what_the_step_does(make, tmp_path):
    exp = experiment(make, tmp_path)
    fake = between_steps(
        exp, lambda step: run_copy(copy_of_step(step, fake=True), title="fake", num_steps=1)
    )
    record = memory(exp).record
    exp.close()
    assert without_mixed_up(made(fake)) == without_mixed_up(made(record))
    activations = CATEGORIES.index("activations")
    left_out = int(record.block_bytes[lstm_workspaces(record)].sum())
    kept = [int(found.series()[activations, found.phases[0].end]) for found in (fake, record)]
    assert kept[0] == kept[1] - left_out > 0


def computes_in_bf16(make: Make) -> bool:
    """Whether plain PyTorch does: oneDNN has an LSTM in bfloat16 for some CPUs alone."""
    model, x = make()
    try:
        with torch.autocast("cpu", torch.bfloat16):
            model(x)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("modes", ["", "bf16", "checkpoint"])
@pytest.mark.parametrize("make", [convnet, transformer, lstm], ids=lambda make: make.__name__)
def test_twice_the_batch_is_what_a_step_of_twice_the_batch_really_allocates(make, modes, tmp_path):
    if modes == "bf16" and not computes_in_bf16(make):
        pytest.skip(f"torch cannot compute {make.__name__} in bfloat16 on this CPU")
    record = recorded(make, tmp_path / "once", modes=modes)
    size = record.batch_size
    twice = recorded(make, tmp_path / "twice", batch=2 * size, modes=modes)
    assert twice.batch_size == 2 * size
    found = assumptions(record, lifetimes_of_record(record, with_refused=False), 2 * size)
    workspaces = lstm_workspaces(record)
    assert len(found) == (2 if workspaces else 1), "nothing but oneDNN's workspaces is open"
    grown = found[-1].requested.copy()
    if workspaces:
        unknown = np.flatnonzero(record.block_growth == GROWTHS.index("unknown")).tolist()
        assert unknown == workspaces
    rows = np.setdiff1d(np.arange(len(grown)), workspaces)
    others = np.setdiff1d(np.arange(len(twice.block_bytes)), lstm_workspaces(twice))
    assert sorted(grown[rows].tolist()) == sorted(twice.block_requested[others].tolist())
    mine = [
        (name, int(grown[row])) for name, row in zip(names(record), range(len(grown)), strict=True)
    ]
    theirs = list(zip(names(twice), twice.block_requested.tolist(), strict=True))
    assert [mine[row] for row in rows] == [theirs[row] for row in others]


def names(record: MemoryRecord) -> list[str]:
    return [record.strings[row] for row in record.block_op.tolist()]


@pytest.mark.parametrize("make", [convnet, transformer, lstm], ids=lambda make: make.__name__)
def test_the_peak_of_another_batch_is_that_of_a_real_recording_of_it(make, tmp_path):
    """On a simulated card, of the sizes that were worked out and of those really recorded."""
    record = recorded(make, tmp_path / "once")
    twice = recorded(make, tmp_path / "twice", batch=2 * record.batch_size)
    worked_out = memory(record, batch=2 * record.batch_size, card="T4").record
    real = memory(twice, card="T4").record
    assert worked_out.peak_interval == real.peak_interval
    assert worked_out.peak_bytes == real.peak_bytes


# -- what a GPU does differently, by the shapes alone --------------------------------------------

BATCH, LENGTH, WIDTH, HEADS, INNER, LAYERS = 16, 32, 64, 4, 256, 2


def test_a_transformer_keeps_no_probabilities_and_masks_of_one_byte(tmp_path):
    """The shapes are those of ``transformer`` above; a layer drops out three times by itself."""
    exp = experiment(transformer, tmp_path)
    plain, predicted = memory(exp).record, memory(exp, card="RTX 4090").record
    exp.close()
    scores = BATCH * HEADS * LENGTH * LENGTH * FLOAT
    assert scores in [size for _, size in made(plain)]
    masks = [size for op, size in made(predicted) if op == "aten.native_dropout"]
    one = BATCH * LENGTH * WIDTH
    inner = BATCH * LENGTH * INNER
    assert sorted(masks) == sorted(
        LAYERS * [one, one * FLOAT, one, one * FLOAT, inner, inner * FLOAT]
    )
    kept = [size for op, size in made(predicted) if op.startswith("aten._scaled_dot_product")]
    sums = BATCH * HEADS * LENGTH * FLOAT
    assert sorted(kept[: 2 * LAYERS]) == LAYERS * [sums] + LAYERS * [one * FLOAT]


def test_foreach_holds_one_more_copy_of_the_parameters_in_the_step(tmp_path):
    exp = experiment(transformer, tmp_path)
    num_bytes = sum(p.numel() * FLOAT for p in exp.model.parameters())
    predicted = memory(exp, card="RTX 4090").record
    exp.close()
    phase = predicted.phases[2]
    inside = (predicted.block_start >= phase.start) & (predicted.block_start < phase.end)
    root = np.array([name == "aten._foreach_sqrt" for name in names(predicted)])
    assert predicted.block_requested[inside & root].sum() == num_bytes


@pytest.mark.parametrize(
    ("card", "num_bytes"),
    [("T4", (2 * 4096 + 8 * 16) * 1024), ("A100 80 GB", (2 * 4096 + 8 * 16) * 1024),
     ("H100 80 GB", 32 * MIB)],
)  # fmt: skip
def test_workspaces_are_pytorchs_defaults_for_the_architecture(card, num_bytes, tmp_path):
    """``:4096:2:16:8`` KiB, and 32 MiB on Hopper: ``CublasHandlePool.cpp``."""
    exp = experiment(convnet, tmp_path)
    predicted = memory(exp, card=card).record
    exp.close()
    rows = [row for row, name in enumerate(names(predicted)) if name == "cuBLAS workspace"]
    assert predicted.block_requested[rows].tolist() == [num_bytes] * 2
    assert (predicted.block_start[rows] == -1).all(), "there since the first step"
    assert (predicted.block_end[rows] == -1).all()


def test_under_autocast_softmax_is_kept_in_float32(tmp_path):
    """Attention as models write it by hand: its probabilities are 4 bytes each on CUDA."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.head(((q @ k.mT).softmax(-1) @ v).mean(1))

    def make() -> tuple[nn.Module, torch.Tensor]:
        return Attention(), torch.randn(BATCH, LENGTH, WIDTH)

    exp = experiment(make, tmp_path, modes="bf16")
    plain, predicted = memory(exp).record, memory(exp, card="RTX 4090").record
    exp.close()
    scores = BATCH * LENGTH * LENGTH

    def sizes(record: MemoryRecord) -> set[int]:
        return {size for op, size in made(record) if op == "aten._softmax"}

    assert sizes(plain) == {scores * 2}
    assert sizes(predicted) == {scores * FLOAT}


# -- what cannot be run on fake tensors, or does not fit ------------------------------------------


class Masked(nn.Module):
    """As transformers do: the mask is left out where nothing is masked, which values decide."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(WIDTH, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        padding = ids == 0
        mask = padding if padding.any() else None
        return self.head(self.encoder(self.embed(ids), src_key_padding_mask=mask).mean(1))


def test_control_flow_by_values_is_run_for_real_on_a_copy(tmp_path):
    def make() -> tuple[nn.Module, torch.Tensor]:
        return Masked(), torch.randint(1, 100, (BATCH, LENGTH))

    exp = experiment(make, tmp_path)
    before = [p.detach().clone() for p in exp.model.parameters()]
    view = memory(exp, card="RTX 4090")
    assert all(map(torch.equal, before, exp.model.parameters()))
    exp.close()
    assert "Run for real on a copy" in str(view)
    assert view.record.peak_interval[0] > 0
    assert any(op == "aten.native_dropout" for op in names(view.record)), (
        "as CUDA would all the same"
    )


def test_a_model_too_large_for_the_card_says_what_was_refused(tmp_path):
    exp = experiment(convnet, tmp_path)
    view = memory(exp, card=CONTEXT_BYTES + 60 * MIB, batch=128)
    exp.close()
    record = view.record
    assert len(record.oom_event) == 1
    assert record.oom_bytes[0] > record.oom_largest[0]
    assert "out of memory" in describe(record).lower()
    assert len(record.obstacle_block) > 0


def test_predicting_needs_no_memory_of_its_own(tmp_path):
    """A batch of a million images asks a card for 750 GiB, and this machine for nothing."""
    exp = experiment(convnet, tmp_path)
    record = memory(exp, batch=2**20).record
    exp.close()
    assert record.peak_bytes > 2**39
    assert len(record.oom_event) == 0, "no card, no limit"
