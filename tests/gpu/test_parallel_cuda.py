"""A run that goes away to NCCL ranks on this machine's GPU and comes home. Needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.parallel.support import losses, made, moments, until, until_told
from workbench.modes.layout.layout import Layout
from workbench.parallel.session.session import Away

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("layout", ["ddp:1", "fsdp:1", "fsdp:1,keep", "fsdp:1,offload"])
def test_a_run_that_was_away_on_the_gpu_is_the_run_that_stayed(layout: str, tmp_path: Path) -> None:
    home = made(tmp_path, device="cuda", optimizer="adamw")
    home.run(steps=5, wait=True)
    training = home._training
    training.random.restore()
    away = Away.send(training, tmp_path / "away", Layout.parse(layout), until(25))
    try:
        until_told(away, "end", [])
        away.come_home(training)
    finally:
        away.close()
    training.random.save()
    home.run(steps=10, wait=True)
    stayed = made(tmp_path, device="cuda", optimizer="adamw")
    stayed.run(steps=35, wait=True)
    assert {parameter.device.type for parameter in home.model.parameters()} == {"cuda"}
    torch.testing.assert_close(losses(home)[-10:], losses(stayed)[-10:], rtol=1e-5, atol=0)
    torch.testing.assert_close(moments(home), moments(stayed), rtol=1e-3, atol=1e-5)
