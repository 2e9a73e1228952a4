"""The leaves of a graph: the tensors that a backward adds gradients to.

Torch's own node for a leaf calls it ``variable``. A `torch.autograd.Function` of the user's may use
this name for anything (attributes of its ``ctx`` are attributes of its node), so a leaf is
identified by the node's type.
"""

# pyright: reportPrivateUsage=false
# Torch has no public name for the node.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from workbench.torch_private.lookup import Check, expect, is_missing, private

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_ACCUMULATE: type = private("torch._C._functions.AccumulateGrad")
_IS_MISSING = is_missing(_ACCUMULATE)

DEEP = 4_000
"""Number of nodes from which a graph may be too deep to be freed the normal way once Python has
accessed its nodes (torch 2.12 and newer); a crash takes about 40,000 on an 8 MiB stack."""


def leaf_of(node: Any) -> torch.Tensor | None:
    """Return the leaf whose ``.grad`` the node accumulates; None for other nodes and for None."""
    if type(node) is _ACCUMULATE:
        return node.variable
    if _IS_MISSING:
        _ACCUMULATE()
    return None


def leaves_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaves that backward from ``loss`` reaches, those nearest to it first.

    Only a part of a graph of more than `DEEP` nodes is searched. What a Python function hides is
    not found: a backward inside it (a reentrant checkpoint), or gradients that it stores elsewhere
    (FSDP).
    """
    if loss.grad_fn is None:
        return [loss]
    order: list[Node] = [loss.grad_fn]
    seen: set[Node] = {loss.grad_fn}
    leaves: list[torch.Tensor] = []
    for node in order:  # grows while it is read: breadth first
        if len(order) > DEEP:
            break
        for other, _ in node.next_functions:
            if other is None or other in seen:
                continue
            seen.add(other)
            leaf = leaf_of(other)
            if leaf is None:
                order.append(other)
            else:
                leaves.append(leaf)
    return leaves


# -- checks ---------------------------------------------------------------------------------


def _check_leaf() -> None:
    leaf = torch.ones(2, device="cpu", requires_grad=True)
    (found,) = leaves_of(leaf * 2)
    expect(found is leaf, "a graph ends at another leaf")


CHECKS = (
    Check(
        ("torch._C._functions.AccumulateGrad", "torch.autograd.graph.Node.variable"),
        "the parameters at the end of a graph",
        _check_leaf,
        vital_for=("graphs",),
    ),
)
