"""The recorded programs themselves, as far as they run without a GPU."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.programs import BACKBONES, PROGRAMS
from tests.gpu.test_replay_cuda import NOT_MODELLED, SETTINGS
from workbench.memory import memory


@pytest.mark.parametrize("name", list(BACKBONES))
def test_a_backbone_trains(name: str) -> None:
    torch.manual_seed(0)
    step = BACKBONES[name]("cpu")
    step()
    with memory() as mem:
        step()
    assert mem.record.peak_bytes > 2**24, "large enough that blocks of both pools come and go"
    assert [phase.name for phase in mem.record.phases] == ["forward", "backward", "optimizer"]


def test_settings_are_tried_with_programs_that_there_are() -> None:
    assert {name for names in SETTINGS.values() for name in names} == set(PROGRAMS)
    assert set(NOT_MODELLED) <= set(PROGRAMS)
