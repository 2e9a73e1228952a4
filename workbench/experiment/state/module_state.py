"""State that a forward changes in a model's modules: saved before a step, restored after one.

A forward may write a buffer in place (batch norm's running statistics), replace it by another
tensor (``self.m = self.m + 1``), or keep tensors and numbers in plain attributes (a queue, a
counter). All of that is restored: a reassigned attribute by its former value, and a tensor that was
written in place by a copy of its values.

*Cost.* A shallow copy of every module's attributes, some 0.2 us per module, and one fused copy of
the values of small tensors. A large tensor (above `MAX_BYTES`) is more often a table than a state:
its values are copied before a step that is undone in any case, and before every step once a step
has written it (torch counts the writes of a tensor; those through ``.data`` are detected by
comparing values at the next such step), on its own device and up to the limit of `held_bytes`. A
large tensor in a plain attribute is more often an output of the forward (attention weights,
features) than a state: it is not kept alive for the next step.

*Activations* (tensors with a graph) are not kept, since that would hold their graph through the
next step: a small one that was replaced is restored without its graph, which no step could use
again.

`ModuleState.restore` names what cannot be restored: a large tensor that was written for the first
time by the step that is undone, or that is too large to be copied in every step, and a large tensor
in a plain attribute that another has replaced. Lists, dictionaries, sets and queues are restored as
described in `module_containers`. Other objects, and large activations, stay as the forward left
them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from workbench.experiment.state.module_containers import ModuleContainers, containers_in
from workbench.modes.core.containers import contents_of, refill
from workbench.torch_private.kernels import copy_all
from workbench.torch_private.modules import COMPILED_CALL
from workbench.torch_private.tensors import version_of

MAX_BYTES = 4 * 2**20
"""Maximum size of a tensor whose values are copied before every step."""

_HELD_BYTES = {"cpu": 8 * 2**20}
_HELD_ELSEWHERE = 256 * 2**20
_FIRST_SEARCHES = 3
_SEARCH_EVERY = 64
"""Number of steps after which modules are searched for tensors again, after the first searches."""
_NOT_ITS_OWN = frozenset(
    {
        "training",
        "_parameters",
        "_buffers",
        "_modules",
        COMPILED_CALL,
        "_is_full_backward_hook",
        "forward",
    }
)
"""Attributes of a module that are not state of a forward: flags, torch's tables, and what modes
set."""
_TABLES = frozenset(vars(nn.Module()))
"""Attributes that every module has: torch's own tables, of hooks and the like."""
NOT_ITS_OWN = _NOT_ITS_OWN | _TABLES
"""Attributes of a module that are torch's, or set by a mode."""
_MOST_CONTAINERS = 10_000
_PLAIN = (
    *(torch.Tensor, np.generic, int, float, complex, str, bytes, tuple, frozenset),
    type(None),
)
"""Types whose values do not change by themselves: an attribute that holds one changes by
assignment."""


class _Place(NamedTuple):
    """Location of a tensor."""

    at: int
    """Index of the module."""
    is_buffer: bool
    name: str


