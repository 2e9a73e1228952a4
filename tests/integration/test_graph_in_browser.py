"""Damaged records in the browser: a sentence, never a blank page or a frozen tab."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import workbench as wb
from tests.benchmarks.graph_browser import AVAILABLE, GraphPage, graph_page
from workbench.records import GraphRecord

pytestmark = pytest.mark.skipif(
    not AVAILABLE, reason="needs Chromium (set CHROMIUM) and extensions/node_modules"
)


@pytest.fixture(scope="module")
def page() -> Iterator[GraphPage]:
    with graph_page() as found:
        found.load()
        yield found


@pytest.fixture(scope="module")
def record() -> GraphRecord:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with wb.graph(model):
        loss = model(torch.ones(2, 3)).sum()
    return wb.graph(loss).record


def test_every_beginning_of_a_file_is_refused(page: GraphPage, record: GraphRecord) -> None:
    data = record.to_bytes()
    assert page.open(data).error is None
    for end in (*range(64), *range(64, len(data), 97), len(data) - 1):
        error = page.open(data[:end]).error
        assert error is not None, f"{end} of {len(data)} bytes were taken for a record"
        assert "record" in error
    assert page.errors == []


def damaged(record: GraphRecord) -> dict[str, GraphRecord]:
    """Whole files that point in a circle, to nothing, or to each other."""
    nowhere = np.full_like(record.edge_from, 10**6)
    modules = list(record.modules)
    modules[0] = dataclasses.replace(modules[0], parent=len(modules) - 1)
    modules[-1] = dataclasses.replace(modules[-1], parent=0)
    return {
        "edges the wrong way": dataclasses.replace(
            record, edge_from=record.edge_to, edge_to=record.edge_from
        ),
        "edges in a circle": dataclasses.replace(
            record,
            edge_from=np.append(record.edge_from, record.root),
            edge_to=np.append(record.edge_to, 0),
            edge_bytes=np.append(record.edge_bytes, 4),
        ),
        "edges from nowhere": dataclasses.replace(record, edge_from=nowhere),
        "edges before the first": dataclasses.replace(record, edge_to=-1 - record.edge_to),
        "no such module": dataclasses.replace(record, node_module=record.node_module + 10**6),
        "no such text": dataclasses.replace(record, node_op=record.node_op + 10**6),
        "modules in a circle": dataclasses.replace(record, modules=tuple(modules)),
        "no such root": dataclasses.replace(record, root=10**6),
        "no such storage": dataclasses.replace(record, hold_storage=record.hold_storage + 10**6),
    }


def test_a_record_that_points_nowhere_freezes_nothing(page: GraphPage, record: GraphRecord) -> None:
    """Drawn or refused: an answer comes at once, and the next record is shown as before."""
    page.page.set_default_timeout(20_000)
    for name, broken in damaged(record).items():
        opened = page.open(broken.to_bytes())
        print(f"{name}: {opened.error or 'drawn'}")
        assert opened.pixels < 5_000, name
        assert opened.blocked < 2_000, name
        assert page.open(record.to_bytes()).error is None, name
    assert page.errors == []
