"""Aligning two graphs, for graphs nobody thought of."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.graph.diff.align import align
from workbench.graph.diff.diff import ADDED, REMOVED, diff_records
from workbench.graph.diff.lcs import common_subsequence, increasing
from workbench.records import GraphModule, GraphRecord, SourceLine

PATHS = ("", "a", "a.x", "b")
tokens = st.lists(st.integers(0, 4), max_size=40)

calls = st.lists(
    st.tuples(
        st.integers(0, len(PATHS) - 1),
        st.sampled_from(("add", "mul", "relu")),
        st.integers(1, 6),
        st.lists(st.integers(1, 5), min_size=1, max_size=2),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=30,
)
"""Calls in forward order: module, operation, line, how far back its inputs are, output size."""


def graph_of(program) -> GraphRecord:
    """The graph of a program: each call takes results of calls before it."""
    strings = ["", *sorted({op for _, op, *_ in program}), "1", "2", "3", "float32"]
    size = len(program)
    edges = sorted(
        {(row - back, row) for row, call in enumerate(program) for back in call[3] if back <= row},
        key=lambda edge: edge[::-1],
    )
    ops = [strings.index(op) for _, op, *_ in program]
    zeros, unknown = np.zeros(size), np.full(size, np.nan)
    return GraphRecord(
        title="program",
        model="Program",
        experiment=None,
        step=None,
        loss=None,
        device="cpu",
        torch_version="2.13.0",
        captured_at=0.0,
        notes=(),
        strings=tuple(strings),
        modules=tuple(
            GraphModule(path=path, cls="Module", parent=parent, forward_s=None)
            for path, parent in zip(PATHS, (-1, 0, 1, 0), strict=True)
        ),
        sources=tuple(SourceLine(filename="f.py", line=n, text=f"line {n}") for n in range(7)),
        node_type=ops,
        node_op=ops,
        node_kind=zeros,
        node_module=[module for module, *_ in program],
        node_call=np.arange(size),
        node_sequence=np.arange(size),
        node_shape=[strings.index(str(call[4])) for call in program],
        node_dtype=np.full(size, len(strings) - 1),
        node_output_bytes=[4 * call[4] for call in program],
        node_name=zeros,
        node_source=[line for _, _, line, *_ in program],
        node_saved_bytes=zeros,
        node_shared_bytes=zeros,
        edge_from=[start for start, _ in edges],
        edge_to=[end for _, end in edges],
        edge_bytes=np.zeros(len(edges)),
        storage_bytes=[],
        storage_kind=[],
        hold_node=[],
        hold_storage=[],
        hold_name=[],
        hold_shape=[],
        node_gradient_norm=unknown,
        node_gradient_max=unknown,
        node_gradient_zeros=unknown,
        node_gradient_non_finite=np.full(size, -1),
        bin_node=[],
        bin_power=[],
        bin_share=[],
        gradients=False,
        non_finite=None,
        branches=(),
        inner_node=[],
        inner_op=[],
        inner_module=[],
        inner_shape=[],
        inner_dtype=[],
        inner_source=[],
        inner_ends=[],
        link_from=[],
        link_to=[],
        unreached=(),
        root=size - 1,
        saved_bytes=0,
        parameter_bytes=0,
        buffer_bytes=0,
        input_bytes=0,
    )


def longest(a, b) -> int:
    """Length of the longest common subsequence, by the textbook."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(before[j + 1], row[j]))
    return row[-1]


@given(tokens, tokens)
def test_the_common_subsequence_is_a_longest_one(a, b) -> None:
    pairs = common_subsequence(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert pairs == increasing(pairs)
    assert len(pairs) == longest(a, b)


@settings(deadline=None)
@given(calls)
def test_a_graph_is_aligned_with_itself_row_by_row(program) -> None:
    record = graph_of(program)
    assert align(record, record).tolist() == list(range(len(program)))


@settings(deadline=None)
@given(calls, calls)
def test_the_union_of_any_two_has_a_forward_order_and_holds_both(one, other) -> None:
    a, b = graph_of(one), graph_of(other)
    found = diff_records(a, b)
    assert (found.edge_from < found.edge_to).all()
    for record, rows, missing in ((a, found.node_a, ADDED), (b, found.node_b, REMOVED)):
        assert sorted(rows[rows >= 0].tolist()) == list(range(len(record.node_type)))
        kept = found.edges[found.edge_state != missing]
        assert sorted(zip(*rows[kept].T.tolist(), strict=True)) == sorted(
            map(tuple, record.edges.tolist())
        )
    for row in np.flatnonzero((found.node_a >= 0) & (found.node_b >= 0)):
        first, second = a.nodes[found.node_a[row]], b.nodes[found.node_b[row]]
        assert (first.module, first.op, first.type) == (second.module, second.op, second.type)


@settings(deadline=None)
@given(calls, st.data())
def test_calls_on_lines_of_their_own_are_removed_exactly(program, data) -> None:
    """Where every call has its own line nothing is ambiguous, whatever is left out."""
    lines = tuple(SourceLine(filename="f.py", line=n, text=f"line {n}") for n in range(30))
    distinct = [(m, op, line, i, s) for line, (m, op, _, i, s) in enumerate(program)]
    kept = data.draw(st.sets(st.sampled_from(range(len(program))), min_size=1))
    shorter = [call for row, call in enumerate(distinct) if row in kept]
    a, b = (with_lines(graph_of(calls), lines) for calls in (distinct, shorter))
    partner = align(a, b)
    expected = {row: place for place, row in enumerate(sorted(kept))}
    assert partner.tolist() == [expected.get(row, -1) for row in range(len(program))]


def with_lines(record: GraphRecord, lines: tuple[SourceLine, ...]) -> GraphRecord:
    return dataclasses.replace(record, sources=lines)
