"""What a running frame tests: the expression that asks a tensor for its truth, as it is written.

A frame knows the instruction it is at, and Python keeps for every instruction the columns it was
compiled from. So of ``if sure > limit and x.any():`` each half is told apart, whatever else stands
on its line. A jump tests what the instruction before it left on the stack.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, FrameType

Number = bool | int | float
_Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line (from 1), first column and the one past the last (from 0, in bytes)."""

_TESTS = ("POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT")
_SILENT = {"CACHE", "EXTENDED_ARG", "NOP", "COPY"}
_MOST_TEXT = 200
"""Characters of a test that are kept."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="
}  # fmt: skip


@dataclass(frozen=True)
class Test:
    """An expression that Python tests; plain data."""

    line: int
    text: str
    """As it is written, on one line; empty where the source is not there to read."""
    symbol: str = ""
    """Of a comparison with a number that a tensor gave: ``>``."""
    other: ast.expr | None = None
    """The other side of that comparison."""
    is_left: bool = True
    """Whether the number stands on its left."""


def asked(frame: FrameType) -> Test:
    """What ``frame`` tests now, while a tensor is asked for its truth."""
    code, at = frame.f_code, frame.f_lasti // 2
    if dis.opname[code.co_code[2 * at]].startswith(_TESTS):
        at = next(_steps(code, at, -1), at)
    span = _span(code, at)
    return Test(span[0] or frame.f_lineno, _text(code.co_filename, span))


def asked_of_number(frame: FrameType) -> Test | None:
    """What ``frame`` is about to test of the number that a call gives it now; None if nothing.

    That is the number itself, or its comparison with a constant or a variable: anything further
    between ``.item()`` and the ``if`` is not followed.
    """
    code, at = frame.f_code, frame.f_lasti // 2
    call = _span(code, at)
    for step in islice(_steps(code, at, 1), 8):
        name = dis.opname[code.co_code[2 * step]]
        if name.startswith(_TESTS):
            return Test(call[0] or frame.f_lineno, _text(code.co_filename, call))
        if name == "COMPARE_OP":
            return _comparison(frame, step, call)
        if not name.startswith("LOAD_"):
            break
    return None


def value_of(expression: ast.expr, frame: FrameType) -> Number | None:
    """The number that ``expression`` stands for in ``frame``, found without running any code."""
    if isinstance(expression, ast.Constant):
        return expression.value if isinstance(expression.value, (bool, int, float)) else None
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
        value = value_of(expression.operand, frame)
        return None if value is None else -value
    names: list[str] = []
    inner = expression
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return None
    found = variables_of(frame).get(inner.id, frame.f_globals.get(inner.id))
    for name in reversed(names):
        found = inspect.getattr_static(found, name, None)
    return found if isinstance(found, (bool, int, float)) else None


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The local variables of ``frame``; nothing of them stays on it."""
    own = dict(frame.f_locals)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        # asking a function for its locals left a copy of them on its frame, which would keep the
        # user's tensors alive after a `del`
        frame.f_locals.clear()
    return own


def comparison(text: str) -> ast.Compare | None:
    """``text`` as one comparison of two values; None where it is none."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(tree, ast.Compare) or len(tree.ops) > 1:
        return None
    return tree if type(tree.ops[0]) in _SYMBOLS else None


def symbol_of(compare: ast.Compare) -> str:
    """``>`` of ``a > b``."""
    return _SYMBOLS[type(compare.ops[0])]


def _comparison(frame: FrameType, at: int, call: _Span) -> Test | None:
    code = frame.f_code
    following = next(_steps(code, at, 1), at)
    if not dis.opname[code.co_code[2 * following]].startswith(_TESTS):
        return None
    span = _span(code, at)
    text = _text(code.co_filename, span)
    compare = comparison(text)
    if compare is None:
        return None
    is_left = call[0] == span[0] and call[2] == span[2]
    other = compare.comparators[0] if is_left else compare.left
    return Test(span[0] or frame.f_lineno, text, symbol_of(compare), other, is_left)


def _steps(code: CodeType, at: int, way: int) -> Iterator[int]:
    """Instructions after ``at`` (``way`` 1) or before it (-1) that do something."""
    instructions = code.co_code
    at += way
    while 0 <= 2 * at < len(instructions):
        if dis.opname[instructions[2 * at]] not in _SILENT:
            yield at
        at += way


def _span(code: CodeType, at: int) -> _Span:
    return next(islice(code.co_positions(), at, None), (None, None, None, None))


def _text(filename: str, span: _Span) -> str:
    """What stands there, on one line; empty where that is no expression (any more)."""
    first, last, start, end = span
    if first is None or last is None or start is None or end is None:
        return ""
    lines = [line.encode() for line in linecache.getlines(filename)[first - 1 : last]]
    if len(lines) != last - first + 1:
        return ""
    is_method = lines[0][:start].rstrip().endswith(b".")  # of a call over several lines
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    text = " ".join(b"".join(lines).decode(errors="replace").split())
    try:
        tree = _call_until(filename, last, end) if is_method else ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "bool":
        tree = tree.args[0] if tree.args else tree
        text = ast.unparse(tree)
    elif len(lines) > 1 or is_method:
        text = ast.unparse(tree)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


def _call_until(filename: str, line: int, column: int) -> ast.expr:
    """The call that ends there: its instruction begins at the method's name, not at its object."""
    for node in ast.walk(ast.parse("".join(linecache.getlines(filename)))):
        if isinstance(node, ast.Call) and (node.end_lineno, node.end_col_offset) == (line, column):
            return node
    raise ValueError("the file has changed")
