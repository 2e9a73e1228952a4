"""The ways out: one file in the form that its suffix names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.graph.dot import graph_dot
from workbench.graph.figure import graph_figure
from workbench.graph.model_explorer import gradient_norm_data, graph_collection, saved_bytes_data
from workbench.graph.svg import graph_svg

if TYPE_CHECKING:
    from workbench.records import GraphRecord


def save(record: GraphRecord, path: str | Path) -> Path:
    """Write ``record`` to ``path`` and return it.

    The suffix chooses:

    * ``.safetensors``: the record itself, to open again with ``wb.graph(path)``
    * ``.svg``: the static picture, which takes the text colour of the page around it
    * ``.png`` (150 dots per inch), ``.pdf``: the figure
    * ``.dot``: every operation, for Graphviz
    * ``.json``: every node, for Model Explorer; ``.saved_bytes.json`` and ``.gradient_norm.json``
      are per-node data to add to it there

    Raises:
        ValueError: another suffix, or none (the message lists the known ones); or gradient norms
            of a capture that has none.
    """
    target = Path(path).expanduser()
    name = target.name.lower()
    known = [suffix for suffix in _WRITERS if name.endswith(suffix)]
    if not known:
        got = f"the suffix {target.suffix!r}" if target.suffix else "no suffix"
        raise ValueError(f"{target.name!r} has {got}; a graph is saved as {', '.join(_WRITERS)}")
    _WRITERS[max(known, key=len)](record, target)
    return target


def _save_record(record: GraphRecord, path: Path) -> None:
    record.save(path)


def _save_figure(record: GraphRecord, path: Path) -> None:
    graph_figure(record).savefig(path, dpi=150, format=path.suffix[1:].lower())


def _text(form: Callable[[GraphRecord], str]) -> Callable[[GraphRecord, Path], None]:
    def write(record: GraphRecord, path: Path) -> None:
        path.write_text(form(record), encoding="utf-8")

    return write


def _json(form: Callable[[GraphRecord], Any]) -> Callable[[GraphRecord, Path], None]:
    return _text(lambda record: json.dumps(form(record), ensure_ascii=False, allow_nan=False))


_WRITERS: dict[str, Callable[[GraphRecord, Path], None]] = {
    ".safetensors": _save_record,
    ".svg": _text(graph_svg),
    ".png": _save_figure,
    ".pdf": _save_figure,
    ".dot": _text(graph_dot),
    ".json": _json(graph_collection),
    ".saved_bytes.json": _json(saved_bytes_data),
    ".gradient_norm.json": _json(gradient_norm_data),
}
