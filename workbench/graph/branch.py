"""The `if` that a line of code stands under, where its source is still there to read."""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.records import SourceLine


def condition_of(line: SourceLine) -> str:
    """```if sure > self.threshold:```, ``the else of`` it, or ``""`` where there is none.

    Reads the file or cell as it is now, and only if the line still reads as it was recorded.
    """
    text = linecache.getlines(line.filename)
    if not line.text or not 0 < line.line <= len(text):
        return ""
    if text[line.line - 1].strip() != line.text:
        return ""
    try:
        tree = ast.parse("".join(text))
    except (SyntaxError, ValueError):  # a cell with magics
        return ""
    found = ""
    inside: list[ast.AST] = [tree]
    while inside:
        node = inside.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found = ""  # an `if` around the function did not choose the line
        if isinstance(node, ast.If):
            condition = f"`if {ast.unparse(node.test)}:`"
            if _covers(node.body, line.line):
                found = condition
            elif _covers(node.orelse, line.line):
                found = f"the else of {condition}"
        inside = [child for child in ast.iter_child_nodes(node) if _covers([child], line.line)]
    return found


def _covers(nodes: list[ast.stmt] | list[ast.AST], line: int) -> bool:
    return any(
        getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)
        for node in nodes
    )
