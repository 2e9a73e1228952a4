"""A run that goes on in NCCL ranks on this machine's GPU and comes back. Needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.parallel.support import losses, made, moments, until, until_reported
from workbench.modes.layout.layout import Layout
from workbench.parallel.session.session import Session

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("layout", ["ddp:1", "fsdp:1", "fsdp:1,keep", "fsdp:1,offload"])
def test_a_run_on_gpu_ranks_is_the_run_that_stayed(layout: str, tmp_path: Path) -> None:
    ours = made(tmp_path, device="cuda", optimizer="adamw")
    ours.run(steps=5, wait=True)
    training = ours._training
    training.random.restore()
    session = Session.send(training, tmp_path / "parallel", Layout.parse(layout), until(25))
    try:
        until_reported(session, "end", [])
        session.bring_back(training)
    finally:
        session.close()
    training.random.save()
    ours.run(steps=10, wait=True)
    stayed = made(tmp_path, device="cuda", optimizer="adamw")
    stayed.run(steps=35, wait=True)
    assert {parameter.device.type for parameter in ours.model.parameters()} == {"cuda"}
    torch.testing.assert_close(losses(ours)[-10:], losses(stayed)[-10:], rtol=1e-5, atol=0)
    torch.testing.assert_close(moments(ours), moments(stayed), rtol=1e-3, atol=1e-5)
