"""What a `torch.amp.GradScaler` keeps of a step, and the tensor that holds its scale."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import torch


def scale_tensor(scaler: torch.amp.GradScaler) -> torch.Tensor | None:
    """What ``scaler`` multiplies with, of one value; None before its first loss.

    ``get_scale()`` reads the device.
    """
    return scaler._scale


def states(scaler: torch.amp.GradScaler) -> dict[int, dict[str, Any]]:
    """Identity of an optimizer -> what ``unscale_`` noted for it; to be changed.

    There is no public way to unscale some parameters alone, or to give a step up.
    """
    return scaler._per_optimizer_states


def found_non_finite(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
) -> list[torch.Tensor]:
    """One scalar per device, 1 where a gradient on it is not finite: what ``step`` goes by."""
    return list(scaler._found_inf_per_device(optimizer).values())
