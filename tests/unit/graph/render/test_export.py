"""Every form a graph is saved in, opened by what it is for where that is installed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess

import numpy as np
import pytest

import workbench as wb
from workbench.graph.render.dot import graph_dot
from workbench.graph.render.export import save
from workbench.graph.render.model_explorer import GRAPH_ID, graph_collection, namespaces
from workbench.records import GraphRecord

HOSTILE = 'a"];\\n -> <b>&{}|\n\x1b[31m/..\\'


@pytest.fixture
def hostile(record):
    """The capture with every name turned against the formats."""
    texts = [text if not text or text[0].isdigit() else text + HOSTILE for text in record.strings]
    modules = [
        dataclasses.replace(
            module,
            cls=module.cls + HOSTILE,
            path=module.path.replace("conv", HOSTILE) if module.path != "loss" else "loss",
        )
        for module in record.modules
    ]
    return dataclasses.replace(record, strings=tuple(texts), modules=tuple(modules), title=HOSTILE)


@pytest.mark.parametrize(
    ("suffix", "magic"),
    [
        ("safetensors", b""),
        ("svg", b"<svg "),
        ("png", b"\x89PNG"),
        ("pdf", b"%PDF"),
        ("dot", b"digraph "),
        ("json", b"{"),
        ("SVG", b"<svg "),
        ("saved_bytes.json", b"{"),
    ],
)
def test_the_suffix_chooses_the_form(record, tmp_path, suffix, magic):
    path = save(record, tmp_path / f"graph.{suffix}")
    assert path.read_bytes().startswith(magic)


def test_the_record_opens_again(record, tmp_path):
    path = save(record, str(tmp_path / "graph.safetensors"))
    assert wb.graph(path).record.saved_bytes == record.saved_bytes


@pytest.mark.parametrize(
    ("name", "got"), [("graph.jpeg", "suffix '.jpeg'"), ("graph", "no suffix")]
)
def test_an_unknown_suffix_lists_the_known_ones(record, tmp_path, name, got):
    with pytest.raises(ValueError, match=rf"{got}; a graph is saved as \.safetensors, \.svg"):
        save(record, tmp_path / name)
    assert not (tmp_path / name).exists()


def plain_graph(text):
    """Nodes and edges as Graphviz itself reads them."""
    done = subprocess.run(
        ["dot", "-Tplain"], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    nodes = {line[1] for line in words if line[0] == "node"}
    return nodes, {(line[1], line[2]) for line in words if line[0] == "edge"}


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("which", ["record", "hostile"])
def test_graphviz_reads_every_operation_and_edge(request, which):
    record = request.getfixturevalue(which)
    nodes, edges = plain_graph(graph_dot(record))
    operations = {f"n{row}" for row in np.flatnonzero(record.node_kind != 1)}
    assert nodes == operations
    assert edges == {
        (f"n{start}", f"n{end}") for start, end in record.edges if record.node_kind[start] != 1
    }


def test_dot_nests_modules_and_folds_parameters(record):
    text = graph_dot(record)
    assert 'label="block1 · Block"' in text
    assert text.index('label="block1 · Block"') < text.index('label="block1.conv · Conv2d"')
    assert "● weight 8×3×3×3" in text
    assert "AccumulateGrad" not in text
    assert text.count("{") == text.count("}")


def test_dot_escapes_what_would_end_a_string(hostile):
    for line in graph_dot(hostile).splitlines():
        bare = line.replace("\\\\", "").replace('\\"', "")
        assert bare.count('"') % 2 == 0, line
        assert line.isprintable()


NODE = {
    "id": str,
    "label": str,
    "namespace": str,
    "attrs": list,
    "incomingEdges": list,
    "outputsMetadata": list,
}
"""Fields of a node that Model Explorer documents (graph_builder.py, 0.1.34), and we write."""


@pytest.mark.parametrize("which", ["record", "hostile"])
def test_model_explorer_gets_every_node_edge_and_layer(request, which):
    record: GraphRecord = request.getfixturevalue(which)
    collection = json.loads(json.dumps(graph_collection(record)))
    assert isinstance(collection["label"], str)
    (graph,) = collection["graphs"]
    assert graph["id"] == GRAPH_ID
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(record.node_type)
    edges = set()
    for node in nodes.values():
        assert set(node) <= {*NODE, "style"}
        for name, kind in NODE.items():
            assert isinstance(node[name], kind), name
        for pair in (*node["attrs"], *node["outputsMetadata"][0]["attrs"]):
            assert set(pair) == {"key", "value"}
            assert isinstance(pair["value"], str)
        for place, edge in enumerate(node["incomingEdges"]):
            assert edge["sourceNodeId"] in nodes
            assert edge["targetNodeInputId"] == str(place)
            edges.add((int(edge["sourceNodeId"]), int(node["id"])))
    assert edges == set(map(tuple, record.edges.tolist()))
    spaces = {node["namespace"] for node in nodes.values()}
    assert spaces <= set(graph["groupNodeAttributes"])
    for attributes in graph["groupNodeAttributes"].values():
        assert all(isinstance(value, str) for value in attributes.values())


def test_namespaces_follow_the_module_tree(record):
    spaces = dict(zip([module.path for module in record.modules], namespaces(record), strict=True))
    assert spaces[""] == "EarlyExit"
    assert spaces["block1.conv"] == "EarlyExit/block1/conv"
    assert spaces["loss"] == "loss"


def test_a_slash_in_a_name_makes_no_layer(hostile):
    depths = {module.path: module.path.count(HOSTILE) for module in hostile.modules}
    for module, space in zip(hostile.modules, namespaces(hostile), strict=True):
        if depths[module.path]:
            assert space.count("/") == 2, space


def test_node_data_colours_by_saved_bytes(record, tmp_path):
    data = json.loads(save(record, tmp_path / "g.saved_bytes.json").read_text())
    results = data[GRAPH_ID]["results"]
    assert sum(entry["value"] for entry in results.values()) == record.saved_bytes
    stops = [stop["stop"] for stop in data[GRAPH_ID]["gradient"]]
    assert stops == [0, 1]


def test_gradient_data_needs_gradients(record, tmp_path):
    size = len(record.node_type)
    without = dataclasses.replace(record, gradients=False)
    with pytest.raises(ValueError, match="holds no gradient norms"):
        save(without, tmp_path / "g.gradient_norm.json")
    norms = np.full(size, np.nan, np.float32)
    norms[:3] = (10.0, 0.0, np.inf)
    measured = dataclasses.replace(record, gradients=True, node_gradient_norm=norms)
    data = json.loads(save(measured, tmp_path / "g.gradient_norm.json").read_text())
    assert data[GRAPH_ID]["results"] == {"0": {"value": 1.0}}
