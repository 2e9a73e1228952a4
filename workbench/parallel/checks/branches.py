"""Models that branch on their data, laid over ranks that see different data.

Each rank has its own part of a batch, so a model that asks its data may take a block on one rank
and leave it out on another. `DistributedDataParallel` knows such parameters and averages with
zeros. FSDP does not: it gathers and reduces block by block, and ranks that take different blocks
wait for each other for good. For such a model all parameters are one group, gathered before the
forward by every rank alike, and where another rank has reached a parameter that this one has not,
its gradient here is zero and not missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from workbench.torch_private.contexts import TorchDispatchMode
from workbench.torch_private.graph_leaves import leaf_of

_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Of what reads a value (`.item()`, `bool(...)`, `equal`) or makes a shape of one (`nonzero`)."""
_READERS = {"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage"}
"""Methods of a tensor that hand out its memory, which no operation is called for."""
_INDEX = torch.ops.aten.index.Tensor
_MASKS = (torch.bool, torch.uint8)


class AsksItsData(TorchDispatchMode):
    """Notices whether anything inside reads a value off a tensor, as ``if x.mean() > 0`` does.

    Or makes a shape of values, as ``x[mask]`` does, or has a tensor's memory read (``tolist``).
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self._methods = _Readers()

    def __enter__(self) -> AsksItsData:
        """Look at methods too, which call no operation on the CPU."""
        self._methods.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Look no longer."""
        super().__exit__(*error)
        self._methods.__exit__(*error)
        self.found = self.found or self._methods.found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look at one operation."""
        self.found = self.found or _asks(func, args)
        return cast("Callable[..., Any]", func)(*args, **(kwargs or {}))


class _Readers(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look at one method or function."""
        self.found = self.found or getattr(func, "__name__", "") in _READERS
        return cast("Callable[..., Any]", func)(*args, **(kwargs or {}))


def _asks(func: Any, args: Any) -> bool:
    if func is _INDEX:  # of integers it has their shape
        return any(one is not None and one.dtype in _MASKS for one in args[1])
    return not _TAGS.isdisjoint(func.tags)


def reached(model: nn.Module, loss: torch.Tensor) -> list[bool]:
    """Of each parameter, whether backward from ``loss`` gets to it."""
    leaves = {id(leaf) for leaf in _leaves(loss)}
    return [id(parameter) in leaves for parameter in model.parameters()]


def zero_for(model: nn.Module, wanted: list[bool]) -> torch.Tensor | None:
    """A term for the loss, zero in value and in gradient, that reaches what is ``wanted``.

    None where nothing is.
    """
    terms = [
        parameter.reshape(-1)[0] * 0
        for parameter, is_wanted in zip(model.parameters(), wanted, strict=True)
        if is_wanted and parameter.requires_grad and parameter.numel()
    ]
    return torch.stack([term.float() for term in terms]).sum() if terms else None


def nodes_below(tensor: torch.Tensor) -> Iterator[Any]:
    """Every node of the graph that backward from ``tensor`` goes through, each once."""
    seen: set[Any] = set()
    waiting: list[Any] = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def _leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """Every leaf that backward from ``loss`` would add a gradient to."""
    return (leaf for node in nodes_below(loss) if (leaf := leaf_of(node)) is not None)
