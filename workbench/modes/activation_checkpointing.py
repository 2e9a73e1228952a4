"""Checkpoint: keep what goes into a block, drop what is inside, compute it again in backward.

`torch.utils.checkpoint` in its non-reentrant form is applied to blocks of the model: ``auto`` takes
those that occur repeatedly (`workbench.modes.core.model_blocks`), a path
(``checkpoint:encoder.layers``) the blocks in that container, or the module there itself. Backward
then costs one more forward of each block, and holds the activations of one block at a time.

The step computes the same to the last bit. Torch replays the random numbers (dropout) and autocast;
what torch leaves to us is done here. A forward that changes buffers (batch norm's running
statistics, spectral norm's vectors) would change them twice: the second forward works on copies of
what they were before the first, and so does a third if a second backward goes through the block (a
gradient penalty, two losses). A kernel that was chosen for forward (`workbench.modes.attention`) is
chosen again. The same applies to numbers and containers that modules keep
(`workbench.modes.core.plain_attributes`), and to parameters that a forward writes (a teacher that
follows its student): before the first forward of a block all of its parameters are copied, and from
then on those that it has written. What a forward changes in objects of other kinds is changed once
more each time.

A block is given a ``forward`` of its own, nothing is wrapped: names in ``state_dict`` do not
change, removing it undoes it exactly, and a copy or a pickle of the model works on its own.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.checkpoint import checkpoint

from workbench.modes.core.base import Mode
from workbench.modes.core.model_blocks import blocks_in, find_blocks
from workbench.modes.core.plain_attributes import PlainAttributes
from workbench.records import ModeChoice
from workbench.torch_private.modules import buffer_table, parameter_table
from workbench.torch_private.tensors import counted_version

SMALL_BUFFER_BYTES = 64 * 2**10
"""A copy of a larger buffer, mostly a table or a mask, is kept only if the forward changed it."""
_MOST_CONTAINERS = 3
"""Maximum number of containers that are offered by name."""

Contexts = tuple[Callable[[], AbstractContextManager[Any]], ...]


class Checkpoint(Mode):
    """Activation checkpointing: off, of the blocks of the model, or of those of one container."""

    name: ClassVar[str] = "checkpoint"
    label: ClassVar[str] = "Checkpoint"
    default: ClassVar[str] = "off"
    values: ClassVar[tuple[str, ...]] = ("off", "auto")
    more_values: ClassVar[str] = "the path of a module, as in checkpoint:layers"
    order: ClassVar[int] = 20

    def __init__(self, value: str, device: torch.device) -> None:
        super().__init__(value, device)
        self.again: Contexts = ()
        """Contexts that have to be entered when a block is computed again (`Mode.unguarded`)."""
        self._changed: list[weakref.ref[nn.Module]] = []

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:  # noqa: ARG003 - any device
        """Off and auto; which containers there are, `choices_for` a model returns."""
        return tuple(ModeChoice(value=value) for value in cls.values)

    def choices_for(self, model: nn.Module) -> tuple[ModeChoice, ...]:
        """Off, auto, and the containers of blocks if there are several."""
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
        """Why ``model`` cannot run under it: there is no such module, or nothing to gain."""
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
        """Explain that torch's function transforms refuse hooks on saved tensors, as used here."""
        if "support saved tensor hooks" not in str(error):
            return ""
        return (
            f"mode checkpoint ({self.value}) computes blocks a second time by hooks on saved "
            "tensors, and a block here uses torch.func (grad, vjp, jacrev, hessian), which takes "
            "none: leave checkpoint out of exp.modes for this model"
        )

    def no_effect_reason(self, model: nn.Module) -> str:
        """``model has no blocks`` if there is nothing to apply it to."""
        if not find_blocks(model):
            return "model has no blocks"
        if self.value == "auto" and not self.targets(model):
            return "its blocks have a forward that is not their class's"
        return ""

    def targets(self, model: nn.Module) -> list[nn.Module]:
        """The modules that are computed twice, without those whose ``forward`` the user has set."""
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
            _writes.pop(module, None)
            module.__dict__["forward"] = types.MethodType(forward, module)
            self._changed.append(weakref.ref(module))

    def detach(self, model: nn.Module) -> None:  # noqa: ARG002 - what was attached is remembered
        """Restore the ``forward`` of its class in every target."""
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
    """Return a ``forward`` for any module; a pickled method is found by its name."""

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
    """Contexts of the first forward, and of each later one, in which everything is as before."""
    before, attributes = _copies(module), PlainAttributes(module)
    parameters = _Parameters(module)
    return _First(before, parameters), _AsBefore(before, parameters, attributes, again)


