"""Inputs and outputs of one torch function, as far as the autograd graph is concerned."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from workbench.graph.core.source_lines import applied_function, op_name
from workbench.graph.forward.graph_exits import CHECKPOINT

if TYPE_CHECKING:
    from workbench.records.graph import UnreachedReason

_WRITES = frozenset({"__setitem__", "__set__"})
"""Calls that return nothing and change their first argument."""
_DETACHED = frozenset({"detach", "detach_", "data", "tensor"})
_CASTS = frozenset({"to", "type", "long", "int", "short", "char", "byte", "bool", "type_as"})
ESCAPES = {
    **dict.fromkeys(("item", "float", "int", "complex"), "a Python number"),
    "tolist": "Python numbers",
    "numpy": "a NumPy array",
    "array": "a NumPy array",
}
"""Calls after which a value is no longer a tensor, and what it is then."""
_LONG = 64
"""A sequence this long that starts with a number or a string holds no tensors."""


class TorchCall(NamedTuple):
    """A torch function and its arguments."""

    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, nested ones included."""
        found: list[torch.Tensor] = []
        gather(self.args, found)
        if self.kwargs:
            gather(self.kwargs.values(), found)
        return found


class Made(NamedTuple):
    """The nodes that a call made: numbers ``first`` to ``last - 1``, and its row in the calls."""

    first: int
    last: int
    call: int


@dataclass
class Look:
    """One call that is inspected closely."""

    op: str
    taken: list[torch.Tensor]
    """Tensors it took that require grad and that it did not merely write to."""
    given: list[torch.Tensor]
    """Tensors it returned, including the one it wrote to."""
    written: torch.Tensor | None
    mask: int
    """The graph exits that its inputs come from."""


def look_at(func: Any, taken: list[torch.Tensor], given: list[torch.Tensor], mask: int) -> Look:
    """Sort inputs and outputs of ``func``; ``mask`` is the exits that its inputs come from."""
    op, name = op_name(func), getattr(func, "__name__", "")
    writes = name in _WRITES or (name.endswith("_") and not name.startswith("_"))
    written = taken[0] if writes else None
    sources = [tensor for tensor in taken if tensor.requires_grad and tensor is not written]
    if op.endswith("_like") or op.startswith("new_"):  # only its shape, dtype and device count
        sources = [tensor for tensor in sources if tensor is not taken[0]]
    if written is not None:
        given = [written, *(tensor for tensor in given if tensor is not written)]
    return Look(op, sources, given, written, mask)


def gather(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    """Add the tensors among ``values``, or in lists, tuples and dictionaries among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
            continue
        kind = cast("type[Any]", type(value))
        if kind is dict:
            gather(value.values(), found)
        elif issubclass(kind, (list, tuple)):
            inner = cast("Sequence[Any]", value)
            plain = (int, float, str, bool)
            if len(inner) < _LONG or not isinstance(inner[0], plain):
                gather(inner, found)


def exit_reason(
    look: Look, result: torch.Tensor, *, is_off: bool
) -> tuple[UnreachedReason, str, str] | None:
    """Reason, operation and how, for a ``result`` without gradient; None if it is no graph exit.

    Args:
        look: the call that returned it.
        result: one of the tensors it returned.
        is_off: whether Python code turned gradients off.
    """
    if look.op in _DETACHED:
        return "detached", look.op, "through .data" if look.written is not None else ""
    if not torch.is_grad_enabled():
        if torch.is_inference_mode_enabled():
            return "no_grad", look.op, "torch.inference_mode()"
        function = applied_function(sys._getframe())  # pyright: ignore[reportPrivateUsage]
        if function is not None and function.is_checkpoint:
            return "no_grad", look.op, CHECKPOINT
        if is_off:
            return "no_grad", look.op, "torch.no_grad()"
        if function is None:  # a hook in backward
            return None
        return "not_differentiable", function.name, "custom Function"
    is_float = result.dtype.is_floating_point or result.dtype.is_complex
    how = "" if is_float else str(result.dtype).removeprefix("torch.")
    return "not_differentiable", look.op, how if look.op in _CASTS else ""
