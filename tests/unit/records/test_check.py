"""Every rule refuses what breaks it, in one sentence that names the place and what is valid."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from tests.unit.records.support import (
    gradient_flow,
    graph_diff,
    graph_record,
    memory_chart,
    memory_record,
)
from tests.unit.records.test_base import read_metadata, with_metadata
from workbench.records import GraphModule, Phase, Record, RecordError, read_record


def refused(record: Record, /, **changes: Any) -> str:
    with pytest.raises(RecordError) as error:
        read_record(dataclasses.replace(record, **changes).to_bytes())
    return str(error.value).partition(" record: ")[2]


def module(parent: int) -> GraphModule:
    return GraphModule(path="a", cls="A", parent=parent, forward_s=None)


@pytest.mark.parametrize(
    ("record", "changes", "sentence"),
    [
        (graph_record(), {"node_shape": [3, 7, 3]}, "node_shape[1] is 7, expected 0 to 6"),
        (graph_record(), {"node_source": [0, -2, 0]}, "node_source[1] is -2, expected -1 to 0"),
        (graph_record(), {"node_kind": [0, 0, 4]}, "node_kind[2] is 4, expected 0 to 3"),
        (graph_record(), {"root": -1}, "root is -1, expected 0 to 2, as node has 3"),
        (graph_record(), {"edge_to": [0, 2]}, "edge_to[0] is 0, expected more than its edge_from"),
        (graph_record(), {"hold_node": [1, 2, 1]}, "hold_node[2] is 1, expected no less"),
        (graph_record(), {"saved_bytes": -1}, "saved_bytes is -1, expected at least 0"),
        (
            graph_record(),
            {"modules": (module(-1), module(1))},
            "modules[1].parent is 1, expected a row before its own",
        ),
        (
            graph_record(),
            {"edge_bytes": [1, 2**53]},
            f"edge_bytes[1] is {2**53}, expected less than 2^53",
        ),
        (
            graph_record(),
            {"node_op": [0, 2]},
            "node_op has 2 entries, expected 3, as many as node_type",
        ),
        (graph_diff(), {"cause_source": 1}, "cause_source is 1, expected -1 to 0, as sources"),
        (graph_diff(), {"a": dataclasses.replace(graph_diff().a, root=9)}, "a.root is 9, expected"),
        (memory_record(), {"block_end": [-1, 0, -1]}, "block_end[1] is 0, expected more than its"),
        (
            memory_record(),
            {"phases": (Phase(name="forward", start=0, end=5),)},
            "phases[0].end is 5, expected 0 to 4, as event has 4",
        ),
        (memory_chart(), {"num_points": 3}, "bytes has 14 entries, expected 21 (num_points x 7)"),
        (gradient_flow(), {"norm": [1.0]}, "norm has 1 entries, expected 6 (rows x step)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_record_that_contradicts_itself_is_refused(
    record: Record, changes: dict[str, Any], sentence: str
) -> None:
    assert refused(record, **changes).startswith(sentence)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("title", 5, "title is 5, expected text"),
        ("title", "\ud800", "title holds half of a character"),
        ("root", "2", "root is '2', expected a whole number below 2^53"),
        ("root", 2**53, "root is 9007199254740992, expected a whole number below 2^53"),
        ("gradients", 1, "gradients is 1, expected true or false"),
        ("captured_at", "now", "captured_at is 'now', expected a number"),
        ("strings", {}, "strings is an object, expected a list"),
        ("strings", ["", 1], "strings[1] is 1, expected text"),
        ("modules", [{"path": "a"}], "modules[0].cls is missing"),
        ("non_finite", [], "non_finite is a list, expected an object"),
    ],
)
def test_a_plain_field_of_another_type_is_refused_by_its_place(
    field: str, value: object, sentence: str
) -> None:
    plain = json.loads(read_metadata(graph_record())["record"])
    data = with_metadata(graph_record(), record=json.dumps({**plain, field: value}))
    with pytest.raises(RecordError) as error:
        read_record(data)
    assert str(error.value).startswith(f"damaged workbench.graph/3 record: {sentence}")


def test_json_too_deep_to_read_is_refused() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(RecordError):
        read_record(with_metadata(graph_record(), record=deep))


def test_a_number_that_json_does_not_know_is_refused() -> None:
    text = read_metadata(graph_record())["record"].replace('"loss": null', '"loss": NaN')
    with pytest.raises(RecordError, match="NaN, which JSON does not know"):
        read_record(with_metadata(graph_record(), record=text))


def test_a_column_of_another_type_or_shape_is_refused() -> None:
    with pytest.raises(RecordError, match="the column node_state is missing"):
        read_record(with_metadata(graph_record(), schema="workbench.graph_diff/2"))
    from safetensors.numpy import load, save

    data = graph_record().to_bytes()
    for other, found in [
        (np.zeros(3, np.float32), r"float32 \[3\]"),
        (np.zeros((1, 3), np.int32), r"int32 \[1x3\]"),
    ]:
        columns = {**load(data), "node_op": other}
        again = save(columns, metadata=read_metadata(graph_record()))
        with pytest.raises(RecordError, match=rf"node_op is {found}, expected a column of int32"):
            read_record(again)


def test_a_name_that_is_no_text_is_written_as_one_that_is() -> None:
    record = dataclasses.replace(graph_record(), title="caf\udce9 \U0001f600 é")
    assert read_record(record.to_bytes()).title == "caf\ufffd \U0001f600 é"  # pyright: ignore