class _Copy(NamedTuple):
    """A buffer before the first forward; one that modules share has one copy under all names."""

    part: nn.Module
    name: str
    buffer: torch.Tensor
    version: int
    values: torch.Tensor

    @property
    def is_large(self) -> bool:
        return self.values.nbytes > SMALL_BUFFER_BYTES

    def is_written(self) -> bool:
        """Whether it counted a write."""
        return counted_version(self.buffer) != self.version

    def is_seen_changed(self) -> bool:
        """Whether it was replaced, or counted a write; not all do: see `_with_equal_values`."""
        is_replaced = _buffers_of(self.part).get(self.name) is not self.buffer
        return is_replaced or counted_version(self.buffer) != self.version


def _buffers_of(part: nn.Module) -> dict[str, torch.Tensor | None]:
    """Buffers under every name, whereas `named_buffers` has each once.

    They are also assigned to: the attribute would check more than necessary.
    """
    return buffer_table(part)


def _copies(module: nn.Module) -> list[_Copy]:
    copied: dict[int, torch.Tensor] = {}
    found: list[_Copy] = []
    for part in module.modules():
        for name, buffer in _buffers_of(part).items():
            if buffer is None:
                continue
            if id(buffer) not in copied:
                copied[id(buffer)] = buffer.clone()
            found.append(_Copy(part, name, buffer, counted_version(buffer), copied[id(buffer)]))
    return found


_writes: weakref.WeakKeyDictionary[nn.Module, set[tuple[str, str]]] = weakref.WeakKeyDictionary()
"""Block -> (path, name) of the parameters that its forward has written; known after the first."""


