"""Settings that a cell made for its own thread, carried over to the thread that trains.

Torch keeps many settings per thread: the number of threads that MKL uses, a default device,
autocast, hooks on saved tensors, modes that intercept every function or every operator (a FLOP
counter, for example). A step that a cell requests, as with
``with torch.autocast("cpu"): exp.step()``, is computed on another thread, so the settings are read
where the run is started and set on that thread too. Autocast surrounds forward and loss only, as is
usual: if it were kept open over an update, it would continue with the weights from before.

Gradients that are off where a run is started (``torch.set_grad_enabled(False)`` was left on) stay
on in its steps, and a note reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from workbench.torch_private.contexts import (
    DeviceContext,
    dispatch_modes,
    function_modes,
    pop_dispatch_mode,
    pop_function_mode,
    push_dispatch_mode,
    push_function_mode,
    saved_tensors_hooks,
)


class Autocast(NamedTuple):
    """An active autocast."""

    device_type: str
    dtype: torch.dtype
    cache_enabled: bool

    def entered(self) -> AbstractContextManager[Any]:
        """Return the same autocast for the calling thread."""
        return torch.autocast(self.device_type, dtype=self.dtype, cache_enabled=self.cache_enabled)


@dataclass(frozen=True, eq=False)
class ThreadState:
    """Torch's settings of one thread; nothing is set by default."""

    num_threads: int = 0
    """Number of threads of one operation on the CPU; 0: as many as a new thread has."""
    function_modes: tuple[Any, ...] = ()
    """The default device is one of them."""
    dispatch_modes: tuple[Any, ...] = ()
    saved_tensors_hooks: tuple[Callable[..., Any], Callable[..., Any]] | None = None
    autocasts: tuple[Autocast, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def current(cls, device: torch.device) -> ThreadState:
        """Return the state of the calling thread.

        Args:
            device: device that is trained on.
        """
        autocasts = tuple(
            Autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled())
            for kind in dict.fromkeys(("cpu", device.type))
            if torch.is_autocast_enabled(kind)
        )
        notes = [
            f"steps run under the autocast to {str(one.dtype).removeprefix('torch.')} that was on "
            "where they were requested; exp.modes has it as a toggle"
            for one in autocasts
        ]
        if not torch.is_grad_enabled():
            notes.append(
                "gradients are off where the run was started (torch.set_grad_enabled(False), or "
                "no_grad around it); its steps compute them all the same"
            )
        return cls(
            torch.get_num_threads(),
            function_modes(),
            dispatch_modes(),
            saved_tensors_hooks(),
            autocasts,
            tuple(notes),
        )

    def on(self, device: torch.device) -> ThreadState:
        """Return the same for a thread of another process.

        That thread trains on ``device``, of the same kind.
        """
        modes = tuple(
            DeviceContext(device)
            if isinstance(mode, DeviceContext) and mode.device.type == device.type
            else mode
            for mode in self.function_modes
        )
        return replace(self, num_threads=torch.get_num_threads(), function_modes=modes)

    @contextmanager
    def entered(self) -> Generator[None]:
        """Set everything but autocast on this thread."""
        # MKL reads what was set on the calling thread: another number changes the last bits
        torch.set_num_threads(self.num_threads or torch.get_num_threads())
        with ExitStack() as stack:
            for mode in self.function_modes:
                if isinstance(mode, DeviceContext):
                    stack.enter_context(DeviceContext(mode.device))
                else:
                    push_function_mode(mode)  # its own `__enter__` may only be called once
                    stack.callback(pop_function_mode)
            for mode in self.dispatch_modes:
                push_dispatch_mode(mode)
                stack.callback(pop_dispatch_mode)
            if self.saved_tensors_hooks is not None:
                hooks = torch.autograd.graph.saved_tensors_hooks(*self.saved_tensors_hooks)
                stack.enter_context(hooks)
            yield

    @contextmanager
    def around(self, context: AbstractContextManager[Any]) -> Generator[None]:
        """Enter ``context`` of a forward, inside the autocasts."""
        with ExitStack() as stack:
            for autocast in self.autocasts:
                stack.enter_context(autocast.entered())
            stack.enter_context(context)
            yield
