"""The operations of a backward graph that torch's cache holds, from the code it lies there as.

The cache holds a graph as the Python code of its ``forward``, one assignment per node. The code is
parsed, never run. It says which operations there are and what they hand on; modules, shapes and
lines are not in it.
"""

from __future__ import annotations

import ast

from workbench.graph.backward_graph import BackwardGraph, BackwardOperation, Reader


def read_code(code: str) -> BackwardGraph:
    """The graph whose ``forward`` is ``code``; without operations where that is not its form."""
    found = Reader()
    functions = [one for one in ast.parse(code).body if isinstance(one, ast.FunctionDef)]
    for function in functions[:1]:
        for argument in function.args.args:
            found.add_input(argument.arg)
        for statement in function.body:
            _see(found, statement)
    return found.result()


def _see(found: Reader, statement: ast.stmt) -> None:
    if isinstance(statement, ast.Return) and statement.value is not None:
        found.add_output(_names(statement.value))
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    value = statement.value
    if not isinstance(target, ast.Name):
        return
    if isinstance(value, ast.Subscript):
        found.hand_on(target.id, _names(value.value))
    elif isinstance(value, ast.Call):
        op = _op(value.func)
        if op:
            found.add(target.id, BackwardOperation(op), _names(value))


def _op(function: ast.expr) -> str:
    """``permute`` for ``torch.ops.aten.permute.default``; empty for arithmetic on sizes."""
    parts = ast.unparse(function).split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:
        name = parts[3]
    else:
        name = parts[-1]
        if parts[0] in {"operator", "math", "builtins"} or len(parts) == 1:
            return ""
    return "" if name.startswith("sym_") else name


def _names(value: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
