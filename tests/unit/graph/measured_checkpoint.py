"""Checkpointing one module of a live model for one forward, to see what it frees and costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

from tests.unit.graph.measured_saved import saved_in_forward
from workbench.experiment.state.rng import RandomState
from workbench.graph.core.number_format import byte_size, duration
from workbench.torch_private.autograd import compiled_call, has_compiled_forward


@dataclass(frozen=True, kw_only=True)
class MeasuredCheckpoint:
    """One forward without and one with non-reentrant checkpointing of a module."""

    module: str
    plain_bytes: int
    """Saved for backward without checkpointing; parameters, buffers and the model's inputs, which
    live anyway, are left out."""
    checkpointed_bytes: int
    """The same with the module checkpointed, its inputs included."""
    forward_s: float
    """Median seconds of the module's forwards in one step: what backward would take longer."""
    forward_range_s: tuple[float, float]
    """Fastest and slowest of the repetitions."""
    num_calls: int
    """How often the step calls the module."""

    @property
    def freed_bytes(self) -> int:
        """Bytes that checkpointing frees; negative where it costs some."""
        return self.plain_bytes - self.checkpointed_bytes

    def __str__(self) -> str:
        name = f"`{self.module}`" if self.module else "the whole model"
        verb = "frees" if self.freed_bytes >= 0 else "costs"
        low, high = map(duration, self.forward_range_s)
        return (
            f"Checkpointing {name} {verb} {byte_size(abs(self.freed_bytes))} of "
            f"{byte_size(self.plain_bytes)}; its forward takes {duration(self.forward_s)} "
            f"({low} to {high}) again in backward."
        )


def measure_checkpointing(
    model: nn.Module,
    module_path: str,
    step: Callable[[], torch.Tensor],
    *,
    repetitions: int = 5,
) -> MeasuredCheckpoint:
    """Run a forward with and without checkpointing one module, and compare.

    The model is as before afterwards: buffers and random states are brought back, and no gradient
    is computed. What else a forward changes (a counter in Python) it changes several times.

    Args:
        model: the model that ``step`` runs.
        module_path: qualified name of the module to checkpoint, ``""`` for the whole model.
        step: runs one forward and returns the loss, without calling backward.
        repetitions: how often the module's forwards are timed.

    Raises:
        ValueError: there is no such module, it is compiled, ``step`` does not run it or runs
            backward, or ``repetitions`` is below 1.
    """
    if repetitions < 1:
        raise ValueError(f"repetitions is {repetitions}; it must be at least 1")
    module = _eager_module(model, module_path)
    before = _State(model)
    calls: list[_Call] = []
    try:
        with _recorded(module, calls):
            plain = saved_in_forward(model, step)
        before.restore()
        if not calls:
            raise ValueError(f"step() did not run {module_path!r}, so there is nothing to measure")
        with _checkpointed(module):
            checkpointed = saved_in_forward(model, step)
        before.restore()
        seconds = [before.timed(module, calls) for _ in range(repetitions)]
    finally:
        before.restore()
    return MeasuredCheckpoint(
        module=module_path,
        plain_bytes=plain,
        checkpointed_bytes=checkpointed,
        forward_s=statistics.median(seconds),
        forward_range_s=(min(seconds), max(seconds)),
        num_calls=len(calls),
    )


@dataclass(frozen=True)
class _Call:
    """Copies of the arguments of one call, so that work in place changes nothing else."""

    args: Any
    kwargs: Any

    @classmethod
    def of(cls, args: Any, kwargs: Any) -> _Call:
        return cls(*_pytree.tree_map_only(torch.Tensor, _copy, (args, kwargs)))

    def fresh(self) -> Any:
        """Arguments for one more call: no leaves, because those may not be changed in place."""
        return _pytree.tree_map_only(torch.Tensor, torch.clone, (self.args, self.kwargs))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


@dataclass
class _State:
    """Buffers and random states of a model."""

    model: nn.Module
    _buffers: list[tuple[dict[str, Any], str, torch.Tensor, torch.Tensor]] = field(init=False)
    _random: RandomState = field(init=False)
    _device: torch.device = field(init=False)

    def __post_init__(self) -> None:
        self._device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self._random = RandomState(self._device)
        self._random.save()
        self._buffers = [
            (owner, name, buffer, buffer.detach().clone())
            for module in self.model.modules()
            for owner in [vars(module)["_buffers"]]
            for name, buffer in owner.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        """Everything as it was when this was made."""
        self._random.restore()
        with torch.no_grad():
            for owner, name, buffer, value in self._buffers:
                owner[name] = buffer
                if not torch.equal(buffer, value):  # else its version counter would move
                    buffer.copy_(value)

    def timed(self, module: nn.Module, calls: list[_Call]) -> float:
        """Seconds of the forwards of ``module``, as backward would run them again."""
        with torch.enable_grad():
            fresh = [call.fresh() for call in calls]
            self._wait()
            start = time.perf_counter()
            for args, kwargs in fresh:
                module(*args, **kwargs)
            self._wait()
            seconds = time.perf_counter() - start
        self.restore()
        return seconds

    def _wait(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)


def _eager_module(model: nn.Module, path: str) -> nn.Module:
    modules = dict(model.named_modules(remove_duplicate=False))
    if path not in modules:
        close = get_close_matches(path, list(modules), n=4) or list(modules)[1:9]
        raise ValueError(f"the model has no module {path!r}; it has {', '.join(map(repr, close))}")
    around = [name for name in modules if not name or path == name or path.startswith(f"{name}.")]
    for name in around:
        module = modules[name]
        compiled = compiled_call(module) is not None or has_compiled_forward(module)
        if compiled or isinstance(module, torch.jit.ScriptModule):
            shown = f"{name!r}" if name else "the model"
            raise ValueError(f"{shown} is compiled; measure checkpointing on the eager model")
    return modules[path]


@contextmanager
def _recorded(module: nn.Module, calls: list[_Call]) -> Generator[None]:
    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append(_Call.of(args, kwargs)), with_kwargs=True
    )
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _checkpointed(module: nn.Module) -> Generator[None]:
    """``module.forward`` runs under `torch.utils.checkpoint`, non-reentrant."""
    own = vars(module).get("forward")
    forward = module.forward

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        flat, spec = _pytree.tree_flatten((args, kwargs))  # all as arguments: those are saved

        def run(*values: Any) -> Any:
            again = _pytree.tree_unflatten(list(values), spec)
            return forward(*again[0], **again[1])

        return checkpoint(run, *flat, use_reentrant=False)

    vars(module)["forward"] = checkpointed
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own
