"""Gradient flow on a CUDA device: sampling never waits for it. Needs a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.loop import measures
from workbench.gradient_flow.log import FlowLog, gradient_flow

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_a_sample_waits_for_nothing_and_the_flush_reads_it() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 4)).cuda()
    model(torch.randn(8, 64, device="cuda")).square().sum().backward()
    log, parameters = FlowLog(), list(model.parameters())
    log.take(model, parameters, 1)
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        total = log.take(model, parameters, 2)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    flow = log.record(title="", model="", device="cuda", experiment=None)
    assert flow.notes == ()
    assert total is not None
    exact = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    assert float(total) == pytest.approx(float(exact), rel=1e-6)
    np.testing.assert_allclose(np.linalg.norm(flow.matrix()[:, 1]), float(exact), rtol=1e-5)


def test_an_overflow_in_fp16_is_shown_where_it_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "EVERY", 1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    data = torch.randn(512, 64) * 100, torch.arange(512) % 4
    exp = Experiment(model, data, modes="fp16", runs=tmp_path, device="cuda", clip_grad_norm=1.0)
    exp.run(steps=16, wait=True)
    norms = gradient_flow(exp).matrix()
    assert np.isfinite(norms[:, -1]).all()
    assert not np.isnan(norms).any()
    exp.close()
