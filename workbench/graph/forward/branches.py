"""Tests of tensor values that Python made while a forward ran; plain data.

`BranchRecorder` records them, `workbench.graph.capture.branch_columns` reads them.
"""

from __future__ import annotations

import ast
import dis
import heapq
import inspect
import linecache
import operator
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from workbench.graph.core.source_lines import shows_model_code
from workbench.graph.core.tensor_memory import has_own_storage
from workbench.torch_private import autograd

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from torch.autograd.graph import Node

    from workbench.graph.core.source_lines import Place
    from workbench.graph.forward.torch_call import TorchCall


@dataclass(frozen=True)
class BranchTest:
    """One test of a tensor, ``if sure > limit:``."""

    place: Place
    condition: str
    symbol: str
    """Symbol of a comparison of two numbers (``>``); empty for any other test."""
    numbers: tuple[Number | None, Number | None]
    """The numbers compared; for a test of one number, that number and None; None if unknown."""
    taken: bool
    module: str | None
    """Path of the module that ran; None outside every module."""
    forward: int
    """Index, from 0, of the outermost forward of the trace in which it ran; -1 outside."""
    at: int
    """Sequence number of the next node."""
    near: tuple[int, ...]
    """Sequence numbers of the nodes behind the tested value, latest first."""


@dataclass(frozen=True)
class Repeated:
    """A test that had the same outcome more often than it is listed."""

    place: Place
    condition: str
    taken: bool
    times: int
    shown: int