class _Parameters:
    """Parameters of a block that its forward writes, as they were before."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        known = _writes.get(module)
        self._is_first = known is None
        self.copies: list[_Copy] = []
        """Of all parameters before the first forward; of those that are known to be written."""
        self.late: list[_Copy] = []
        """Those that were written for the first time in a later forward, as it has left them."""
        self._watched: list[tuple[str, nn.Module, str, torch.Tensor, int]] = []
        copied: dict[int, torch.Tensor] = {}
        for path, part in module.named_modules():
            for name, parameter in parameter_table(part).items():
                if parameter is None or is_lazy(parameter):
                    continue
                version = counted_version(parameter)
                self._watched.append((path, part, name, parameter, version))
                if known is None or (path, name) in known:
                    if id(parameter) not in copied:
                        copied[id(parameter)] = parameter.detach().clone()
                    values = copied[id(parameter)]
                    own = parameter.detach()
                    self.copies.append(_Copy(part, name, own, version, values))

    def forward_done(self) -> None:
        """Keep the copies of what the first forward has written."""
        known = _writes.setdefault(self._module, set())
        if self._is_first:
            # not all writes are counted (`.data`); of shards that were freed nothing can be read
            fresh = [
                one._replace(buffer=parameter_table(one.part)[one.name].detach())
                for one in self.copies
                if not one.is_written()
            ]
            readable = [
                one
                for one in fresh
                if type(one.buffer) is torch.Tensor and one.buffer.untyped_storage().size()
            ]
            equal = _with_equal_values(readable)
            changed = {id(one.values) for one in readable} - equal
            self.copies = [
                one for one in self.copies if one.is_written() or id(one.values) in changed
            ]
        kept = {(id(one.part), one.name) for one in self.copies}
        for path, part, name, parameter, version in self._watched:
            if (id(part), name) in kept:
                known.add((path, name))
            elif counted_version(parameter) != version:
                known.add((path, name))
                values = parameter.detach().clone()
                self.late.append(_Copy(part, name, parameter.detach(), version, values))
        if self.late and not self._is_first:
            first = self.late[0]
            warnings.warn(
                f"a block under mode checkpoint writes {first.name} of its parameters in forward, "
                "and did not before: in this one step it is computed again with what it has "
                "written; from the next step on with what was there",
                RuntimeWarning,
                stacklevel=2,
            )
        self._watched.clear()


class _First:
    """Context around the first forward; drops copies of what it has not changed afterwards."""

    def __init__(self, before: list[_Copy], parameters: _Parameters) -> None:
        self._before, self._parameters = before, parameters

    def __enter__(self) -> None:
        """Everything was copied when this was made."""

    def __exit__(self, *_error: object) -> None:
        self._parameters.forward_done()
        before = self._before
        large = {id(one.values): one for one in before if one.is_large}
        if large:
            changed = {id(one.values) for one in before if one.is_seen_changed()}
            others = [one for key, one in large.items() if key not in changed]
            unchanged = _with_equal_values(others)
            before[:] = [one for one in before if id(one.values) not in unchanged]


def _with_equal_values(copies: list[_Copy]) -> set[int]:
    """``id`` of the copies that are still equal to their buffer.

    Kernels of batch norm, and writes through ``.data``, change a buffer without counting a write,
    so only its values show it. They are read together, so that the device is waited for once.
    """
    equal: dict[int, torch.Tensor] = {}
    for one in copies:
        now = one.buffer
        if type(now) is torch.Tensor and not now.is_meta and now.shape == one.values.shape:
            with contextlib.suppress(RuntimeError), torch.no_grad():  # float8 cannot be compared
                equal[id(one.values)] = (now == one.values).all()
    by_device: dict[torch.device, list[int]] = defaultdict(list)
    for key, answer in equal.items():
        by_device[answer.device].append(key)
    return {
        key
        for keys in by_device.values()
        for key, is_equal in zip(
            keys, torch.stack([equal[key] for key in keys]).tolist(), strict=True
        )
        if is_equal
    }


@torch.no_grad()
def _put(parameter: torch.Tensor, values: torch.Tensor) -> None:
    parameter.copy_(values)


class _AsBefore:
    """Context with buffers and attributes as before the first forward, in which `again` is entered.

    Torch enters the same object once for every backward that goes through the block: two losses, a
    gradient penalty. Each backward works on copies of its own, as it changes them.
    """

    def __init__(
        self,
        before: list[_Copy],
        parameters: _Parameters,
        attributes: PlainAttributes,
        again: Contexts,
    ) -> None:
        self._before, self._parameters = before, parameters
        self._attributes = attributes
        self._again = again
        self._entered: list[ExitStack] = []

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for context in self._again:
                stack.enter_context(context())
            copied: dict[int, torch.Tensor] = {}
            for one in self._before:
                if id(one.values) not in copied:
                    copied[id(one.values)] = one.values.clone()
                buffers = _buffers_of(one.part)
                stack.callback(buffers.__setitem__, one.name, buffers.get(one.name))
                buffers[one.name] = copied[id(one.values)]
            for one in self._parameters.copies:
                table = parameter_table(one.part)
                now = table[one.name]
                if id(one.values) not in copied:
                    copied[id(one.values)] = nn.Parameter(one.values.clone(), now.requires_grad)
                stack.callback(table.__setitem__, one.name, now)
                table[one.name] = copied[id(one.values)]
            for one in self._parameters.late:
                stack.callback(_put, one.buffer, one.values)
            stack.enter_context(self._attributes.restored())
            self._entered.append(stack.pop_all())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> bool | None:
        return self._entered.pop().__exit__(kind, error, traceback)
