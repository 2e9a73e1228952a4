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
from workbench.torch_private.lookup import Check, expect, nothing, private
from workbench.torch_private.modules import COMPILED_CALL

if TYPE_CHECKING:
    from torch import nn
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

LEAF_SEQUENCE = 2**64 - 1
"""Sequence number of `AccumulateGrad`, the largest one, so that backward runs it first."""

current_sequence: Callable[[], int] = private("torch.autograd._get_sequence_nr")
"""Return the sequence number that the next autograd node of this thread will get."""
set_grad_enabled: Callable[[bool], None] = private("torch._C._set_grad_enabled")
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


has_functorch_wrapper: Callable[[torch.Tensor], bool] = private(
    "torch._C._functorch.is_functorch_wrapped_tensor"
)
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
    _engine.queue_callback(callback)


_engine: Any = private("torch.autograd.Variable._execution_engine")
current_backward: Callable[[], int] = private("torch._C._current_graph_task_id")
"""Return the id of the current backward, the same on all its threads; -1 outside of one."""


def in_backward() -> bool:
    """Return whether autograd's engine is running on this thread, also between two nodes."""
    return current_backward() != -1


running_node: Callable[[], Any | None] = private("torch._C._current_autograd_node")
"""Return the autograd node whose backward runs on this thread, or None."""


def in_compiled_autograd() -> bool:
    """Return whether compiled autograd runs, or traces, the calling hook.

    Dynamo itself answers the first question while it traces.
    """
    if torch.compiler.is_dynamo_compiling():
        return True
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "in_compiled_autograd_region", False))


without_functions: Callable[[], AbstractContextManager[None]] = private(
    "torch._C.DisableTorchFunction"
)
"""While entered, no `TorchFunctionMode` and no ``__torch_function__`` sees a call."""
without_dispatch: Callable[[], AbstractContextManager[None]] = private(
    "torch._C._DisableTorchDispatch"
)
"""While entered, no `TorchDispatchMode` and no ``__torch_dispatch__`` sees an operation."""


# -- checks ---------------------------------------------------------------------------------


def _leaf() -> torch.Tensor:
    return torch.ones(2, 3, device="cpu", dtype=torch.float32, requires_grad=True)


def _node(tensor: torch.Tensor) -> Any:
    expect(tensor.grad_fn is not None, "an operation on a leaf has no node")
    return tensor.grad_fn


def _check_numbers() -> None:
    first = _leaf() * 2
    second = first + 1
    leaf: Any = _node(first).next_functions[0][0]
    expect(node_sequence(_node(second)) == node_sequence(_node(first)) + 1, "nodes skip a number")
    expect(current_sequence() == node_sequence(_node(second)) + 1, "the next number is another one")
    expect(node_sequence(leaf) == -1, "a leaf has a number of its own")


def _check_metadata() -> None:
    (metadata,) = output_metadata(_node(_leaf().double() * 2))
    expect(tuple(metadata.shape) == (2, 3), "an output has another shape")
    expect(metadata.dtype is torch.float64, "an output has another dtype")
    expect(metadata.device == torch.device("cpu"), "an output is on another device")


def _check_saved() -> None:
    leaf = _leaf()
    saved = leaf.exp()
    product = saved * leaf
    node, slots = _node(product), raw_slots(type(_node(product)))
    expect(set(slots) == {"_raw_saved_self", "_raw_saved_other"}, f"slots are {slots}")
    (value,) = raw_values(node, "_raw_saved_self")
    expect(torch.equal(value, saved), "a slot holds another tensor")
    (unpacked,) = values_as_saved(node, "_raw_saved_self")
    expect(unpacked.grad_fn is saved.grad_fn, "an unpacked tensor has another node")
    expect(not is_freed(node, "_raw_saved_self"), "a slot is freed before backward")
    product.sum().backward()
    expect(raw_values(node, "_raw_saved_self") == [None], "a slot is not freed by backward")
    expect(is_freed(node, "_raw_saved_self"), "a slot is not freed by backward")

    def fail(_: object) -> torch.Tensor:
        raise AssertionError("reading a slot runs the hook that unpacks it")

    hooks = torch.autograd.graph.saved_tensors_hooks(lambda _: "packed", fail)
    with hooks:
        node = _node(_leaf().exp())
    expect(raw_values(node, "_raw_saved_result") == ["packed"], "a slot hides what a hook packed")
    expect(values_as_saved(node, "_raw_saved_result") == [], "a hook on a slot is not seen")


def _check_view() -> None:
    tensor = torch.zeros(2, 3, device="cpu")
    expect(base_of(tensor[0]) is tensor, "a view has another base")
    expect(base_of(tensor) is None, "a tensor that is no view has a base")


def _check_function() -> None:
    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - its signature
            return gradients[0]

    result: torch.Tensor = cast(Any, Identity).apply(_leaf())
    expect(forward_class(_node(result)) is Identity, "a node does not name its Function")


def _check_grad_mode() -> None:
    from torch.overrides import TorchFunctionMode

    seen: list[Any] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is set_grad_enabled:
                seen.append(args[0])
            return func(*args, **(kwargs or {}))

    with Watch(), torch.no_grad():
        pass
    expect(seen == [False, True], f"a mode sees {seen} of torch.no_grad()")


def _check_transforms() -> None:
    seen: list[bool] = []

    def inspect(value: torch.Tensor) -> torch.Tensor:
        seen.append(has_functorch_wrapper(value))
        return value.sum()

    plain = torch.ones(2, 3, device="cpu")
    cast(Any, torch.func.vmap)(inspect)(plain)
    expect(seen == [True] and not has_functorch_wrapper(plain), "wrappers are not recognised")


