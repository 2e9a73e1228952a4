"""Values on a line of code, read from a frame without running anything."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any, cast

import torch
from torch import nn

from workbench.records import Fact

_MISSING = object()
_MOST = 12
_SHORT = {
    "float32": "fp32",
    "float64": "fp64",
    "float16": "fp16",
    "bfloat16": "bf16",
}


def values_on(tree: ast.Module, lineno: int, frame: FrameType) -> tuple[Fact, ...]:
    """Return name, shape and dtype of what the statement at ``lineno`` mentions.

    Args:
        tree: the syntax tree of the whole file or cell.
        lineno: the line, from 1.
        frame: the frame in which its names have their values.
    """
    statement = _statement(tree, lineno)
    if statement is None:
        return ()
    plain: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for node in _expressions(statement):
        path = _path(node)
        value = _look_up(path, frame) if path else _MISSING
        if value is not _MISSING:
            (parameters if isinstance(value, nn.Module) else plain).update(_described(path, value))
    facts = [Fact(label=label, value=text) for label, text in {**plain, **parameters}.items()]
    return tuple(facts[:_MOST])


def describe(value: Any) -> str:
    """``[100, 64] bf16`` for a tensor; a short text for a plain value; ``""`` for anything else."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        place = "" if value.device.type == "cpu" else f" {value.device}"
        return f"{list(value.shape)} {_SHORT.get(dtype, dtype)}{place}"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"{value[:37]!r}… ({len(value)} characters)"
    if type(value) in (list, tuple, dict):
        return f"{type(value).__name__} of {len(cast('list[Any]', value))}"
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        return f"{list(value.shape)} {value.dtype}"
    return ""


def _statement(tree: ast.Module, lineno: int) -> ast.stmt | None:
    """The innermost statement that contains the line."""
    holding = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= lineno <= (node.end_lineno or node.lineno)
    ]
    return max(holding, key=lambda node: node.lineno, default=None)


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    """Names and attribute chains read by the statement's own line(s), without nested bodies."""
    wanted: list[ast.expr] = []
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop(0)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            wanted.append(node)
        queue += [
            child
            for child in ast.iter_child_nodes(node)
            if not (isinstance(child, (ast.stmt, ast.Lambda)))
        ]
    return wanted


def _path(node: ast.expr) -> tuple[str, ...]:
    """``self.exit.weight`` as ("self", "exit", "weight"); () for anything but such a chain."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def _look_up(path: tuple[str, ...], frame: FrameType) -> Any:
    name, *attributes = path
    value = frame.f_locals.get(name, frame.f_globals.get(name, _MISSING))
    for attribute in attributes:
        value = _attribute(value, attribute)
        if value is _MISSING:
            break
    return value


def _attribute(value: Any, name: str) -> Any:
    """An attribute that is in the object's own dictionary: nothing is computed for it."""
    own = getattr(value, "__dict__", {}) if not isinstance(value, torch.Tensor) else {}
    if name in own:
        return own[name]
    if isinstance(value, nn.Module):
        for table in ("_parameters", "_buffers", "_modules"):
            if name in own.get(table, {}):
                return own[table][name]
    return _MISSING


def _described(path: tuple[str, ...], value: Any) -> dict[str, str]:
    label = ".".join(path)
    if isinstance(value, nn.Module):
        if len(path) == 1:
            return {}  # `self` itself says nothing
        shown = label.removeprefix("self.")
        own = value.__dict__["_parameters"].items()
        return {f"{shown}.{name}": describe(p) for name, p in own if p is not None}
    text = describe(value)
    return {label.removeprefix("self."): text} if text else {}
