"""Torch internals that are read to determine types and where an operation runs; all are here."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# Using private names is this file's purpose.

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch import nn

from workbench.torch_private.lookup import Check, expect, private
from workbench.torch_private.modules import COMPILED_CALL

flop_registry: dict[Any, Any] = private("torch.utils.flop_counter.flop_registry")


def caller() -> FrameType:
    """Return the frame that called the caller of this function."""
    return sys._getframe(2)


def is_compiled(module: nn.Module) -> bool:
    """Return whether calls of ``module`` run compiled code."""
    if type(module).__name__ == "OptimizedModule":
        return True
    return getattr(module, COMPILED_CALL, None) is not None


def has_formula(operation: Any) -> bool:
    """Return whether torch has a FLOP formula for it: matrices, convolutions, fused attention."""
    return operation._overloadpacket in flop_registry


def flops_of(operation: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Return the FLOPs of a product by torch's own formula.

    Raises:
        Exception: the formula does not accept these arguments.
    """
    return int(flop_registry[operation._overloadpacket](*args, **kwargs, out_val=out))


# -- checks ---------------------------------------------------------------------------------


def _check_formula() -> None:
    import torch

    product = torch.ops.aten.mm.default
    expect(has_formula(product), "a product has no formula")
    a, b = torch.ones(2, 3, device="cpu"), torch.ones(3, 4, device="cpu")
    expect(flops_of(product, (a, b), {}, a @ b) == 48, "a product has another number of FLOPs")
    expect(not has_formula(torch.ops.aten.relu.default), "a function of one number has a formula")


CHECKS = (
    Check(
        ("torch.utils.flop_counter.flop_registry", "torch._ops.OpOverload._overloadpacket"),
        "FLOPs",
        _check_formula,
    ),
)
