"""Damaged graph files: cut short, or whole but pointing where nothing is."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import workbench as wb
from workbench.records import NODE_KINDS, STORAGE_KINDS, GraphRecord, RecordError


@lru_cache
def whole() -> GraphRecord:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with wb.graph(model):
        loss = model(torch.ones(2, 3)).sum()
    return wb.graph(loss).record


def test_every_beginning_of_a_file_is_refused_in_one_sentence() -> None:
    data = whole().to_bytes()
    for end in range(len(data)):
        with pytest.raises(RecordError) as refused:
            GraphRecord.from_bytes(data[:end])
        assert "\n" not in str(refused.value)
    assert GraphRecord.from_bytes(data).nodes == whole().nodes


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = wb.graph(whole()).save(tmp_path / "step.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match=r"step\.safetensors"):
        wb.graph(path)


def pointing(**columns: np.ndarray) -> bytes:
    return dataclasses.replace(whole(), **columns).to_bytes()


def refused(data: bytes) -> str:
    with pytest.raises(RecordError) as error:
        GraphRecord.from_bytes(data)
    return str(error.value)


def test_a_graph_in_a_circle_is_refused() -> None:
    record = whole()
    message = refused(pointing(edge_from=record.edge_to, edge_to=record.edge_from))
    assert "edge" in message
    circle = np.append(record.edge_from, record.root), np.append(record.edge_to, 0)
    data = pointing(
        edge_from=circle[0], edge_to=circle[1], edge_bytes=np.append(record.edge_bytes, 4)
    )
    assert "edge" in refused(data)


POINTERS = {
    "edge_from": lambda record: len(record.node_type),
    "edge_to": lambda record: len(record.node_type),
    "node_type": lambda record: len(record.strings),
    "node_op": lambda record: len(record.strings),
    "node_shape": lambda record: len(record.strings),
    "node_dtype": lambda record: len(record.strings),
    "node_name": lambda record: len(record.strings),
    "node_kind": lambda _: len(NODE_KINDS),
    "node_module": lambda record: len(record.modules),
    "node_source": lambda record: len(record.sources),
    "hold_node": lambda record: len(record.node_type),
    "hold_storage": lambda record: len(record.storage_bytes),
    "hold_name": lambda record: len(record.strings),
    "hold_shape": lambda record: len(record.strings),
    "storage_kind": lambda _: len(STORAGE_KINDS),
}
"""Column -> how many things it may point to."""


@pytest.mark.parametrize("name", POINTERS)
def test_a_pointer_to_nothing_is_refused_by_name(name: str) -> None:
    record = whole()
    column = getattr(record, name)
    size = POINTERS[name](record)
    for row in (0, len(column) // 2, len(column) - 1):
        for value in (size, np.iinfo(column.dtype).max):
            broken = column.copy()
            broken[row] = value
            assert name in refused(pointing(**{name: broken}))


def test_columns_of_different_lengths_are_refused() -> None:
    record = whole()
    for name in ("node_op", "node_sequence", "edge_bytes", "node_gradient_norm", "storage_kind"):
        assert name in refused(pointing(**{name: getattr(record, name)[:-1]}))


def test_modules_in_a_circle_are_refused() -> None:
    modules = list(whole().modules)
    modules[0] = dataclasses.replace(modules[0], parent=len(modules) - 1)
    modules[-1] = dataclasses.replace(modules[-1], parent=0)
    assert "module" in refused(dataclasses.replace(whole(), modules=tuple(modules)).to_bytes())


def test_a_root_that_is_no_node_is_refused() -> None:
    assert "root" in refused(dataclasses.replace(whole(), root=10**6).to_bytes())
