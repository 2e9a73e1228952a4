"""A graph record as the JSON files that Google's Model Explorer opens.

The graph is a *graph collection*: a label and one graph of nodes, each with its incoming edges and
a namespace, the path of the layers it is in. Per-node data (saved bytes, gradient norms), by which
Model Explorer colours nodes, is a separate file that is added to an open graph ("Add per-node
data"). Source of both formats: ``graph_builder.py`` and ``node_data_builder.py`` of the package
``ai-edge-model-explorer`` 0.1.34.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from workbench.graph.core.number_format import byte_size, heading, plural, short, significant
from workbench.graph.render.diff_style import ADDED, CHANGED, COLOURS, REMOVED, SAME
from workbench.records import DIFF_STATES, NODE_KINDS, GraphDiff

if TYPE_CHECKING:
    from workbench.records import GraphRecord

GRAPH_ID = "autograd"
_VIOLET = ({"stop": 0, "bgColor": "#f3effc"}, {"stop": 1, "bgColor": "#7c5cd6"})
_TINTS = {REMOVED: "#fbe7ea", ADDED: "#e0f3e8", CHANGED: "#faeeda"}


def graph_collection(record: GraphRecord) -> dict[str, Any]:
    """All nodes of ``record``, ready for JSON. The id of a node is its row.

    For a `GraphDiff` it is the union, with nodes in the colour of their state.
    """
    spaces = namespaces(record)
    incoming: dict[int, list[int]] = defaultdict(list)
    for maker, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
        incoming[user].append(maker)
    nodes = [_node(record, row, spaces, incoming[row]) for row in range(len(record.node_type))]
    graph = {
        "id": GRAPH_ID,
        "nodes": nodes,
        "groupNodeAttributes": _group_attributes(record, spaces),
    }
    return {"label": short(heading(record), 120), "graphs": [graph]}


def saved_bytes_data(record: GraphRecord) -> dict[str, Any]:
    """Per-node data: bytes that each operation is the first to hold for backward."""
    sizes = enumerate(record.node_saved_bytes.tolist())
    return _node_data({str(row): float(size) for row, size in sizes if size})


def gradient_norm_data(record: GraphRecord) -> dict[str, Any]:
    """Per-node data: the base 10 logarithm of the L2 norm of each node's gradient.

    Raises:
        ValueError: backward was not watched, so there are no norms.
    """
    if not record.gradients:
        raise ValueError(
            "this capture holds no gradient norms, because its backward was not watched; capture a "
            "step that runs backward"
        )
    norms = enumerate(record.node_gradient_norm.tolist())
    return _node_data(
        {str(row): math.log10(norm) for row, norm in norms if norm > 0 and math.isfinite(norm)}
    )


def namespaces(record: GraphRecord) -> list[str]:
    """Per module its path in layers, ``Net/encoder/layer``; a slash within a name is replaced."""
    found: list[str] = []
    for module in record.modules:  # parents come first in the table
        if module.parent < 0:
            found.append(_layer(module.path or module.cls or "model"))
            continue
        above = record.modules[module.parent].path
        name = module.path[len(above) :].removeprefix(".") if above else module.path
        found.append(f"{found[module.parent]}/{_layer(name)}")
    return found


def _layer(name: str) -> str:
    return short(name, 200).replace("/", "\N{DIVISION SLASH}") or "\N{REPLACEMENT CHARACTER}"


def _node(record: GraphRecord, row: int, spaces: list[str], makers: list[int]) -> dict[str, Any]:
    text = record.strings
    name = text[record.node_name[row]]
    label = name.rpartition(".")[2] or text[record.node_op[row]]
    output = {"shape": text[record.node_shape[row]], "dtype": text[record.node_dtype[row]]}
    node: dict[str, Any] = {
        "id": str(row),
        "label": short(label, 120),
        "namespace": spaces[record.node_module[row]],
        "attrs": _pairs(_attributes(record, row)),
        "incomingEdges": [
            {"sourceNodeId": str(maker), "sourceNodeOutputId": "0", "targetNodeInputId": str(place)}
            for place, maker in enumerate(makers)
        ],
        "outputsMetadata": [{"id": "0", "attrs": _pairs(output)}],
    }
    if isinstance(record, GraphDiff) and record.node_state[row] != SAME:
        state = int(record.node_state[row])
        node["style"] = {"borderColor": COLOURS[state], "backgroundColor": _TINTS[state]}
    return node


def _attributes(record: GraphRecord, row: int) -> dict[str, str]:
    text = record.strings
    found = {
        "kind": NODE_KINDS[record.node_kind[row]],
        "type": text[record.node_type[row]],
        "name": text[record.node_name[row]],
    }
    if isinstance(record, GraphDiff):
        found["from A to B"] = DIFF_STATES[record.node_state[row]]
    source = int(record.node_source[row])
    if source >= 0:
        line = record.sources[source]
        found["line"] = f"{line.label}: {line.text}"
    for name, size in (
        ("saved for backward", int(record.node_saved_bytes[row])),
        ("held, saved earlier", int(record.node_shared_bytes[row])),
    ):
        if size:
            found[name] = f"{byte_size(size)} ({size:,} bytes)"
    norm = float(record.node_gradient_norm[row])
    if math.isfinite(norm):
        found["gradient norm"] = significant(norm)
    return {key: value for key, value in found.items() if value}


def _group_attributes(record: GraphRecord, spaces: list[str]) -> dict[str, dict[str, str]]:
    """What the side panel shows of the graph (key ``""``) and of each layer."""
    of_graph = {"capture": heading(record), "torch": record.torch_version, "device": record.device}
    if isinstance(record, GraphDiff):
        of_graph["changes"] = record.sentence
    of_graph |= {f"note {number}": note for number, note in enumerate(record.notes, 1)}
    found = {"": of_graph}
    for index, module in enumerate(record.modules):
        own = record.node_module == index
        found[spaces[index]] = {
            "class": module.cls or "outside every module",
            "its own": plural(int(own.sum()), "node"),
            "saved by these": byte_size(int(record.node_saved_bytes[own].sum())),
        }
    return found


def _node_data(values: dict[str, float]) -> dict[str, Any]:
    results = {row: {"value": value} for row, value in values.items()}
    return {GRAPH_ID: {"results": results, "gradient": list(_VIOLET)}}


def _pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": short(value, 2000)} for key, value in values.items()]
