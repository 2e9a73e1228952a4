"""Which curves a browser is sent: what there is of memory, and nothing of what there is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.panel import curves
from workbench.panel.channel import Client


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
        fields, (steps, values) = sent
        assert fields == {
            "names": ["memory/resident"], "from": [step - 1], "total": [step], "reset": False
        }  # fmt: skip
        assert np.frombuffer(steps, "<i4").tolist() == [step]
        assert np.frombuffer(values, "<f4").tolist() == [value]
    later = curves.update(Client("two", lambda *_: None), exp)
    assert later is not None
    assert later[0]["names"] == [*curves.NAMES, "memory/resident"]
    assert curves.update(client, exp) is None
    exp.close()
