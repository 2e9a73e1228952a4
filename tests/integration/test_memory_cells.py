"""In a notebook, a block of memory names its cell and line: a real kernel runs the cells."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.integration.cells import new_kernel, run

MODEL = """import torch
from torch import nn
from workbench.memory import memory

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(self, x):
        return self.body(x).relu()

model = Net()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
"""
RECORD = """with memory() as mem:
    out = model(torch.ones(4, 8))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
"""
ASK = """
import json
record = mem.record
found = {}
for row in range(len(record.block_bytes)):
    source = record.block_source[row]
    if source >= 0:
        line = record.sources[source]
        found.setdefault(record.strings[record.block_op[row]], (line.cell, line.line, line.text))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    with new_kernel() as client:
        yield client


def test_blocks_name_the_cell_and_the_line_that_allocated_them(kernel: BlockingKernelClient):
    run(kernel, MODEL)
    run(kernel, RECORD)
    found = json.loads(run(kernel, ASK))
    forward = [1, 11, "return self.body(x).relu()"]
    assert found["aten.addmm"] == forward
    assert found["aten.relu"] == forward
    assert found["aten.threshold_backward"] == forward  # backward names the line of its forward
    assert found["aten.mean"] == [2, 3, "loss = out.square().mean()"]
    assert found["aten.ones_like"] == [2, 4, "loss.backward()"]
    assert found["aten.sqrt"] == [2, 5, "optimizer.step()"]


def test_a_cell_that_runs_again_has_its_new_number(kernel: BlockingKernelClient):
    run(kernel, MODEL)
    run(kernel, RECORD)
    first = json.loads(run(kernel, ASK))
    run(kernel, RECORD)
    again = json.loads(run(kernel, ASK))
    assert again["aten.relu"] == first["aten.relu"]
    assert again["aten.mean"][0] == first["aten.mean"][0] + 2
