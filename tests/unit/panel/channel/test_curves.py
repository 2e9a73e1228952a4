"""What a browser is sent of curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.panel.channel import curves
from workbench.panel.channel.channel import Client


def test_memory_is_sent_where_it_is_measured(tmp_path: Path) -> None:
    data = torch.randn(8, 4), torch.arange(8) % 2
    exp = Experiment(nn.Linear(4, 2), data, runs=tmp_path, device="cpu")
    client = Client("one", lambda *_: None)
    first = curves.update(client, exp)
    assert first is not None
    assert first[0]["names"] == list(curves.NAMES), "no metric of memory: none is mentioned"
    for step, value in ((1, 3.0), (2, 5.0)):
        exp.scalars.add("memory/resident", step, value)
        exp.scalars.flush()
        sent = curves.update(client, exp)
        assert sent is not None
        fields, (steps, values, average) = sent
        assert fields == {
            "names": ["memory/resident"],
            "from": [step - 1],
            "total": [step],
            "weight": [0.0],
            "reset": False,
        }
        assert average == b""
        assert np.frombuffer(steps, "<i4").tolist() == [step]
        assert np.frombuffer(values, "<f4").tolist() == [value]
    later = curves.update(Client("two", lambda *_: None), exp)
    assert later is not None
    assert later[0]["names"] == [*curves.NAMES, "memory/resident"]
    assert curves.update(client, exp) is None
    exp.close()


def test_a_long_curve_keeps_its_spikes_and_the_average_of_all_its_values(tmp_path: Path) -> None:
    data = torch.randn(8, 4), torch.arange(8) % 2
    exp = Experiment(nn.Linear(4, 2), data, runs=tmp_path, device="cpu")
    losses = np.where(np.arange(20_000) % 50 == 49, 9.0, 1.0)
    for step, loss in enumerate(losses.tolist(), 1):
        exp.scalars.add("train/loss", step, loss)
        exp.scalars.add("memory/resident", step, loss)
    exp.scalars.flush()
    sent = curves.update(Client("one", lambda *_: None), exp)
    assert sent is not None
    fields, buffers = sent
    at = fields["names"].index("train/loss")
    steps = np.frombuffer(buffers[3 * at], "<i4")
    values, average = (np.frombuffer(one, "<f4") for one in buffers[3 * at + 1 : 3 * at + 3])
    assert fields["total"][at] == 20_000
    assert fields["weight"][at] == 1.0
    assert len(steps) == len(values) == len(average) <= curves.MAX_POINTS
    assert np.count_nonzero(values == 9.0) == 400, "every spike of one step"
    assert values.tolist() == losses[steps - 1].tolist()
    assert average[steps % 50 == 48] == pytest.approx(1.0, abs=0.03), "the spikes are long past"
    at = fields["names"].index("memory/resident")
    steps = np.frombuffer(buffers[3 * at], "<i4")
    assert steps.tolist() == list(range(15_001, 20_001)), "of memory the newest, without a gap"
    exp.close()