class _Large:
    """A tensor above `MAX_BYTES`.

    Args:
        name: name of the attribute, with the path to its module.
        tensor: value of the attribute.
        is_buffer: whether it is kept alive while a step is computed.
    """

    __slots__ = ("_tensor", "is_held", "is_written", "name", "values", "version")

    def __init__(self, name: str, tensor: torch.Tensor, *, is_buffer: bool) -> None:
        self.name = name
        self._tensor = tensor if is_buffer else weakref.ref(tensor)
        self.values: torch.Tensor | None = None
        self.version = -1
        self.is_written = False
        """Whether any step has written it."""
        self.is_held = False
        """Whether it is copied before every step because a step has written it."""

    @property
    def tensor(self) -> torch.Tensor | None:
        """The tensor; None if it is gone, replaced by another one in a plain attribute."""
        return self._tensor if isinstance(self._tensor, torch.Tensor) else self._tensor()

    def check(self) -> int:
        """Check whether the last step has written it; return how many bytes to copy for that."""
        tensor = self.tensor
        if tensor is None:
            return 0
        version = version_of(tensor)
        if not self.is_written and self.version != -1:
            unseen = self.values is not None and not torch.equal(
                self.values, tensor.detach().to(self.values.device)
            )
            self.is_written = version != self.version or unseen
        self.version = version
        return tensor.nbytes if self.is_written else 0

    def remember(self, *, exactly: bool) -> None:
        """Copy the values if they are held, or if the step is undone ``exactly``."""
        tensor = self.tensor
        if tensor is None or not (exactly or self.is_held):
            self.values = None
            return
        # what is copied for one step alone must not exhaust the device's memory
        place = tensor.device if self.is_held else torch.device("cpu")
        values = self.values
        if values is None or values.shape != tensor.shape or values.device != place:
            with torch.inference_mode(mode=False):  # a cell may have set that mode: steps write it
                self.values = tensor.detach().to(place, copy=True)
        else:
            values.copy_(tensor.detach())

    def restore(self) -> bool:
        """Restore the values; return False if it was written, or is gone, and there is no copy."""
        tensor = self.tensor
        if tensor is None:
            return False
        if self.values is not None:
            _write(tensor, self.values)
        elif version_of(tensor) == self.version:
            return True
        lost = self.values is None
        self.version = version_of(tensor)
        self.is_written = self.is_written or lost
        return not lost


