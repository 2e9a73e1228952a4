"""Export of a graph in the format given by a suffix, as a file or as bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.graph.render.dot import graph_dot
from workbench.graph.render.figure import graph_figure
from workbench.graph.render.model_explorer import (
    gradient_norm_data,
    graph_collection,
    saved_bytes_data,
)
from workbench.graph.render.svg import graph_svg

if TYPE_CHECKING:
    from workbench.records import GraphRecord


def save(record: GraphRecord, path: str | Path) -> Path:
    """Write ``record`` to ``path`` and return the path.

    The suffix selects the format:

    * ``.safetensors``: the record itself, which ``wb.graph(path)`` opens again
    * ``.svg``: the static picture, which takes the text colour of the page around it
    * ``.png`` (150 dots per inch), ``.pdf``: the figure
    * ``.dot``: every operation, for Graphviz
    * ``.json``: every node, for Model Explorer; ``.saved_bytes.json`` and ``.gradient_norm.json``
      are per-node data to add to it there

    Raises:
        ValueError: the suffix is another one, or missing (the message lists the known ones); or
            gradient norms are requested of a capture that has none.
    """
    target = Path(path).expanduser()
    target.write_bytes(encode(record, target.name))
    return target


def encode(record: GraphRecord, name: str) -> bytes:
    """Bytes that `save` would write into a file called ``name``; raises the same errors."""
    known = [suffix for suffix in _FORMS if name.lower().endswith(suffix)]
    if not known:
        suffix = Path(name).suffix
        got = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise ValueError(f"{name!r} has {got}; a graph is saved as {', '.join(_FORMS)}")
    return _FORMS[max(known, key=len)](record)


def _figure(form: str) -> Callable[[GraphRecord], bytes]:
    def draw(record: GraphRecord) -> bytes:
        page = io.BytesIO()
        graph_figure(record).savefig(page, dpi=150, format=form)
        return page.getvalue()

    return draw


def _text(form: Callable[[GraphRecord], str]) -> Callable[[GraphRecord], bytes]:
    return lambda record: form(record).encode("utf-8")


def _json(form: Callable[[GraphRecord], Any]) -> Callable[[GraphRecord], bytes]:
    return _text(lambda record: json.dumps(form(record), ensure_ascii=False, allow_nan=False))


_FORMS: dict[str, Callable[[GraphRecord], bytes]] = {
    ".safetensors": lambda record: record.to_bytes(),
    ".svg": _text(graph_svg),
    ".png": _figure("png"),
    ".pdf": _figure("pdf"),
    ".dot": _text(graph_dot),
    ".json": _json(graph_collection),
    ".saved_bytes.json": _json(saved_bytes_data),
    ".gradient_norm.json": _json(gradient_norm_data),
}
