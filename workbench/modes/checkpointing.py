"""Checkpoint: keep what goes into a block, drop what is inside, compute it again in backward.

`torch.utils.checkpoint` in its non-reentrant form is put around blocks of the model: ``auto`` takes
those that occur repeatedly (`workbench.modes.blocks`), a path (``checkpoint:encoder.layers``) the
blocks in that container, or the module there itself. Backward then costs one more forward of each
block, and holds the activations of one block at a time.

The step computes the same to the last bit. Torch replays the random numbers (dropout) and autocast;
what it leaves to us is done here. A forward that changes buffers (batch norm's running statistics,
spectral norm's vectors) would change them twice: the second one works on copies of what they were
before the first. And a kernel chosen for forward (`workbench.modes.attention`) is chosen again.
What a forward changes in Python objects of its own is changed twice.

A block is given a ``forward`` of its own, nothing is wrapped: names in ``state_dict`` do not
change, removing it undoes it exactly, and a copy or a pickle of the model works alone.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from workbench.modes.base import Mode
from workbench.modes.blocks import blocks_in, find_blocks
from workbench.records import ModeChoice

SMALL_BUFFER_BYTES = 64 * 2**10
"""A copy of a larger one, mostly a table or a mask, is kept only where the forward changed it."""
_MOST_CONTAINERS = 3
"""Containers that are offered by name."""

Contexts = tuple[Callable[[], AbstractContextManager[Any]], ...]


class Checkpoint(Mode):
    """off, around the blocks of the model, or around those of one container."""

    name: ClassVar[str] = "checkpoint"
    label: ClassVar[str] = "Checkpoint"
    default: ClassVar[str] = "off"
    values: ClassVar[tuple[str, ...]] = ("off", "auto")
    more_values: ClassVar[str] = "the path of a module, as in checkpoint:layers"
    order: ClassVar[int] = 20

    def __init__(self, value: str, device: torch.device) -> None:
        super().__init__(value, device)
        self.again: Contexts = ()
        """What has to be entered when a block is computed again (`Mode.unguarded`)."""
        self._changed: list[weakref.ref[nn.Module]] = []

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:  # noqa: ARG003 - any device
        """Off and auto; which containers there are, `choices_for` a model says."""
        return tuple(ModeChoice(value=value) for value in cls.values)

    def choices_for(self, model: nn.Module) -> tuple[ModeChoice, ...]:
        """Off, auto, and the containers of blocks where there are several."""
        paths = [path for path, _ in containers(model)]
        offered = paths[:_MOST_CONTAINERS] if len(paths) > 1 else []
        if self.value not in (*self.values, *offered):
            offered.append(self.value)
        off, auto = self.choices(self.device)
        if not find_blocks(model):
            auto = replace(
                auto,
                why=f"{type(model).__name__} has no blocks: nothing would be computed again.",
                remedy="Put layers that follow each other into a module of their own.",
            )
        return off, auto, *(ModeChoice(value=path) for path in offered)

    def refusal(self, model: nn.Module) -> str:
        """Why ``model`` cannot be run under it: there is no such module, or nothing to gain."""
        if self.value in self.values:
            return ""
        known = ", ".join(path for path, _ in containers(model)) or "none"
        try:
            module = model.get_submodule(self.value)
        except AttributeError:
            return (
                f"{type(model).__name__} has no module {self.value!r} to checkpoint; containers of "
                f"blocks in it are: {known}"
            )
        if self.targets(model):
            return ""
        kind = type(module).__name__
        return (
            f"{self.value!r}, a {kind}, cannot be checkpointed: it holds no block of several "
            f"layers with a forward of its class; containers of blocks are: {known}"
        )

    def explain(self, error: BaseException) -> str:
        """Torch's function transforms take no hooks on saved tensors; this mode is made of them."""
        if "support saved tensor hooks" not in str(error):
            return ""
        return (
            f"mode checkpoint ({self.value}) computes blocks a second time by hooks on saved "
            "tensors, and a block here uses torch.func (grad, vjp, jacrev, hessian), which takes "
            "none: leave checkpoint out of exp.modes for this model"
        )

    def no_effect_reason(self, model: nn.Module) -> str:
        """``model has no blocks`` where there is nothing to put it around."""
        if not find_blocks(model):
            return "model has no blocks"
        if self.value == "auto" and not self.targets(model):
            return "its blocks have a forward that is not their class's"
        return ""

    def targets(self, model: nn.Module) -> list[nn.Module]:
        """The modules that are computed twice; those with a ``forward`` of the user's left out."""
        if self.value == self.default:
            return []
        if self.value == "auto":
            found = find_blocks(model)
        else:
            module = model.get_submodule(self.value)
            found = blocks_in(module)
        return [module for module in found if not _has_forward_of_its_own(module)]

    def attach(self, model: nn.Module) -> None:
        """Give every target a ``forward`` that checkpoints the one of its class."""
        if self.value not in self.values and self.refusal(model):
            return
        forward = _forward_for(self.again) if self.again else _PLAIN
        for module in self.targets(model):
            module.__dict__["forward"] = types.MethodType(forward, module)
            self._changed.append(weakref.ref(module))

    def detach(self, model: nn.Module) -> None:  # noqa: ARG002 - what was attached is remembered
        """Leave every target the ``forward`` of its class."""
        for reference in self._changed:
            module = reference()
            if module is not None:
                module.__dict__.pop("forward", None)
        self._changed.clear()


