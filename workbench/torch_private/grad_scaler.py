"""State that a `torch.amp.GradScaler` keeps of a step, and the tensor that holds its scale."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import torch


def scale_tensor(scaler: torch.amp.GradScaler) -> torch.Tensor | None:
    """Return the tensor of one value by which ``scaler`` multiplies; None before its first loss.

    Unlike this function, ``get_scale()`` reads the device.
    """
    return scaler._scale


def states(scaler: torch.amp.GradScaler) -> dict[int, dict[str, Any]]:
    """Return what ``unscale_`` recorded for each optimizer, by its identity; may be modified.

    There is no public way to unscale only some parameters, or to abandon a step.
    """
    return scaler._per_optimizer_states


def found_non_finite(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
) -> list[torch.Tensor]:
    """Return one scalar per device, 1 if a gradient there is not finite, which ``step`` uses."""
    return list(scaler._found_inf_per_device(optimizer).values())
