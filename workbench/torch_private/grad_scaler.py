"""State that a `torch.amp.GradScaler` keeps of a step, and the tensor that holds its scale."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import torch

from workbench.torch_private.lookup import Check, expect


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


# -- checks ---------------------------------------------------------------------------------


def _check_scaler() -> None:
    class Optimizer:
        """All that ``unscale_`` reads: creating an optimizer of torch imports the compiler."""

        def __init__(self, parameter: torch.Tensor) -> None:
            self.param_groups = [{"params": [parameter]}]

    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    expect(scale_tensor(scaler) is None, "a new scaler has a tensor")
    parameter = torch.ones(2, device="cpu", dtype=torch.float32, requires_grad=True)
    loss: torch.Tensor = scaler.scale((parameter * torch.inf).sum())
    scale = scale_tensor(scaler)
    expect(scale is not None and scale.item() == 8.0, "the scale is elsewhere")
    loss.backward()
    optimizer: Any = Optimizer(parameter)
    scaler.unscale_(optimizer)
    expect(set(states(scaler)) == {id(optimizer)}, "the state of an optimizer is elsewhere")
    found = found_non_finite(scaler, optimizer)
    expect([one.item() for one in found] == [1.0], "an overflow is not found")


CHECKS = (
    Check(
        (
            "torch.amp.GradScaler._scale",
            "torch.amp.GradScaler._per_optimizer_states",
            "torch.amp.GradScaler._found_inf_per_device",
        ),
        "the gradient scaler of fp16",
        _check_scaler,
    ),
)
