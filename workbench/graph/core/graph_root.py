"""The node that a graph is captured from: the one that made the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.torch_private.autograd import has_functorch_wrapper, without_functions
from workbench.torch_private.tensors import unwrapped

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

LEAF_TYPE = "AccumulateGrad"
COMPILED_TYPE = "CompiledFunctionBackward"


class NoGraphError(ValueError):
    """A tensor has no autograd graph; the message says why and what to do."""


def root_of(loss: torch.Tensor) -> Node:
    """The node that made ``loss``.

    Raises:
        NoGraphError: ``loss`` has no ``grad_fn``; the message says for which reason.
    """
    with without_functions():
        return _root_of(loss)


def _root_of(loss: torch.Tensor) -> Node:
    node = loss.grad_fn
    while node is None and has_functorch_wrapper(loss):  # `vmap` works on a graph further out
        loss = unwrapped(loss)
        node = loss.grad_fn
    if node is not None:
        return node
    if loss.requires_grad:
        raise NoGraphError(
            "this tensor is a leaf: it requires grad but no operation made it; "
            "pass the loss that was computed from it"
        )
    if not loss.is_floating_point() and not loss.is_complex():
        raise NoGraphError(
            f"this tensor is {str(loss.dtype).removeprefix('torch.')}, which cannot carry "
            "gradients; pass the floating point loss"
        )
    raise NoGraphError(
        "this tensor has no grad_fn: it was detached, made under torch.no_grad() or "
        "torch.inference_mode(), or made from tensors that do not require grad; pass the loss "
        "itself, before .detach() or .item()"
    )
