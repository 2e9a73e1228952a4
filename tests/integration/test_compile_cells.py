"""In a notebook, a graph break names its cell and line: a real kernel runs the cells."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.integration.cells import new_kernel, run

MODEL = """import torch
from torch import nn
import workbench as wb

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(self, x):
        h = self.body(x)
        if h.sum() > 0:
            h = h * 2
        return h.relu()

torch._inductor.config.compile_threads = 1
"""
RECORD = """with wb.compile_report() as report:
    torch.compile(Net())(torch.ones(4, 8))
"""
ASK = """import json
record = report.record
line = record.sources[record.breaks[0].source]
region = record.sources[record.regions[0].source]
html = report._repr_mimebundle_()[0]["text/html"]
print(json.dumps([line.cell, line.line, line.text, region.line, str(report), html]))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    with new_kernel() as client:
        yield client


def test_a_break_is_at_its_cell_and_line(kernel: BlockingKernelClient) -> None:
    for cell in (MODEL, RECORD):
        run(kernel, cell)
    cell, line, text, forward, said, html = json.loads(run(kernel, ASK))
    assert (cell, line, text) == (1, 12, "if h.sum() > 0:")
    assert forward == 10
    assert "Graph break at Cell [1], line 12: Data-dependent branching" in said
    assert "Net at Cell [1], line 10" in said
    assert "Cell [1], line 12" in html
