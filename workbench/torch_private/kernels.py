"""Kernels over many tensors at once for which torch has no public name.

`torch.optim`, `torch.nn.utils.clip_grad_norm_` and `torch.amp.GradScaler` use the same kernels.
With a torch that lacks one, the same is computed a tensor at a time: training goes on, slower.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.torch_private.lookup import Check, expect, is_missing, private

_norm: Callable[..., Sequence[torch.Tensor]] = private("torch._foreach_norm")
_copy: Callable[..., Any] = private("torch._foreach_copy_")
_check_and_unscale: Callable[..., Any] = private("torch._amp_foreach_non_finite_check_and_unscale_")


def norms_of(
    tensors: Sequence[torch.Tensor], order: float, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    """Return the norm of each of ``tensors`` (strided, real, of one dtype), on its device."""
    if is_missing(_norm):
        return tuple(torch.linalg.vector_norm(one, order, dtype=dtype) for one in tensors)
    return tuple(_norm(list(tensors), order, dtype=dtype))


def copy_all(into: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    """Copy each tensor of ``source`` into the one with the same index in ``into``."""
    if is_missing(_copy):
        for one, other in zip(into, source, strict=True):
            one.copy_(other)
        return
    _copy(into, source)


def flag_non_finite(tensors: list[torch.Tensor], flag: torch.Tensor, scale: torch.Tensor) -> None:
    """Set ``flag`` to 1 if a value of ``tensors`` is not finite, and multiply all by ``scale``.

    Args:
        tensors: floating-point tensors on one device.
        flag: one float32 value on that device.
        scale: one float32 value on that device; 1 leaves the tensors as they are.
    """
    if is_missing(_check_and_unscale):
        for one in tensors:
            flag.masked_fill_(~one.isfinite().all(), 1)
            one.mul_(scale)
        return
    _check_and_unscale(tensors, flag, scale)


# -- checks ---------------------------------------------------------------------------------


def _tensors() -> list[torch.Tensor]:
    return [torch.full((size,), 2.0, device="cpu", dtype=torch.float32) for size in (1, 4)]


def _check_norms() -> None:
    _refuse_missing(_norm)
    expect([float(norm) for norm in norms_of(_tensors(), 2)] == [2.0, 4.0], "norms are others")


def _check_copies() -> None:
    _refuse_missing(_copy)
    into = [torch.zeros_like(one) for one in _tensors()]
    copy_all(into, _tensors())
    expect(all(map(torch.equal, into, _tensors())), "copies are others")


def _check_flags() -> None:
    _refuse_missing(_check_and_unscale)
    for value, raised in ((1.0, 0.0), (torch.inf, 1.0)):
        tensors, flag = _tensors(), torch.zeros(1, device="cpu", dtype=torch.float32)
        tensors[1][0] = value
        flag_non_finite(tensors, flag, torch.ones((), device="cpu", dtype=torch.float32))
        expect(flag.item() == raised, f"the flag of {value} is {flag.item()}")


def _refuse_missing(kernel: Callable[..., Any]) -> None:
    if is_missing(kernel):
        kernel()


_SLOWER = "the same is computed a tensor at a time, which is slower"

CHECKS = (
    Check(("torch._foreach_norm",), "norms of gradients", _check_norms, _SLOWER),
    Check(("torch._foreach_copy_",), "copies of weights", _check_copies, _SLOWER),
    Check(
        ("torch._amp_foreach_non_finite_check_and_unscale_",),
        "finding gradients that are not finite",
        _check_flags,
        _SLOWER,
    ),
)
