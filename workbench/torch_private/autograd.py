"""The private parts of torch on which a capture is built, each wrapped once.

Everything here was read in torch 2.13 and has a test that fails when it moves
(``tests/unit/torch_private/test_autograd.py``). Nothing here may read a ``_saved_*`` attribute of a
node that holds hooks: unpacking runs user code, and under non-reentrant checkpointing it runs the
forward again. ``_raw_saved_*`` with ``.data`` reads without unpacking
(``torch/csrc/autograd/python_saved_variable_hooks.cpp``, ``saved_variable.cpp``).
"""

# pyright: reportPrivateUsage=false
# (this file exists to hold the private uses)

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import torch

from workbench.torch_private.distributed import sharded_together
from workbench.torch_private.modules import COMPILED_CALL

if TYPE_CHECKING:
    from torch import nn
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

LEAF_SEQUENCE = 2**64 - 1
"""Sequence number of `AccumulateGrad`, the largest one, so that backward runs it first."""

current_sequence: Callable[[], int] = cast(Any, torch.autograd)._get_sequence_nr
"""Return the sequence number that the next autograd node of this thread will get."""
set_grad_enabled: Callable[[bool], None] = cast(Any, torch._C)._set_grad_enabled
"""Function that ``torch.no_grad()`` and similar ones call; a `TorchFunctionMode` sees the call."""


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that ``tensor`` is a view of, None if it is not a view."""
    return tensor._base


def node_number(node: Any) -> int:
    """Return the sequence number of ``node``, `LEAF_SEQUENCE` for leaves."""
    return node._sequence_nr()


def node_sequence(node: Node) -> int:
    """Return the creation order of ``node`` within its thread, -1 for leaves."""
    number = node_number(node)
    return -1 if number == LEAF_SEQUENCE else number


def node_type(node: Node) -> str:
    """Return ``AddBackward0``; the C++ name for nodes that have no Python class of their own."""
    name = type(node).__name__
    return node.name().rsplit("::", 1)[-1] if name == "CppFunction" else name


def output_metadata(node: Node) -> tuple[Any, ...]:
    """Return one entry per forward output, with ``shape``, ``dtype`` and ``device``."""
    return tuple(node._input_metadata)  # type: ignore[attr-defined]


def forward_class(node: Node) -> type | None:
    """Return the `torch.autograd.Function` subclass behind a Python node, else None."""
    return getattr(node, "_forward_cls", None)


def raw_slots(node_class: type) -> tuple[str, ...]:
    """Return the names of the ``_raw_saved_*`` attributes of a node class."""
    return tuple(name for name in dir(node_class) if name.startswith("_raw_saved_"))


def raw_values(node: Node, slot: str) -> list[Any]:
    """Return what the `SavedTensor` objects of one slot hold, not unpacked; None for an empty one.

    A value is a tensor, or whatever a pack hook returned.
    """
    try:
        saved: Any = getattr(node, slot)
    except RuntimeError:  # a Python node whose tensors backward has freed
        return [None]
    if saved is None:
        return []
    values: Any = saved if isinstance(saved, (tuple, list)) else (saved,)
    return [None if value is None else value.data for value in values]


def values_as_saved(node: Node, slot: str) -> list[torch.Tensor]:
    """Return the tensors of one slot that are unchanged since the node saved them, unpacked.

    The node's own output gets the node as its ``grad_fn`` again. The result is empty if a hook
    packed one of the tensors (unpacking would run it), if backward freed them, or if one was
    written to since (torch then refuses the backward).
    """
    try:
        raw: Any = getattr(node, slot)
        saved: Any = raw if isinstance(raw, (tuple, list)) else (raw,)
        if any(one is not None and one.unpack_hook is not None for one in saved):
            return []
        values: Any = getattr(node, _unpacked(slot))
    except RuntimeError:
        return []
    values = values if isinstance(values, (tuple, list)) else (values,)
    return [value for value in values if isinstance(value, torch.Tensor)]


def is_freed(node: Node, slot: str) -> bool:
    """Return whether backward freed an *empty* slot (one whose raw value is None).

    Reading the unpacked attribute is safe only in this case: an empty slot holds no hooks.
    """
    try:
        getattr(node, _unpacked(slot))
    except RuntimeError:
        return True
    return False


def _unpacked(slot: str) -> str:
    """Return the attribute that returns the contents of ``slot`` unpacked."""
    return "saved_tensors" if slot == "_raw_saved_tensors" else slot[len("_raw") :]


has_functorch_wrapper: Callable[[torch.Tensor], bool] = cast(
    Any, torch._C
)._functorch.is_functorch_wrapped_tensor
"""Whether a tensor represents another one inside `torch.func.grad` or `vmap`; it has no storage."""


def gathered_parameters(module: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    """Return (owner, name, tensor) of the parameters that FSDP2 swaps in whole as ``module`` runs.

    The same tensors are used in every step; there are none before the first. Empty for a module
    that `fully_shard` was not applied to.
    """
    found = [
        (
            one._module_info.module,
            one._module_info.param_name,
            getattr(one, "_unsharded_param", None),
        )
        for one in sharded_together(module)
    ]
    return [(owner, name, tensor) for owner, name, tensor in found if tensor is not None]


HOOK_TABLES = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
"""Attributes of a module that store its forward hooks, by the hook's id."""


