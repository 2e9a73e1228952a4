"""Kernels over many tensors at once for which torch has no public name.

`torch.optim`, `torch.nn.utils.clip_grad_norm_` and `torch.amp.GradScaler` use the same kernels.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence

import torch


def norms_of(
    tensors: Sequence[torch.Tensor], order: float, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    """Return the norm of each of ``tensors`` (strided, real, of one dtype), on its device."""
    return tuple(torch._foreach_norm(list(tensors), order, dtype=dtype))


def copy_all(into: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    """Copy each tensor of ``source`` into the one with the same index in ``into``."""
    torch._foreach_copy_(into, source)


def flag_non_finite(tensors: list[torch.Tensor], flag: torch.Tensor, scale: torch.Tensor) -> None:
    """Set ``flag`` to 1 if a value of ``tensors`` is not finite, and multiply all by ``scale``.

    Args:
        tensors: floating-point tensors on one device.
        flag: one float32 value on that device.
        scale: one float32 value on that device; 1 leaves the tensors as they are.
    """
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, flag, scale)