class _Gone:
    """A large tensor of a plain attribute, which is not kept alive."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)

    def in_place_of(self, now: Any) -> Any:
        """Return the value that belongs in the place of ``now``."""
        tensor = self._tensor()
        return now if tensor is None else tensor


class _Slot:
    """A place where a tensor or None was found."""

    __slots__ = ("name", "place", "table", "value")

    def __init__(self, place: _Place, table: dict[str, Any], value: torch.Tensor | None) -> None:
        self.place, self.table, self.name, self.value = place, table, place.name, value


class _Activation:
    """A tensor with a graph, of which at most the values are kept."""

    __slots__ = ("_tensor", "_values")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        is_small = tensor.untyped_storage().nbytes() <= MAX_BYTES  # a view holds all of it
        self._values = tensor.detach() if is_small else None

    def in_place_of(self, now: Any) -> Any:
        """Return the value that belongs in the place of ``now``."""
        is_there = now is not None and now is self._tensor()
        return now if is_there or self._values is None else self._values


class ModuleState:
    """The state that the modules of a model (and of a loss) keep in addition to their parameters.

    Args:
        models: models whose modules are covered: those that they have at construction, or at
            `refresh`.
    """

    def __init__(self, *models: nn.Module) -> None:
        self._models = models
        self._find_modules()
        self._own_before: list[dict[str, Any]] = []
        self._buffers_before: list[dict[str, Any]] = []
        self._contents: list[tuple[Any, list[Any]]] = []
        """All containers with their contents, if the step is undone in any case."""
        self._containers = ModuleContainers((), _TABLES)
        self._activations: list[_Place] = []
        """Tensors with a graph, which a copied reference would keep alive."""
        self._passing: list[_Place] = []
        """Large tensors in plain attributes, which are not kept alive either."""
        self._slots: list[_Slot] = []
        """Where each tensor was found, to detect that another has replaced it."""
        self._found: list[torch.Tensor] = []
        self._small: list[torch.Tensor] = []
        """The tensors in `_found`, without a graph."""
        self._copies: list[torch.Tensor] = []
        self._is_shared = False
        """Whether one small tensor is in two places."""
        self._large: dict[_Place, _Large] = {}
        self._sizes: list[int] = []
        """Number of attributes of every module."""
        self._num_searches = self._until_search = 0
        self._is_held = False
        """Whether anything is saved."""

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

    def refresh(self) -> None:
        """Search for modules again before the next step, since they may have changed."""
        self._is_stale, self._until_search = True, 0

    def remember(self, *, exactly: bool = True) -> None:
        """Save the state before a step.

        Args:
            exactly: copy the values of large tensors too, because the step is undone in any case.
        """
        if self._is_stale:
            self._find_modules()
        self._until_search -= 1
        if exactly or self._until_search <= 0 or self._sizes != [*map(len, self._own)]:
            self._find_tensors()
        elif moved := [s for s in self._slots if s.table.get(s.name) is not s.value]:
            self._follow(moved)
        # once a step, for every module: `map` takes half the time of a comprehension
        self._own_before = [*map(dict.copy, self._own)]
        self._buffers_before = [*map(dict.copy, self._buffers)]
        if exactly:
            every = (
                value for own in self._own for name, value in own.items() if name not in _TABLES
            )
            found = containers_in(every, _MOST_CONTAINERS)
            self._contents = [(one, contents_of(one)) for one in found]
        else:
            self._contents = []
            self._release_large()
        self._containers.remember()
        if self._small:
            try:
                self._copy()
            except RuntimeError:  # one was resized
                self._find_tensors()
                self._copy()
        if self._large:
            self._remember_large(exactly=exactly)
        self._is_held = True

    def release(self) -> None:
        """Discard the saved state, after a step that succeeded."""
        self._is_held = False
        self._own_before, self._buffers_before, self._contents = [], [], []
        self._containers.release()

    @torch.no_grad()
    def restore(self) -> tuple[str, ...]:
        """Restore what `remember` saved; do nothing if it was not called, or after `release`.

        Returns:
            Names of the tensors that were written and whose former values are not available.
        """
        if not self._is_held:
            return ()
        self._containers.restore()
        for container, contents in self._contents:
            refill(container, contents)
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
            copy_all(self._copies, self._small)

    def _release_large(self) -> None:
        """Release activations and large tensors of plain attributes."""
        for at, is_buffer, name in self._activations:
            table = (self._buffers_before if is_buffer else self._own_before)[at]
            value = table.get(name)
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                table[name] = _Activation(value)
        for at, _, name in self._passing:
            value = self._own_before[at].get(name)
            if isinstance(value, torch.Tensor) and not value.is_nested and value.nbytes > MAX_BYTES:
                self._own_before[at][name] = _Gone(value)

    def _remember_large(self, *, exactly: bool) -> None:
        sums: dict[torch.device, int] = {}
        for place, large in tuple(self._large.items()):
            one, now = large, self._own[place.at].get(place.name)
            if not place.is_buffer and large.tensor is not now:  # another took its place
                if not isinstance(now, torch.Tensor) or now.is_nested or now.nbytes <= MAX_BYTES:
                    self._until_search = 0
                    continue
                one = self._large[place] = _Large(large.name, now, is_buffer=False)
            tensor, num_bytes = one.tensor, one.check()
            if tensor is not None and num_bytes:
                sums[tensor.device] = sums.get(tensor.device, 0) + num_bytes
                one.is_held = sums[tensor.device] <= held_bytes(tensor.device)
            one.remember(exactly=exactly)

    def _follow(self, moved: list[_Slot]) -> None:
        """Update only those slots whose tensor was replaced by another."""
        index = {id(one): at for at, one in enumerate(self._found)}
        for slot in moved:
            now = slot.table.get(slot.name)
            if slot.place in self._large and _is_large_state(now):
                slot.value = now
                self._add_large(slot.place, now, {})
                continue
            at = None if slot.value is None else index.pop(id(slot.value), None)
            if self._is_shared or at is None or not _is_small_state(now) or id(now) in index:
                self._find_tensors()
                return
            slot.value = self._found[at] = self._small[at] = now
            index[id(now)] = at
            room = self._copies[at]
            if (now.shape, now.dtype, now.device) != (room.shape, room.dtype, room.device):
                self._copies[at] = torch.empty_like(now)

    def _find_tensors(self) -> None:
        """Find every tensor that a module holds, as a buffer or as a plain attribute."""
        self._num_searches += 1
        self._until_search = 1 if self._num_searches < _FIRST_SEARCHES else _SEARCH_EVERY
        self._sizes = [*map(len, self._own)]
        self._slots, self._activations, self._passing = [], [], []
        self._containers = ModuleContainers([module for _, module in self._names], _TABLES)
        known, self._large = self._large, {}
        small: dict[int, torch.Tensor] = {}
        seen: set[int] = set()
        num_small = 0
        for place, table, value in self._everything():
            if value is None:
                self._slots.append(_Slot(place, table, None))
            elif value.grad_fn is not None:
                self._activations.append(place)
            elif _can_be_written(value):
                is_small = value.nbytes <= MAX_BYTES
                if is_small or place.is_buffer:
                    self._slots.append(_Slot(place, table, value))
                else:
                    self._passing.append(place)
                if is_small:
                    num_small += 1
                    small[id(value)] = value
                elif id(value) not in seen:
                    seen.add(id(value))
                    self._add_large(place, value, known)
        self._is_shared = num_small > len(small)
        self._copy_into(list(small.values()))

    def _everything(self) -> Iterator[tuple[_Place, dict[str, Any], torch.Tensor | None]]:
        """Yield every tensor with its place, and every place that may hold one later."""
        for at in range(len(self._names)):
            for is_buffer, table in ((False, self._own[at]), (True, self._buffers[at])):
                for name, value in tuple(table.items()):
                    is_tensor = isinstance(value, torch.Tensor) and not is_lazy(value)
                    if is_tensor or (value is None and name not in _NOT_ITS_OWN):
                        yield _Place(at, is_buffer, name), table, value

    def _add_large(self, place: _Place, tensor: torch.Tensor, known: dict[_Place, _Large]) -> None:
        one = known.get(place)
        if one is None or one.tensor is not tensor:
            path = f"{self._names[place.at][0]}.{place.name}".lstrip(".")
            one = _Large(path, tensor, is_buffer=place.is_buffer)
        self._large[place] = one

    def _copy_into(self, found: list[torch.Tensor]) -> None:
        """Allocate the copies of small tensors."""
        resized = any(a.shape != b.shape for a, b in zip(self._small, self._copies, strict=True))
        if not resized and [*map(id, found)] == [*map(id, self._found)]:
            return
        self._found = found
        with torch.inference_mode(mode=False):  # a cell may have set that mode: steps write them
            self._small = [one.detach() if one.requires_grad else one for one in found]
            self._copies = [torch.empty_like(one) for one in self._small]


def held_bytes(device: torch.device) -> int:
    """Return the maximum size of large state that every step writes, in bytes.

    It is copied before each step, in about a millisecond.
    """
    return _HELD_BYTES.get(device.type, _HELD_ELSEWHERE)


def _can_be_written(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` can be written in place.

    An expanded tensor cannot: torch refuses to write one number that stands for many.
    """
    if tensor.layout != torch.strided or tensor.is_inference() or tensor.is_nested:
        return False
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return not any(stride == 0 and size > 1 for size, stride in sizes)


def _is_state(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not value.requires_grad and _can_be_written(value)


def _is_small_state(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether its values are copied before every step."""
    return _is_state(value) and value.nbytes <= MAX_BYTES


def _is_large_state(value: Any) -> TypeGuard[torch.Tensor]:
    return _is_state(value) and value.nbytes > MAX_BYTES


def _write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    if tensor.shape == values.shape:
        tensor.detach().copy_(values)
    else:  # it was resized
        tensor.data = values.to(tensor.device, copy=True)


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Restore attributes that were reassigned, where their former value is a plain one."""
    for name, value in before.items():
        if isinstance(value, (_Activation, _Gone)):
            now[name] = value.in_place_of(now.get(name))
        elif name in _NOT_ITS_OWN or not isinstance(value, _PLAIN):
            continue
        elif name not in now or now[name] is not value:
            now[name] = value
    for name in now.keys() - before.keys() - _NOT_ITS_OWN:
        if isinstance(now[name], _PLAIN) and getattr(now[name], "grad_fn", None) is None:
            del now[name]
