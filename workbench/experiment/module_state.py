"""What a forward changes in the modules of a model: remembered before a step, put back after one.

A forward may write a buffer in place (batch norm's running statistics), put another tensor in its
place (``self.m = self.m + 1``), or keep tensors and numbers in plain attributes (a queue, a
counter). All of that is put back: what was assigned anew, by what was there before; a tensor that
was written in place, by a copy of its values.

*What it costs.* A shallow copy of every module's attributes, some 0.2 us a module, and one fused
copy of the values of small tensors. A large tensor (above `MAX_BYTES`) is a table more often than a
state: its values are copied before a step that is undone in any case, and before every step once
one has written it (torch counts the writes of a tensor; those through ``.data`` are seen by their
values at the next such step).

*Activations* (tensors with a graph) are not kept, for that would hold their graph through the next
step: a small one that was replaced comes back without its graph, which no step could use again.

What cannot be put back is named by `ModuleState.restore`: a large tensor that was written for the
first time by the very step that is undone. Objects that are neither tensors nor plain values (a
list that was appended to) and large activations stay as the forward left them.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

MAX_BYTES = 4 * 2**20
"""Of a tensor whose values are copied before every step."""

_FIRST_LOOKS = 3
_LOOK_EVERY = 64
"""Steps after which modules are searched for tensors again, once the first have been."""
_NOT_ITS_OWN = frozenset(
    {"training", "_parameters", "_buffers", "_modules", "_compiled_call_impl", "forward"}
)
"""Attributes of a module that are no state of a forward: flags, torch's tables, what modes set."""
_PLAIN = (torch.Tensor, int, float, complex, str, bytes, tuple, frozenset, type(None))
"""Values that do not change by themselves: an attribute that holds one changes by assignment."""


class _Large:
    """A tensor above `MAX_BYTES`."""

    __slots__ = ("is_written", "name", "tensor", "values", "version")

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.tensor = name, tensor
        self.values: torch.Tensor | None = None
        self.version = -1
        self.is_written = False
        """Whether any step has written it."""

    def remember(self, *, exactly: bool) -> None:
        version = _version(self.tensor)
        if not self.is_written and self.version != -1:
            unseen = self.values is not None and not torch.equal(
                self.values, self.tensor.detach().to(self.values.device)
            )
            self.is_written = version != self.version or unseen
        self.version = version
        if not (exactly or self.is_written):
            self.values = None
        elif self.values is None or self.values.shape != self.tensor.shape:
            # on the CPU: what is copied for the first step of a run must not run the device full
            with torch.inference_mode(mode=False):  # a cell may be in that mode, and steps write it
                self.values = self.tensor.detach().to("cpu", copy=True)
        else:
            self.values.copy_(self.tensor.detach())

    def restore(self) -> bool:
        """Put the values back; False where it was written and nobody has them."""
        if self.values is not None:
            _write(self.tensor, self.values)
        elif _version(self.tensor) == self.version:
            return True
        lost = self.values is None
        self.version = _version(self.tensor)
        self.is_written = self.is_written or lost
        return not lost


class _Activation:
    """A tensor with a graph, of which the values are kept at most."""

    __slots__ = ("_tensor", "_values")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        is_small = tensor.untyped_storage().nbytes() <= MAX_BYTES  # a view holds all of it
        self._values = tensor.detach() if is_small else None

    def in_place_of(self, now: Any) -> Any:
        """What belongs where ``now`` is found."""
        is_there = now is not None and now is self._tensor()
        return now if is_there or self._values is None else self._values


