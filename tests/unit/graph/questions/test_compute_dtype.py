"""In which type operations compute, read off the graph: the browser's twin, and real captures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.questions.compute_dtype import computed_in, count_types, types_line
from workbench.graph.render.dot import graph_dot
from workbench.records import GraphRecord

FIXTURE = Path(__file__).parents[4] / "extensions/views/test/fixtures/graph-dtypes.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.LayerNorm(36)
        self.head = nn.Linear(36 * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(torch.relu(self.conv(x)).flatten(2)).flatten(1))


def captured(modes: str) -> GraphRecord:
    torch.manual_seed(0)
    model, x, y = Net(), torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    prepared = wb.Modes(modes)
    prepared.prepare(model)
    with wb.graph(model) as graph, prepared.forward():
        graph_loss = F.cross_entropy(model(x), y)
        graph_loss.backward()
    return graph.record


def by_call(record: GraphRecord) -> dict[str, str]:
    names = [record.strings[index] for index in record.node_op.tolist()]
    return dict(zip(names, computed_in(record), strict=True))


@pytest.mark.parametrize("case", CASES, ids=[case["title"] for case in CASES])
def test_the_browser_and_python_read_the_same(case: dict[str, Any]) -> None:
    nodes = case["nodes"]
    strings = ("", *(node["type"] for node in nodes), *(node["dtype"] for node in nodes))
    size = len(nodes)
    edges = [(maker, row) for row, node in enumerate(nodes) for maker in node["inputs"]]
    plain = captured("")
    zeros = [0] * size
    columns = {
        name: [] if name.startswith(("hold_", "bin_", "inner_", "link_", "storage_")) else zeros
        for name in plain.__dataclass_fields__
        if isinstance(getattr(plain, name), type(plain.node_op))
    }
    columns |= {
        "node_type": range(1, size + 1),
        "node_dtype": range(size + 1, 2 * size + 1),
        "node_kind": [1 if node["type"] == "AccumulateGrad" else 0 for node in nodes],
        "node_call": [7 if row in case["rows"] else 8 + row for row in range(size)],
        "edge_from": [maker for maker, _ in edges],
        "edge_to": [user for _, user in edges],
        "edge_bytes": [0] * len(edges),
    }
    record = replace(plain, strings=strings, root=size - 1, branches=(), **columns)
    assert [computed_in(record)[row] for row in case["rows"]] == [case["computed"]] * len(
        case["rows"]
    )


def test_under_bf16_products_are_bf16_and_a_norm_takes_two_types() -> None:
    found = by_call(captured("bf16"))
    assert found["conv2d"] == found["linear"] == found["relu"] == "bfloat16"
    assert found["layer_norm"] == "bfloat16 + float32"
    assert found["cross_entropy"] == "float32"


def test_without_autocast_all_is_float32_and_nothing_is_said() -> None:
    record = captured("")
    assert [computed for computed, _ in count_types(record)] == ["float32"]
    assert types_line(record) == ""
    assert "#a8d5a2" not in graph_dot(record)


def test_static_forms_name_the_types() -> None:
    record = captured("bf16")
    assert types_line(record).startswith("Computed in bf16 (")
    assert "bf16+fp32" in types_line(record)
    dot = graph_dot(record)
    assert "computed in bf16+fp32" in dot
    assert 'fillcolor="#a8d5a2"' in dot
    assert "Computed in bf16" in str(wb.graph(record))


def test_a_function_in_python_is_unknown() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grad: torch.Tensor) -> torch.Tensor:
            return grad[0] * 2

    weight = nn.Parameter(torch.ones(3))
    record = wb.graph(Twice.apply(weight).sum()).record
    types = [record.strings[index] for index in record.node_type.tolist()]
    assert computed_in(record)[types.index("TwiceBackward")] == ""
    assert ("", 1) in count_types(record)
