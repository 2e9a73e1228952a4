"""Random states: what a run draws from, kept apart from what cells draw.

A run seeds torch once, before its first step. From then on its states are put away when it pauses
and brought back when it goes on, so cells that run in between do not change its sequence. (A cell
that draws random numbers *while* the run trains shares torch's global generator with it; torch has
one per process.)
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


class TorchState:
    """The states of torch's CPU generator and of one accelerator's; under 1 us on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.default_generator
        self._states: tuple[torch.Tensor, Any] | None = None

    def save(self) -> None:
        """Remember the states as they are now."""
        other = None if self._device.type == "cpu" else _device_state(self._device)
        self._states = (self._cpu.get_state(), other)

    def moved(self) -> bool:
        """Whether anything was drawn since `save`."""
        if self._states is None:
            return False
        cpu, other = self._states
        if not torch.equal(self._cpu.get_state(), cpu):
            return True
        return other is not None and not torch.equal(_device_state(self._device), other)

    def restore(self) -> None:
        """Bring back what `save` remembered, if anything."""
        if self._states is None:
            return
        self._cpu.set_state(self._states[0])
        if self._states[1] is not None:
            _set_device_state(self._device, self._states[1])


class RandomState(TorchState):
    """Torch's states and those of ``random`` and ``numpy``, which augmentations draw from."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._python: Any = None
        self._numpy: Any = None

    def save(self) -> None:
        """Remember all states as they are now."""
        super().save()
        self._python = random.getstate()
        self._numpy = np.random.get_state()

    def restore(self) -> None:
        """Bring back what `save` remembered, if anything."""
        super().restore()
        if self._python is not None:
            random.setstate(self._python)
            np.random.set_state(self._numpy)


def _device_state(device: torch.device) -> Any:
    module = getattr(torch, device.type, None)
    get = getattr(module, "get_rng_state", None)
    if get is None:
        return None
    return get() if device.type == "mps" else get(device)


def _set_device_state(device: torch.device, state: Any) -> None:
    module = getattr(torch, device.type)
    if device.type == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, device)
