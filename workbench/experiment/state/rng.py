"""Random states of a run, kept separate from what cells draw.

A run seeds torch once, before its first step. From then on its states are saved when it pauses and
restored when it continues, so cells that run in between do not change its sequence. (A cell that
draws random numbers *while* the run trains shares torch's global generator with it; torch has one
per process.)

One state is not accessible: the dropout between layers of a cuDNN RNN has a state of its own, which
torch neither exposes nor sets. It follows a run as long as only the run's own forwards in train
mode draw from it, and no cell seeds the GPU's generator.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import torch

_OFFSET = 8
"""Position of the offset in a CUDA generator's state of 16 bytes: after the seed."""


class TorchState:
    """The states of torch's CPU generator and of one accelerator's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.default_generator
        self._states: tuple[torch.Tensor, Any] | None = None

    def save(self) -> None:
        """Save the current states."""
        other = None if self._device.type == "cpu" else _device_state(self._device)
        self._states = (self._cpu.get_state(), other)

    def moved(self) -> bool:
        """Return whether anything was drawn since `save`."""
        return self._states is not None and self._moved_since(self._states)

    def _moved_since(self, states: tuple[torch.Tensor, Any]) -> bool:
        cpu, other = states
        if not torch.equal(self._cpu.get_state(), cpu):
            return True
        return other is not None and not torch.equal(_device_state(self._device), other)

    def restore(self) -> None:
        """Restore what `save` saved, if anything."""
        if self._states is None:
            return
        self._cpu.set_state(self._states[0])
        if self._states[1] is not None:
            _set_device_state(self._device, self._states[1])


class StepState(TorchState):
    """`TorchState` saved before each step, nearly free for a training that draws nothing.

    A save costs as much as two small operations. So while none of the last `CHECK_EVERY` steps drew
    anything, the state is checked only once in so many steps. The drawback: a training that draws
    its first numbers after such a quiet period, and fails before the next check, continues after
    those numbers instead of with them. No number is ever drawn twice.
    """

    CHECK_EVERY = 64

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._until_check = 1
        self._last_checked: tuple[torch.Tensor, Any] | None = None
        self._quiet = False
        self._stale = False
        """Whether the saved state is that of an earlier step."""

    def save_step(self, *, exactly: bool = False) -> None:
        """Save the state before a step; ``exactly`` if the step is undone in any case."""
        self._until_check -= 1
        self._stale = self._quiet and self._until_check > 0 and not exactly
        if self._stale:
            return
        self.save()
        if self._until_check <= 0:
            self._until_check = self.CHECK_EVERY
            self._quiet = self._last_checked is not None and not self._moved_since(
                self._last_checked
            )
            self._last_checked = self._states

    def restore(self) -> None:
        """Restore the state before the step; do nothing if only an older one is known."""
        if not self._stale:
            super().restore()


class RandomState(TorchState):
    """Torch's states and those of ``random`` and ``numpy``, which augmentations draw from."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._python: Any = None
        self._numpy: Any = None

    def save(self) -> None:
        """Save all current states."""
        super().save()
        self._python = random.getstate()
        self._numpy = np.random.get_state()

    def restore(self) -> None:
        """Restore what `save` saved, if anything."""
        super().restore()
        if self._python is not None:
            random.setstate(self._python)
            np.random.set_state(self._numpy)

    def moved(self) -> bool:
        """Return whether anything was drawn since `save`, from any of them."""
        return self._python is not None and (super().moved() or self.moved_outside_torch())

    def moved_outside_torch(self) -> bool:
        """Return whether ``random`` or ``numpy`` was drawn from, or seeded, since `save`."""
        if self._python is None:
            return False
        numpy: Any = np.random.get_state()
        return random.getstate() != self._python or any(
            not np.array_equal(*pair) for pair in zip(numpy, self._numpy, strict=True)
        )

    def forget_device(self) -> None:
        """Keep the state of the accelerator as it is: what was saved is of another one."""
        if self._states is not None:
            self._states = self._states[0], None

    def restore_torch(self) -> None:
        """Call `restore` for torch alone."""
        super().restore()

    def state_dict(self) -> dict[str, Any]:
        """Return what `save` saved, to continue from in another process."""
        return {"torch": self._states, "python": self._python, "numpy": self._numpy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`; `restore` restores it."""
        self._states = state["torch"]
        self._python, self._numpy = state["python"], state["numpy"]


def _device_state(device: torch.device) -> Any:
    module = getattr(torch, device.type, None)
    get = getattr(module, "get_rng_state", None)
    if get is None:
        return None
    return get() if device.type == "mps" else get(device)


def _set_device_state(device: torch.device, state: Any) -> None:
    """Restore ``state``, and no more than that.

    Setting the state of a CUDA generator, to any value, makes cuDNN seed its dropout between layers
    of an RNN again from that generator; moving to another offset while keeping the seed does not.
    (``ATen/native/cudnn/RNN.cpp``, ``get_dropout_state``.)
    """
    now = _device_state(device)
    if torch.equal(now, state):
        return
    if device.type == "cuda" and torch.equal(now[:_OFFSET], state[:_OFFSET]):
        offset = int.from_bytes(state[_OFFSET:].numpy().tobytes(), sys.byteorder)
        torch.cuda.default_generators[device.index].set_offset(offset)
        return
    module = getattr(torch, device.type)
    if device.type == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, device)