def compiled_call(module: nn.Module) -> Callable[..., Any] | None:
    """Return what ``module.compile()`` installed in place of the module's call, else None."""
    return module.__dict__.get(COMPILED_CALL)


def set_compiled_call(module: nn.Module, call: Callable[..., Any] | None) -> None:
    """Replace what ``module.compile()`` installed; None removes it."""
    module.__dict__[COMPILED_CALL] = call
    if call is None:
        del module.__dict__[COMPILED_CALL]


def has_compiled_forward(module: nn.Module) -> bool:
    """Return whether ``module.forward`` is a `torch.compile` product (also of the whole module)."""
    forward = getattr(module, "forward", None)
    if getattr(forward, "_torchdynamo_disable", False):
        return False
    return hasattr(forward, "_torchdynamo_orig_callable")


def unseen_by_dynamo(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``hook`` in a form that Dynamo does not compile when it watches every Python frame.

    The hook gets one more keyword, ``under_dynamo``: whether Dynamo was watching, that is, whether
    the hooked module runs inside a `torch.compile` call.
    """
    import torch._C._dynamo.eval_frame as native  # the C half: importing Dynamo takes a second

    frames: Any = native
    set_eval_frame: Callable[[Any], Any] = frames.set_eval_frame

    def call(*args: Any, **kwargs: Any) -> Any:
        watching = set_eval_frame(None)
        try:
            return hook(*args, under_dynamo=watching is not None, **kwargs)
        finally:
            set_eval_frame(watching)

    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    frames.set_code_exec_strategy(call.__code__, skip)
    return call


def hook_table(handle: RemovableHandle) -> dict[int, Any]:
    """Return the table that stores the hook of a newly made handle, by the handle's ``id``."""
    return cast(Any, handle).hooks_dict_ref()


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call ``callback`` when the current backward has ended; not if it raises.

    To be called from a hook of a node. The engine waits for its streams first
    (``GraphTask::exec_post_processing``, ``torch/csrc/autograd/engine.cpp``).
    """
    engine: Any = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
    engine.queue_callback(callback)


current_backward: Callable[[], int] = cast(Any, torch._C)._current_graph_task_id
"""Return the id of the current backward, the same on all its threads; -1 outside of one."""


def in_backward() -> bool:
    """Return whether autograd's engine is running on this thread, also between two nodes."""
    return current_backward() != -1


def running_node() -> Any | None:
    """Return the autograd node whose backward runs on this thread, or None."""
    return torch._C._current_autograd_node()


def in_compiled_autograd() -> bool:
    """Return whether compiled autograd runs, or traces, the calling hook.

    Dynamo itself answers the first question while it traces.
    """
    if torch.compiler.is_dynamo_compiling():
        return True
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "in_compiled_autograd_region", False))


without_functions: Callable[[], AbstractContextManager[None]] = cast(
    Any, torch._C.DisableTorchFunction
)
"""While entered, no `TorchFunctionMode` and no ``__torch_function__`` sees a call."""
without_dispatch: Callable[[], AbstractContextManager[None]] = cast(
    Any, torch._C._DisableTorchDispatch
)
"""While entered, no `TorchDispatchMode` and no ``__torch_dispatch__`` sees an operation."""
