"""What is open is read in every way that can be simulated, and said where it cannot."""

from __future__ import annotations

import torch
from torch import nn

from tests.unit.memory.prediction.test_substitutions import Sequence, steps_of
from workbench.allocator.simulator.gpus import Gpu, gpu_named
from workbench.memory.prediction import unknowns
from workbench.memory.prediction.unknowns import drafts_of, reasons_of
from workbench.records import MemoryRecord

MIB = 2**20
UNKNOWN = Gpu("my card", 16 * 2**30, "")


class Attentive(nn.Module):
    """Attends in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.layer = layer.bfloat16()
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x.bfloat16()).float().mean(1))


def total(record: MemoryRecord) -> int:
    return int(record.series().sum(axis=0).max())


def test_a_known_gpu_has_one_reading_of_its_workspaces():
    record = steps_of(nn.Linear(16, 10), 8, 16)
    (draft,), changes = drafts_of(record, gpu_named("RTX 4090"))
    assert any("8,519,680 B each" in sentence for sentence in changes)
    assert total(draft) > 2 * 8_519_680
    (hopper,), changes = drafts_of(record, gpu_named("H100 80 GB"))
    assert total(hopper) - total(draft) == 2 * (33_554_432 - 8_519_680)


def test_an_unknown_gpu_may_be_of_either_architecture():
    record = steps_of(nn.Linear(16, 10), 8, 16)
    small, large = drafts_of(record, UNKNOWN)[0]
    assert total(large) - total(small) == 2 * (33_554_432 - 8_519_680)
    assert unknowns.ARCHITECTURE in reasons_of(record, UNKNOWN)
    assert unknowns.ARCHITECTURE not in reasons_of(record, gpu_named("T4"))


def test_attention_is_read_with_and_without_the_kernels_sum():
    record = steps_of(Attentive(), 8, 12, 16)
    drafts, _ = drafts_of(record, gpu_named("T4"))
    assert len(drafts) == 2
    assert len(drafts[1].block_bytes) == len(drafts[0].block_bytes) + 2, "one in each step"
    assert len(drafts_of(record, UNKNOWN)[0]) == 4
    assert unknowns.ATTENTION in reasons_of(record, None)


def test_reasons_are_those_of_what_the_model_has():
    linear = reasons_of(steps_of(nn.Linear(16, 10), 8, 16), gpu_named("T4"))
    assert linear == (unknowns.NOT_CALIBRATED, unknowns.SCRATCH)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 10))
    assert unknowns.CONVOLUTION in reasons_of(steps_of(conv, 8, 3, 8, 8), gpu_named("T4"))
    lstm = steps_of(Sequence(8, 1), 4, 5, 16)
    if "aten.mkldnn_rnn_layer" in lstm.strings:
        assert unknowns.RESERVE in reasons_of(lstm, gpu_named("T4"))
    assert unknowns.AS_RECORDED in reasons_of(lstm, gpu_named("T4"), as_recorded=True)
