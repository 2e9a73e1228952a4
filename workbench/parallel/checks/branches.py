"""Models that branch on their data, laid out over ranks that see different data.

Each rank has its own part of a batch, so a model that reads its data may run a block on one rank
and skip it on another. `DistributedDataParallel` handles such parameters by averaging with zeros.
FSDP does not: it gathers and reduces block by block, and ranks that take different blocks wait for
each other forever. For such a model all parameters form one group, which every rank gathers before
the forward, and where another rank has reached a parameter that this one has not, its gradient here
is zero instead of missing.
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
"""Tags of operations that read a value (`.item()`, `bool(...)`, `equal`) or make a shape of one
(`nonzero`)."""
_READERS = {"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage"}
"""Methods of a tensor that expose its memory, for which no operation is called."""
_INDEX = torch.ops.aten.index.Tensor
_MASKS = (torch.bool, torch.uint8)


class AsksItsData(TorchDispatchMode):
    """Detects whether anything inside reads a value from a tensor, as ``if x.mean() > 0`` does.

    Also detects a shape made of values, as by ``x[mask]``, and reads of a tensor's memory
    (``tolist``).
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self._methods = _Readers()

    def __enter__(self) -> AsksItsData:
        """Observe methods too, which call no operation on the CPU."""
        self._methods.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop observing."""
        super().__exit__(*error)
        self._methods.__exit__(*error)
        self.found = self.found or self._methods.found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check one operation."""
        self.found = self.found or _asks(func, args)
        return cast("Callable[..., Any]", func)(*args, **(kwargs or {}))


class _Readers(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check one method or function."""
        self.found = self.found or getattr(func, "__name__", "") in _READERS
        return cast("Callable[..., Any]", func)(*args, **(kwargs or {}))


def _asks(func: Any, args: Any) -> bool:
    if func is _INDEX:  # indexed by integers, the result has their shape
        return any(one is not None and one.dtype in _MASKS for one in args[1])
    return not _TAGS.isdisjoint(func.tags)


def reached(model: nn.Module, loss: torch.Tensor) -> list[bool]:
    """Return for each parameter whether backward from ``loss`` reaches it."""
    leaves = {id(leaf) for leaf in _leaves(loss)}
    return [id(parameter) in leaves for parameter in model.parameters()]


def zero_for(model: nn.Module, wanted: list[bool]) -> torch.Tensor | None:
    """Return a term for the loss, zero in value and gradient, that reaches what is ``wanted``.

    None where nothing is wanted.
    """
    terms = [
        parameter.reshape(-1)[0] * 0
        for parameter, is_wanted in zip(model.parameters(), wanted, strict=True)
        if is_wanted and parameter.requires_grad and parameter.numel()
    ]
    return torch.stack([term.float() for term in terms]).sum() if terms else None


def nodes_below(tensor: torch.Tensor) -> Iterator[Any]:
    """Yield every node of the graph that backward from ``tensor`` visits, each once."""
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
