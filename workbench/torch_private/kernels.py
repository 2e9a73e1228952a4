"""Kernels over many tensors at once that torch has no public name for.

`torch.optim`, `torch.nn.utils.clip_grad_norm_` and `torch.amp.GradScaler` are built on the same.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence

import torch


def norms_of(
    tensors: Sequence[torch.Tensor], order: float, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    """The norm of each of ``tensors``, on its device; of strided real tensors of one dtype."""
    return tuple(torch._foreach_norm(list(tensors), order, dtype=dtype))


def copy_all(into: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    """Copy each tensor of ``source`` into the one at its place in ``into``."""
    torch._foreach_copy_(into, source)


def flag_non_finite(tensors: list[torch.Tensor], flag: torch.Tensor, scale: torch.Tensor) -> None:
    """Set ``flag`` to 1 where a value of ``tensors`` is not finite, and multiply all by ``scale``.

    Args:
        tensors: floating point, on one device.
        flag: one float32 value on that device.
        scale: likewise; 1 leaves the tensors as they are.
    """
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, flag, scale)
