"""Records the types of every operation of one step, without changing what runs.

A `TorchDispatchMode` sees each ATen call after autocast has cast its inputs. The mode declares
``ignore_compile_internals``: compiled code runs as compiled, without a recompile, and is not seen
except for the library functions that it calls.

The module of an operation is the innermost one whose call is on the stack: no hook is set. During
backward it is the one whose forward created the running node, found by the node's sequence number.
A node whose number was not recorded (its forward ran before, or on another thread) has no module,
which is reported as unknown.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from workbench.dtypes.operation_types import Types, types_of
from workbench.records.dtypes import DTYPE_PHASES
from workbench.torch_private.autograd import (
    current_sequence,
    in_backward,
    node_number,
    running_node,
)
from workbench.torch_private.contexts import TorchDispatchMode
from workbench.torch_private.dispatch import caller, flops_of, has_formula, is_compiled
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.modules import MODULE_CALL

FORWARD, BACKWARD, UPDATE = range(len(DTYPE_PHASES))
LOSS = "loss"
"""Forward code outside every module, as in `GraphRecord`."""
OPTIMIZER = "optimizer"
"""Name for the update, which belongs to no module."""
UNKNOWN_MODULE = ""


@dataclass(frozen=True)
class Key:
    """The fields by which calls are grouped."""

    phase: int
    op: str
    module: str
    types: Types


@dataclass
class Sums:
    """Sums over all calls of one `Key`."""

    calls: int = 0
    elements: int = 0
    flops: int = 0


class _Inside(NamedTuple):
    """What the stack says about the operation on top of it."""

    path: str
    """Path of the innermost module."""
    in_module: bool
    in_update: bool
    """Whether an optimizer step is running."""


_PRODUCTS_WITHOUT_FORMULA = ("scaled_dot_product", "mkldnn_linear", "_int_mm")


class Recorder(TorchDispatchMode):
    """Counts the calls on this thread, and on autograd's threads for it, while it is entered.

    Args:
        model: the model whose paths name the modules. Other modules are learned when they first
            run.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        self.found: dict[Key, Sums] = {}
        self.uncounted: Counter[str] = Counter()
        """Counts of products for which torch has no FLOP formula."""
        self.phase: int | None = None
        """The current phase; None if it is to be determined from autograd and the stack."""
        self.devices: set[str] = set()
        self._paths: dict[int, str] = {}
        self._parameters: dict[int, str] = {}
        self._roots: list[weakref.ref[nn.Module]] = []
        self._made_by: dict[int, str] = {}
        if model is not None:
            self._add_root(model)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: compiled code must not change because it is observed."""
        return True

    @property
    def models(self) -> list[nn.Module]:
        """The outermost modules that ran and are still alive."""
        return [model for root in self._roots if (model := root()) is not None]

    def compiled(self) -> list[str]:
        """Return the paths of the modules that run compiled code."""
        return [
            self._paths.get(id(module), UNKNOWN_MODULE)
            for model in self.models
            for module in model.modules()
            if is_compiled(module)
        ]

    def release(self) -> None:
        """Release every module."""
        self._paths.clear()
        self._parameters.clear()
        self._made_by.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        inside = self._module(caller())
        if inside.in_module or not in_backward():
            self._made_by.setdefault(current_sequence() - 1, inside.path)
        out = func(*args, **keywords)
        found = types_of(func, args, keywords, out)
        if found is not None:
            phase, module = self._place(inside)
            key = Key(phase, str(func._overloadpacket), module, found)
            self._add(key, func, args, keywords, out)
        return out

    def _add(self, key: Key, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        sums = self.found.setdefault(key, Sums())
        sums.calls += 1
        outputs = cast("tuple[Any, ...]", out if isinstance(out, (tuple, list)) else (out,))
        tensors = [one for one in outputs if isinstance(one, torch.Tensor)]
        sums.elements += sum(one.numel() for one in tensors)
        self.devices.update(str(one.device) for one in tensors)
        if has_formula(func):
            try:
                sums.flops += flops_of(func, args, kwargs, out)
            except Exception:  # noqa: BLE001 - a formula for other arguments: reported in a note
                self.uncounted[key.op] += 1
        elif any(name in key.op for name in _PRODUCTS_WITHOUT_FORMULA):
            self.uncounted[key.op] += 1

    def _place(self, inside: _Inside) -> tuple[int, str]:
        """Return in which phase and module the operation runs."""
        if in_backward():
            if inside.in_module:  # recomputed
                return BACKWARD, inside.path
            return BACKWARD, self._of_node(running_node())
        if self.phase == UPDATE or (self.phase is None and inside.in_update):
            return UPDATE, OPTIMIZER if inside.in_update else UNKNOWN_MODULE
        phase = FORWARD if self.phase is None else self.phase
        # gradients are unscaled and clipped after backward, in no module
        return phase, inside.path if phase == FORWARD else UNKNOWN_MODULE

    def _of_node(self, node: Any) -> str:
        if node is None:
            return UNKNOWN_MODULE
        variable = leaf_of(node)  # for a node that accumulates a parameter's gradient
        if variable is not None:
            return self._parameters.get(id(variable), UNKNOWN_MODULE)
        return self._made_by.get(node_number(node), UNKNOWN_MODULE)

    def _module(self, frame: FrameType | None) -> _Inside:
        innermost: nn.Module | None = None
        outermost: nn.Module | None = None
        in_update = False
        while frame is not None:
            if frame.f_code is MODULE_CALL:
                outermost = frame.f_locals["self"]
                innermost = outermost if innermost is None else innermost
            elif frame.f_code.co_name == "step" and isinstance(
                frame.f_locals.get("self"), torch.optim.Optimizer
            ):
                in_update = True
            frame = frame.f_back
        if innermost is None or outermost is None:
            return _Inside(LOSS, in_module=False, in_update=in_update)
        if id(innermost) not in self._paths:
            self._add_root(outermost)
        path = self._paths.get(id(innermost), UNKNOWN_MODULE)
        return _Inside(path, in_module=True, in_update=in_update)

    def _add_root(self, model: nn.Module) -> None:
        name = type(model).__name__
        prefix = f"{name}." if self._roots else ""
        self._roots.append(weakref.ref(model))
        for path, module in model.named_modules():
            own = f"{prefix}{path}" if path else name
            self._paths.setdefault(id(module), own)
            for parameter in module.parameters(recurse=False):
                self._parameters.setdefault(id(parameter), own)
