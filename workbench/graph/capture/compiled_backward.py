"""Conversion of the ``torch.fx`` graph that a compiled region runs in backward to plain data.

An *operation* is a call that computes tensors. Picking one result out of several (``getitem``) and
arithmetic on sizes are not operations: values pass through them. The result can be pickled and
holds no tensor, because torch may store it beside the region
(`workbench.torch_private.aot.keep_when_cached`).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from workbench.graph.core.source_lines import shows_model_code
from workbench.graph.core.walk import shape_text
from workbench.records import INNER_ENDS

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


_OUTSIDE = -1
"""Stands for a gradient that comes into the node from outside, among rows of operations."""
_ARITHMETIC = frozenset({"_operator", "operator", "builtins", "math"})
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)\n(?:[ \t]+(.*))?')

ModuleStack = tuple[tuple[str, str], ...]
"""(Dynamo's path, class) of the modules around an operation, from the outermost inwards."""


@dataclass(frozen=True)
class BackwardOperation:
    """One operation of a backward graph."""

    op: str
    """``convolution_backward``"""
    modules: ModuleStack = ()
    """Modules of the forward operation that it is the backward of; empty if unknown."""
    shape: str = ""
    """Shape of its first result; a size that changes between calls is given by its symbol."""
    dtype: str = ""
    filename: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    """The line as it was when the region was compiled."""
    accumulates: bool = False
    """Whether it sums gradients of one value, as autograd does for a value that several calls
    used."""


@dataclass(frozen=True)
class BackwardGraph:
    """The operations of a region's backward in the order in which they run, and their links."""

    operations: tuple[BackwardOperation, ...]
    ends: tuple[int, ...]
    """Per operation an index into `INNER_ENDS`."""
    links: tuple[tuple[int, int], ...]
    """(from, to) rows, each pair once, ``from < to``."""
    is_described: bool
    """Whether modules, shapes and lines are known."""

    def plain(self) -> dict[str, Any]:
        """The graph as lists, numbers and strings."""
        rows = [[getattr(one, name) for name in _FIELDS] for one in self.operations]
        return {"operations": rows, "ends": self.ends, "links": self.links}

    @classmethod
    def from_plain(cls, data: Any) -> BackwardGraph:
        """Create a graph from what `plain` returned."""
        rows = [
            BackwardOperation(**dict(zip(_FIELDS, row, strict=True))) for row in data["operations"]
        ]
        return cls(tuple(rows), tuple(data["ends"]), tuple(data["links"]), is_described=True)


_FIELDS = tuple(BackwardOperation.__dataclass_fields__)


def read_graph(graph: GraphModule) -> BackwardGraph:
    """Read a backward graph as plain data; ``graph`` is not changed."""
    found = Reader()
    for node in graph.graph.nodes:
        found.see(node)
    return found.result()


def plain_graph(graph: GraphModule) -> dict[str, Any] | None:
    """The result of `read_graph` as plain data; None if torch has dropped the nodes' metadata."""
    found = read_graph(graph)
    return found.plain() if found.is_described else None


class Reader:
    """Collects the operations of a graph, node by node in order."""

    def __init__(self) -> None:
        self._operations: list[BackwardOperation] = []
        self._ends: list[int] = []
        self._links: dict[tuple[int, int], None] = {}
        self._makers: dict[str, frozenset[int]] = {}
        """Name of a value -> rows of the operations it comes from."""
        self._described = False

    def see(self, node: Node) -> None:
        """Process the next node."""
        inputs = [one.name for one in node.all_input_nodes]
        if node.op == "placeholder":
            self.add_input(node.name)
        elif node.op == "output":
            self.add_output(inputs)
        elif node.op == "call_function" and is_operation(node.target):
            self._described = self._described or "val" in node.meta
            self.add(node.name, _operation(node), inputs)
        elif node.target is operator.getitem:
            self.pass_on(node.name, inputs)

    def add_input(self, name: str) -> None:
        """Add an input of the graph: AOTAutograd names gradients ``tangents_...``."""
        self._makers[name] = frozenset({_OUTSIDE} if name.startswith("tangents") else ())

    def pass_on(self, name: str, inputs: Iterable[str]) -> None:
        """Add a value that is one of ``inputs``, or a part of one."""
        self._makers[name] = frozenset(row for one in inputs for row in self._made(one))

    def add(self, name: str, operation: BackwardOperation, inputs: Iterable[str]) -> None:
        """Add an operation that makes ``name`` from ``inputs``."""
        row = len(self._operations)
        makers = sorted({maker for one in inputs for maker in self._made(one)})
        takes = bool(makers) and makers[0] == _OUTSIDE
        self._links.update(((maker, row), None) for maker in makers if maker != _OUTSIDE)
        self._operations.append(operation)
        self._ends.append(INNER_ENDS.index("takes" if takes else "inside"))
        self._makers[name] = frozenset({row})

    def add_output(self, inputs: Iterable[str]) -> None:
        """Add the values that the graph returns."""
        for row in {maker for one in inputs for maker in self._made(one)} - {_OUTSIDE}:
            takes = self._ends[row] == INNER_ENDS.index("takes")
            self._ends[row] = INNER_ENDS.index("both" if takes else "gives")

    def result(self) -> BackwardGraph:
        """The graph of all nodes processed so far."""
        return BackwardGraph(
            tuple(self._operations), tuple(self._ends), tuple(self._links), self._described
        )

    def _made(self, name: str) -> frozenset[int]:
        return self._makers.get(name, frozenset())


def is_operation(target: Any) -> bool:
    """Whether a call of ``target`` computes tensors."""
    if getattr(target, "__module__", "") in _ARITHMETIC:
        return False
    return not op_name(target).startswith("sym_")


def op_name(target: Any) -> str:
    """``convolution_backward`` for ``aten.convolution_backward.default``."""
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", type(packet).__name__))


def _operation(node: Node) -> BackwardOperation:
    meta = node.meta
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    value = _first_tensor(meta.get("val"))
    filename, line, function, text = _place(meta.get("stack_trace") or "")
    return BackwardOperation(
        op=op_name(node.target),
        modules=tuple((str(path), _class_name(cls)) for path, cls in stack.values()),
        shape="" if value is None else shape_text(value.shape),
        dtype="" if value is None else str(value.dtype).removeprefix("torch."),
        filename=filename,
        line=line,
        function=function,
        text=text,
        accumulates=bool(meta.get("is_gradient_acc")),
    )


def _first_tensor(value: Any) -> Any:
    values = cast("Iterable[Any]", value if isinstance(value, (tuple, list)) else (value,))
    return next((one for one in values if hasattr(one, "dtype")), None)


def _class_name(cls: Any) -> str:
    return cls.__name__ if isinstance(cls, type) else str(cls).rsplit(".", 1)[-1]


def _place(stack_trace: str) -> tuple[str, int, str, str]:
    """The innermost line of user code in a traceback's text."""
    for filename, line, function, text in reversed(_FRAME.findall(stack_trace)):
        if shows_model_code(filename):
            return filename, int(line), function, text.strip()
    return "", 0, "", ""


# The operations of a backward graph in torch's cache, read from the code that it is stored as.
#
# The cache stores a graph as the Python code of its ``forward``, one assignment per node. The code
# is parsed, never run. It shows which operations there are and what they pass on; modules, shapes
# and lines are not in it.


def read_code(code: str) -> BackwardGraph:
    """Read the graph whose ``forward`` is ``code``; without operations if it has another form."""
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
        found.pass_on(target.id, _names(value.value))
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
