"""What the caller's variables show about a loss: its model, and the tensors held anyway."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from workbench.graph.core.source_lines import TORCH_AND_OURS
from workbench.graph.core.tensor_memory import memory_of
from workbench.torch_private.autograd import without_functions
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.tensors import is_leaf, requires_grad

if TYPE_CHECKING:
    from types import FrameType

    from workbench.graph.core.walk import Walk

_OWN_REFERENCES = 3
"""References to a frame's copy of its locals: the frame, our variable, the query's argument."""


def caller_variables() -> dict[str, Any]:
    """Variables of the innermost frame outside this package and torch; locals before globals.

    Attributes of ``self`` count as variables too, for loops that are methods.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(TORCH_AND_OURS):
        frame = frame.f_back
    if frame is None:
        return {}
    own = _locals_of(frame)
    return {**getattr(own.get("self"), "__dict__", {}), **frame.f_globals, **own}


def _locals_of(frame: FrameType) -> dict[str, Any]:
    found = frame.f_locals
    own = dict(found)
    is_copy = sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if is_copy and sys.getrefcount(found) <= _OWN_REFERENCES:
        # reading a function's locals left a copy of them on its frame, which would keep the user's
        # tensors alive after a `del`; if `locals()` was called there, the user has the copy too
        found.clear()
    return own


def uses(graph: Walk, model: nn.Module) -> bool:
    """Whether a parameter of ``model`` is a leaf of ``graph``."""
    leaves = {id(leaf_of(node)) for node in graph.nodes}
    return any(id(parameter) in leaves for parameter in model.parameters())


def models_of(graph: Walk, variables: Mapping[str, Any]) -> dict[str, nn.Module]:
    """The modules among ``variables`` whose parameters ``graph`` uses: prefix -> module.

    The module with the most of these parameters comes first; others are added only for parameters
    that remain. The prefix of a single module is ``""``; several modules are named by their
    variables.
    """
    leaves = {id(leaf_of(node)) for node in graph.nodes}
    candidates: list[tuple[int, int, str, nn.Module, set[int]]] = []
    for name, value in variables.items():
        if isinstance(value, nn.Module) and not name.startswith("_"):
            own = {id(parameter) for parameter in value.parameters()}
            candidates.append((-len(own & leaves), len(own), name, value, own))
    candidates.sort(key=lambda candidate: candidate[:2])
    found: dict[str, nn.Module] = {}
    for _, _, name, module, own in candidates:
        if own & leaves:
            leaves -= own
            found[name] = module
    return {"": next(iter(found.values()))} if len(found) == 1 else found


def held_tensors(variables: Mapping[str, Any]) -> tuple[dict[int, str], dict[int, str]]:
    """Tensors that the caller holds even if the graph is freed.

    Returns:
        Storage identity -> name of tensors that do not require grad (the batch, the labels), and
        ``id`` -> name of leaves that do: ``weight``, ``weights[0]``, ``weights['bias']``.
    """
    storages: dict[int, str] = {}
    leaves: dict[int, str] = {}
    with without_functions():
        for name, tensor in _tensors(variables):
            if not requires_grad(tensor):
                for memory in memory_of(tensor) or ():
                    storages.setdefault(memory.key, name)
            elif is_leaf(tensor):
                leaves.setdefault(id(tensor), name)
    return storages, leaves


def _tensors(variables: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors among the variables, or directly inside a tuple, list or dictionary among them."""
    for name, value in variables.items():
        kind = cast("type[Any]", type(value))
        if issubclass(kind, torch.Tensor):
            yield name, value
        elif kind in (tuple, list):
            yield from _named(name, enumerate(value[:64]))
        elif kind is dict or issubclass(kind, Mapping):
            yield from _named(name, _first_items(value))


def _named(name: str, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    for key, item in items:
        if isinstance(item, torch.Tensor):
            yield f"{name}[{key!r}]" if isinstance(key, (str, int)) else name, item


def _first_items(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(islice(mapping.items(), 64))
    except Exception:  # noqa: BLE001 - a class of the user's, which may read a file here
        return []