@dataclass(frozen=True)
class BranchesSeen:
    """All tests that were made, in order."""

    tests: tuple[BranchTest, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    """Repeated tests of the last forward."""
    fault: str = ""
    """The error that ended the watch; later tests are missing then."""


# What a running frame tests: the source text of the expression that takes a tensor's truth value.
#
# A frame knows its current instruction, and Python stores for every instruction the columns it was
# compiled from. So in ``if sure > limit and x.any():`` the two halves are distinguished, whatever
# else is on the line. A jump tests what the instruction before it left on the stack.

Number = bool | int | float
_Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line (from 1), first column and the one past the last (from 0, in bytes)."""

_TESTS = ("POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT")
_SILENT = {"CACHE", "EXTENDED_ARG", "NOP", "COPY"}
_MOST_TEXT = 200
"""Maximum number of characters of a test that are kept."""

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
    """Its source text on one line; empty if the source cannot be read."""
    symbol: str = ""
    """Symbol of a comparison with a number that a tensor returned: ``>``."""
    other: ast.expr | None = None
    """The other side of that comparison."""
    is_left: bool = True
    """Whether the number is its left side."""


def truth_test(frame: FrameType) -> Test:
    """The expression that ``frame`` tests now, while a tensor's truth value is requested."""
    code, at = frame.f_code, frame.f_lasti // 2
    if dis.opname[code.co_code[2 * at]].startswith(_TESTS):
        at = next(_steps(code, at, -1), at)
    span = _span(code, at)
    return Test(span[0] or frame.f_lineno, _text(code.co_filename, span))


def number_test(frame: FrameType) -> Test | None:
    """The test that ``frame`` is about to make of the number a call returns now; None if none.

    The test is of the number itself, or of its comparison with a constant or a variable: anything
    further between ``.item()`` and the ``if`` is not followed.
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
    """The local variables of ``frame``; no copy of them stays on the frame."""
    own = dict(frame.f_locals)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        # reading a function's locals left a copy of them on its frame, which would keep the user's
        # tensors alive after a `del`
        frame.f_locals.clear()
    return own


def comparison(text: str) -> ast.Compare | None:
    """Parse ``text`` as one comparison of two values; None if it is none."""
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


def _steps(code: CodeType, at: int, step: int) -> Iterator[int]:
    """Instructions after ``at`` (``step`` 1) or before it (-1) that do something."""
    instructions = code.co_code
    at += step
    while 0 <= 2 * at < len(instructions):
        if dis.opname[instructions[2 * at]] not in _SILENT:
            yield at
        at += step


def _span(code: CodeType, at: int) -> _Span:
    return next(islice(code.co_positions(), at, None), (None, None, None, None))


def _text(filename: str, span: _Span) -> str:
    """The source text there, on one line; empty if it is not an expression (any more)."""
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


# Recording of the tests that Python makes of tensor values while a forward runs.
#
# ``if x.max() > 3`` is two torch functions: a comparison, and ``Tensor.__bool__`` of its result.
# The first is remembered until the next torch function; the second shows where the test was made
# and its outcome. ``x.max().item() > 3`` is one, ``item``, and the comparison is read from the
# code.
#
# Numbers are read right after the user's own read of the device, so that no wait is added. A test
# that has the same outcome again and again is listed a few times and counted. An error in here is
# recorded and ends the watch; it never reaches the user.

MOST = 64
"""Maximum number of tests of one forward that are listed."""
MOST_EACH = 8
"""Maximum number of these at one place in one module with one outcome."""
_MOST_KEPT = 1024
"""Maximum number of tests of all forwards together that are remembered."""
_NUM_NEAR = 128
"""Number of nodes behind a tested value that are searched for one in the loss's graph."""

_NAMES = {
    "<": ("lt", "__lt__", "less"),
    "<=": ("le", "__le__", "less_equal"),
    ">": ("gt", "__gt__", "greater"),
    ">=": ("ge", "__ge__", "greater_equal"),
    "==": ("eq", "__eq__"),
    "!=": ("ne", "__ne__", "not_equal"),
}
_COMPARISONS = {name: symbol for symbol, names in _NAMES.items() for name in names}
_TRUTHS = frozenset({"__bool__", "is_nonzero", "equal", "allclose"})
_NUMBERS = frozenset({"item", "__float__", "__int__"})
_READS = _TRUTHS | _NUMBERS


class _Compared(NamedTuple):
    """A comparison and what it compared; held until the next torch function."""

    result: torch.Tensor
    symbol: str
    sides: tuple[Any, Any]


class BranchRecorder:
    """Records tests in one trace on one thread; receives every torch function.

    Args:
        module: returns the path of the module that runs now, None outside.
        maker: returns the node whose value left the graph on the path to a tensor, if one did.
    """

    def __init__(
        self, module: Callable[[], str | None], maker: Callable[[torch.Tensor], Node | None]
    ) -> None:
        self._module = module
        self._maker = maker
        self._compared: _Compared | None = None
        self._recorded: deque[BranchTest] = deque(maxlen=_MOST_KEPT)
        self._tests: dict[tuple[CodeType, int, bool], Test | None] = {}
        self._times: Counter[tuple[Any, ...]] = Counter()
        self._shown: Counter[tuple[Any, ...]] = Counter()
        self._forward = -1
        self._fault = ""

    def new_forward(self) -> None:
        """Begin an outermost forward: repeated tests are counted anew."""
        self._forward += 1
        self._times.clear()
        self._shown.clear()

    def seen(self) -> BranchesSeen:
        """The tests made so far. Releases the last comparison."""
        self._compared = None
        repeated: dict[tuple[Any, ...], Repeated] = {}
        for key, times in self._times.items():
            place, condition, taken, _ = key
            one = repeated.get(key[:3], Repeated(place, condition, taken, 0, 0))
            total, shown = one.times + times, one.shown + self._shown[key]
            repeated[key[:3]] = Repeated(place, condition, taken, total, shown)
        hidden = tuple(one for one in repeated.values() if one.times > one.shown)
        return BranchesSeen(tuple(self._recorded), hidden, self._fault)

    def before(self, func: Any) -> None:
        """Prepare for a torch function: nothing is held while it allocates."""
        if self._compared is not None and getattr(func, "__name__", "") != "__bool__":
            self._compared = None

    def after(self, call: TorchCall, result: Any) -> None:
        """Process a torch function that has returned ``result``."""
        name = getattr(call.func, "__name__", "")
        symbol = _COMPARISONS.get(name)
        if (symbol is None and name not in _READS) or self._fault:
            return
        try:
            if symbol is None:
                self._record(name, call.args[0], result)
            elif isinstance(result, torch.Tensor) and result.numel() == 1:
                self._compared = _Compared(result, symbol, (call.args[0], call.args[1]))
        except Exception as error:  # noqa: BLE001 - the user's forward goes on
            self._fault = f"{type(error).__name__}: {error}"

    def _record(self, name: str, tensor: torch.Tensor, result: Any) -> None:
        compared, self._compared = self._compared, None
        frame = _testing_frame()
        if frame is None:
            return
        of_number = name in _NUMBERS
        test = self._test(frame, of_number=of_number)
        if test is None:
            return
        if of_number:
            found = _of_number(test, result, frame)
        else:
            mine = compared is not None and compared.result is tensor
            found = _of_truth(tensor, compared if mine else None, result)
        if found is not None:
            self._note(frame, test, tensor, found)

    def _note(self, frame: FrameType, test: Test, tensor: torch.Tensor, found: _Found) -> None:
        place = (frame.f_code.co_filename, test.line, frame.f_code.co_name)
        module = self._module()
        key = (place, test.text, found.taken, module)
        self._times[key] += 1
        if self._shown[key] >= MOST_EACH or self._shown.total() >= MOST:
            return
        self._shown[key] += 1
        with autograd.without_functions(), autograd.without_dispatch():
            left, right = map(_number, (*found.sides, None, None)[:2])
        self._recorded.append(
            BranchTest(
                place=place,
                condition=test.text,
                symbol=found.symbol,
                numbers=(left, right),
                taken=found.taken,
                module=module,
                forward=-1 if module is None else self._forward,
                at=autograd.current_sequence(),
                near=self._near(tensor, found.sides),
            )
        )

    def _test(self, frame: FrameType, *, of_number: bool) -> Test | None:
        key = (frame.f_code, frame.f_lasti, of_number)
        if key not in self._tests:
            self._tests[key] = number_test(frame) if of_number else truth_test(frame)
        return self._tests[key]

    def _near(self, tensor: torch.Tensor, sides: tuple[Any, ...]) -> tuple[int, ...]:
        """Sequence numbers of the nodes behind the tested value, latest first."""
        tensors = [one for one in (tensor, *sides) if isinstance(one, torch.Tensor)]
        nodes = [one.grad_fn or self._maker(one) for one in tensors]
        return _latest_first([node for node in nodes if node is not None])


class _Found(NamedTuple):
    taken: bool
    symbol: str
    sides: tuple[Any, ...]
    """The values compared, or the one value that was tested: numbers, or tensors still to read."""


def _of_truth(tensor: torch.Tensor, compared: _Compared | None, result: Any) -> _Found | None:
    if not isinstance(result, bool):
        return None
    if compared is not None:
        return _Found(result, compared.symbol, compared.sides)
    return _Found(result, "", () if tensor.dtype is torch.bool else (tensor,))


def _of_number(test: Test, number: Any, frame: FrameType) -> _Found | None:
    if not isinstance(number, (bool, int, float)):
        return None
    if test.other is None:
        return _Found(bool(number), "", (number,))
    other = value_of(test.other, frame)
    if other is None:
        return None
    sides = (number, other) if test.is_left else (other, number)
    return _Found(COMPARE[test.symbol](*sides), test.symbol, sides)


def _number(side: Any) -> Number | None:
    """A side as a number: for a tensor its one value, which is ready after the user's own read."""
    if isinstance(side, (bool, int, float)):
        return side
    if not has_own_storage(side) or side.numel() != 1 or side.is_complex() or side.is_meta:
        return None
    return side.detach().item()


def _testing_frame() -> FrameType | None:
    """The frame that makes the test, if it is user code: torch itself tests tensors, too."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - not kept: a cycle
    while frame is not None and (
        frame.f_code.co_filename.startswith(_OURS) or frame.f_code.co_name == "__torch_function__"
    ):
        frame = frame.f_back
    return frame if frame is not None and shows_model_code(frame.f_code.co_filename) else None


_OURS = __file__.rpartition("/graph/")[0]


def _latest_first(starts: list[Node]) -> tuple[int, ...]:
    """Numbers of ``starts`` and of the nodes behind them, latest first; leaves have none."""
    found: list[int] = []
    known: dict[Node, int] = {}
    waiting: list[tuple[int, int, Node]] = []

    def add(node: Node) -> None:
        number = autograd.node_sequence(node)
        if node not in known and number >= 0:
            known[node] = len(known)
            heapq.heappush(waiting, (-number, known[node], node))

    for node in starts:
        add(node)
    while waiting and len(found) < _NUM_NEAR:
        number, _, node = heapq.heappop(waiting)
        found.append(-number)
        for maker, _ in node.next_functions:
            if maker is not None:
                add(maker)
    return tuple(found)