def _check_hook_tables() -> None:
    module = torch.nn.Identity()
    handles = [
        module.register_forward_pre_hook(nothing, with_kwargs=True),
        module.register_forward_hook(nothing, with_kwargs=True, always_call=True),
    ]
    ids = {cast(Any, handle).id for handle in handles}
    tables = [vars(module)[name] for name in HOOK_TABLES]
    expect(all(ids & set(table) for table in tables), "a hook is in another table")


def _check_compiled_module() -> None:
    of_class: Any = torch.nn.Module
    expect(getattr(of_class, COMPILED_CALL, "") is None, "a module that is not compiled has a call")
    used = of_class._wrapped_call_impl.__code__.co_names
    expect(COMPILED_CALL in used, f"a module's call does not use {COMPILED_CALL}")


def _check_unseen_hook() -> None:
    seen: list[bool] = []

    def hook(*, under_dynamo: bool) -> None:
        seen.append(under_dynamo)

    unseen_by_dynamo(hook)()
    expect(seen == [False], "a hook does not know that Dynamo is not watching")


def _check_node_hooks() -> None:
    node = _node(_leaf().exp())
    for register in (node.register_prehook, node.register_hook):
        handle = register(print)
        expect(hook_table(handle) == {handle.id: print}, "a hook of a node is in another table")


def _check_backward() -> None:
    seen: list[Any] = []
    loss = (_leaf() * 2).sum()
    node = _node(loss)

    def inspect(*_: object) -> None:
        seen.append((in_backward(), running_node()))
        at_end_of_backward(lambda: seen.append("end"))

    node.register_prehook(inspect)
    loss.backward()
    expect([one if one == "end" else one[0] for one in seen] == [True, "end"], f"hooks saw {seen}")
    expect(node_number(seen[0][1]) == node_number(node), "another node is running")
    expect(not in_backward(), "a backward that has ended is running")


def _check_blind() -> None:
    from torch.overrides import TorchFunctionMode

    from workbench.torch_private.contexts import TorchDispatchMode

    seen: list[Any] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    tensor = torch.ones(2, 2, device="cpu")
    with Functions(), Operations(), without_functions(), without_dispatch():
        tensor.mm(tensor)
    expect(not seen, f"modes see {seen}, which is to be hidden from them")
    with Functions():  # an operation under the other mode would import the compiler
        tensor.mm(tensor)
    expect(len(seen) == 1, f"modes see {seen} of one product")


_N = "torch.autograd.graph.Node"

CHECKS = (
    Check(
        ("torch.autograd._get_sequence_nr", f"{_N}._sequence_nr"),
        "the order of operations",
        _check_numbers,
        vital_for=("graphs", "memory"),
    ),
    Check(
        (f"{_N}._input_metadata",),
        "shapes and dtypes",
        _check_metadata,
        concerns=("graphs",),
        vital_for=("graphs",),
    ),
    Check(
        (
            f"{_N}._raw_saved_self",
            f"{_N}._saved_self",
            "torch._C._autograd.SavedTensor.data",
            "torch._C._autograd.SavedTensor.unpack_hook",
        ),
        "the tensors that are kept for backward",
        _check_saved,
        concerns=("graphs",),
        vital_for=("graphs",),
    ),
    Check(
        ("torch._C.TensorBase._base",), "which tensors are views", _check_view, concerns=("graphs",)
    ),
    Check(
        ("torch.autograd.function.BackwardCFunction._forward_cls",),
        "the names of custom Functions",
        _check_function,
        concerns=("graphs",),
    ),
    Check(
        ("torch._C._set_grad_enabled",),
        "where gradients are turned off",
        _check_grad_mode,
        concerns=("graphs",),
    ),
    Check(
        ("torch._C._functorch.is_functorch_wrapped_tensor",),
        "tensors inside torch.func transforms",
        _check_transforms,
        concerns=("graphs",),
        vital_for=("graphs",),
    ),
    Check(
        tuple(f"torch.nn.Module.{name}" for name in HOOK_TABLES),
        "the hooks of a module",
        _check_hook_tables,
        concerns=("graphs",),
        vital_for=("graphs",),
    ),
    Check(
        (f"torch.nn.Module.{COMPILED_CALL}",),
        "compiled modules",
        _check_compiled_module,
        concerns=("graphs",),
    ),
    Check(
        (
            "torch._C._dynamo.eval_frame.set_eval_frame",
            "torch._C._dynamo.eval_frame._FrameExecStrategy",
            "torch._C._dynamo.eval_frame._FrameAction",
            "torch._C._dynamo.eval_frame.set_code_exec_strategy",
        ),
        "hooks that do not recompile the model",
        _check_unseen_hook,
        concerns=("graphs",),
    ),
    Check(
        ("torch.utils.hooks.RemovableHandle.hooks_dict_ref",),
        "hooks of nodes",
        _check_node_hooks,
        concerns=("graphs",),
        vital_for=("graphs",),
    ),
    Check(
        (
            "torch._C._current_graph_task_id",
            "torch._C._current_autograd_node",
            "torch.autograd.Variable._execution_engine",
        ),
        "which backward is running",
        _check_backward,
    ),
    Check(
        ("torch._C.DisableTorchFunction", "torch._C._DisableTorchDispatch"),
        "reading tensors without being seen by modes",
        _check_blind,
        vital_for=("graphs",),
    ),
)