class ModuleState:
    """The state that the modules of a model (and of a loss) keep besides their parameters.

    Args:
        models: whose modules; those that they have when this is made, or at `look_again`.
    """

    def __init__(self, *models: nn.Module) -> None:
        self._models = models
        self._find_modules()
        self._own_before: list[dict[str, Any]] = []
        self._buffers_before: list[dict[str, Any]] = []
        self._activations: list[tuple[int, bool, str]] = []
        """
        Module, whether it is a buffer, and name: tensors with a graph, which a copy of a reference
        would keep.
        """
        self._slots: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        """Where each tensor was found, to see that another has taken its place."""
        self._found: list[torch.Tensor] = []
        self._small: list[torch.Tensor] = []
        """Those of `_found`, without a graph."""
        self._copies: list[torch.Tensor] = []
        self._large: dict[int, _Large] = {}
        self._looks = self._until_look = 0

    def _find_modules(self) -> None:
        self._names = [
            (name, module)
            for model in self._models
            for name, module in model.named_modules()
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        self._own: list[dict[str, Any]] = [module.__dict__ for _, module in self._names]
        """The attributes of every module."""
        self._buffers: list[dict[str, Any]] = [own["_buffers"] for own in self._own]
        self._is_stale = False

    def look_again(self) -> None:
        """Modules may be others from the next step on."""
        self._is_stale, self._until_look = True, 0

    def remember(self, *, exactly: bool = True) -> None:
        """Before a step.

        Args:
            exactly: copy the values of large tensors too: the step is undone whatever happens.
        """
        if self._is_stale:
            self._find_modules()
        self._until_look -= 1
        if exactly or self._until_look <= 0 or (self._slots and self._is_another()):
            self._look()
        # once a step, for every module: `map` takes half the time of a comprehension
        self._own_before = [*map(dict.copy, self._own)]
        self._buffers_before = [*map(dict.copy, self._buffers)]
        for at, is_buffer, name in self._activations:
            table = (self._buffers_before if is_buffer else self._own_before)[at]
            value = table.get(name)
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                table[name] = _Activation(value)
        if self._small:
            try:
                self._copy()
            except RuntimeError:  # one was resized
                self._look()
                self._copy()
        for large in self._large.values():
            large.remember(exactly=exactly)

    @torch.no_grad()
    def restore(self) -> tuple[str, ...]:
        """Put back what `remember` saw; nothing where it was not called.

        Returns:
            Names of the tensors that were written and whose former values nobody has.
        """
        for own, before in zip(self._own, self._own_before, strict=False):
            _put_back(own, before)
        for buffers, buffers_before in zip(self._buffers, self._buffers_before, strict=False):
            found = buffers.copy()
            buffers.clear()
            for name, value in buffers_before.items():
                is_kept = isinstance(value, _Activation)
                buffers[name] = value.in_place_of(found.get(name)) if is_kept else value
        for tensor, values in zip(self._small, self._copies, strict=True):
            _write(tensor, values)
        return tuple(large.name for large in self._large.values() if not large.restore())

    # -- inside -----------------------------------------------------------------------------

    def _copy(self) -> None:
        if self._small:
            torch._foreach_copy_(self._copies, self._small)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - one kernel for all of them; torch.optim uses the same

    def _is_another(self) -> bool:
        """Whether a tensor that is known is no longer where it was found."""
        return any(table.get(name) is not tensor for table, name, tensor in self._slots)

    def _look(self) -> None:
        """Find every tensor that a module holds, as a buffer or as a plain attribute."""
        self._looks += 1
        self._until_look = 1 if self._looks < _FIRST_LOOKS else _LOOK_EVERY
        self._slots, self._activations = [], []
        small: dict[int, torch.Tensor] = {}
        large: dict[int, _Large] = {}
        for at, (path, _) in enumerate(self._names):
            for is_buffer, table in ((False, self._own[at]), (True, self._buffers[at])):
                for name, value in tuple(table.items()):
                    if not isinstance(value, torch.Tensor) or is_lazy(value):
                        continue
                    if value.grad_fn is not None:
                        self._activations.append((at, is_buffer, name))
                    elif _can_be_written(value):
                        self._slots.append((table, name, value))
                        if value.nbytes <= MAX_BYTES:
                            small[id(value)] = value
                        else:
                            known = self._large.get(id(value))
                            large[id(value)] = known or _Large(f"{path}.{name}".lstrip("."), value)
        found = list(small.values())
        resized = any(a.shape != b.shape for a, b in zip(self._small, self._copies, strict=True))
        if resized or [*map(id, found)] != [*map(id, self._found)]:
            self._found = found
            with torch.inference_mode(
                mode=False
            ):  # a cell may be in that mode, and steps write them
                self._small = [one.detach() if one.requires_grad else one for one in found]
                self._copies = [torch.empty_like(one) for one in self._small]
        self._large = large


def _version(tensor: torch.Tensor) -> int:
    return tensor._version  # pyright: ignore[reportPrivateUsage] - torch's count of writes in place


def _can_be_written(tensor: torch.Tensor) -> bool:
    """Not where it was expanded: torch refuses to write one number that stands for many."""
    if tensor.layout != torch.strided or tensor.is_inference() or tensor.is_nested:
        return False
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return not any(stride == 0 and size > 1 for size, stride in sizes)


def _write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    if tensor.shape == values.shape:
        tensor.detach().copy_(values)
    else:  # it was resized
        tensor.data = values.to(tensor.device, copy=True)


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Give attributes that were assigned anew what they held, where that is a plain value."""
    for name, value in before.items():
        if isinstance(value, _Activation):
            now[name] = value.in_place_of(now.get(name))
        elif name in _NOT_ITS_OWN or not isinstance(value, _PLAIN):
            continue
        elif name not in now or now[name] is not value:
            now[name] = value
    for name in now.keys() - before.keys() - _NOT_ITS_OWN:
        if isinstance(now[name], _PLAIN) and getattr(now[name], "grad_fn", None) is None:
            del now[name]