def containers(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """(path, blocks) of every container of blocks in ``model``, the one with most blocks first."""
    blocks = {id(block) for block in find_blocks(model)}
    found = [
        (path, held)
        for path, module in model.named_modules()
        if path
        and isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential))
        and (held := [child for child in module.children() if id(child) in blocks])
    ]
    return sorted(found, key=lambda entry: -len(entry[1]))


def _forward_for(again: Contexts) -> Callable[..., Any]:
    """A ``forward`` for any module; its name is what a pickled method is found by."""

    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        own = functools.partial(type(self).forward, self, **kwargs)
        if not torch.is_grad_enabled():
            return own(*args)
        if torch.compiler.is_compiling():  # what a region changes is changed once by itself
            return checkpoint(own, *args, use_reentrant=False)
        contexts = functools.partial(_contexts, self, again)
        return checkpoint(own, *args, use_reentrant=False, context_fn=contexts)

    return forward


_PLAIN = _forward_for(())
"""One for all models: compiled code that has seen it is found again."""


def _has_forward_of_its_own(module: nn.Module) -> bool:
    """Whether the ``forward`` of its class was replaced, other than by this mode."""
    forward = module.__dict__.get("forward")
    code = getattr(getattr(forward, "__func__", None), "__code__", None)
    return forward is not None and code is not _PLAIN.__code__


def _contexts(
    module: nn.Module, again: Contexts
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """What the first forward runs in, and what the second: with buffers as they were before."""
    before = [
        (part, name, buffer.clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]
    return _dropping_unchanged(before), _as_before(before, again)


@contextmanager
def _dropping_unchanged(before: list[tuple[nn.Module, str, torch.Tensor]]) -> Generator[None]:
    """Entered around the first forward; afterwards large copies of what it left alone are gone."""
    try:
        yield
    finally:
        before[:] = [
            (part, name, copy)
            for part, name, copy in before
            if copy.nbytes <= SMALL_BUFFER_BYTES or _is_changed(getattr(part, name), copy)
        ]


def _is_changed(buffer: torch.Tensor | None, copy: torch.Tensor) -> bool:
    """By its values: kernels of batch norm write statistics without a new ``_version``."""
    if buffer is None:
        return True
    try:
        return not torch.equal(buffer, copy)
    except RuntimeError:  # fake tensors have no values
        return True


@contextmanager
def _as_before(
    before: list[tuple[nn.Module, str, torch.Tensor]], again: Contexts
) -> Generator[None]:
    now = [getattr(part, name) for part, name, _ in before]
    with ExitStack() as stack:
        for context in again:
            stack.enter_context(context())
        for part, name, copy in before:
            part._buffers[name] = copy  # pyright: ignore[reportPrivateUsage] - assigning checks more than it needs to
        try:
            yield
        finally:
            for (part, name, _), buffer in zip(before, now, strict=True):
                part._buffers[name] = buffer  # pyright: ignore[reportPrivateUsage] - as above
