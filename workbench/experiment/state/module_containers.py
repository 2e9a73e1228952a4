"""Lists, dictionaries, sets and queues that modules keep, as they were before a step.

A forward appends to a list, counts in a dictionary, or replaces it by another. A step that fails
undoes that, as it does with what is kept in plain attributes and buffers
(`workbench.experiment.state.module_state`).

*Cost*: a shallow copy of each small container (up to `MOST_COPIED` elements) in every step. A
larger list, queue or dictionary is more often a record than a state: its length is saved, and what
was added is removed from its end. Containers that hold activations or large tensors are not copied,
since that would keep their graph or their memory through the next step; they stay as the forward
left them. So do those of torch's own layers, which never change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import nn

from workbench.modes.core.containers import CONTAINERS, contents_of, refill, size_of, values_of

MOST_COPIED = 64
"""Maximum number of elements of a container that is copied before every step."""
_MOST_IN_QUEUE = 1_000
"""The same for a queue that drops its first element for a new one."""
_MOST_INSIDE = 1_000
"""Maximum number of containers that are inspected in one attribute."""
_MOST_BYTES = 4 * 2**20
"""Maximum size of a tensor in a container that is copied."""


class ModuleContainers:
    """The containers in attributes of some modules.

    Args:
        modules: modules to inspect.
        not_theirs: names of attributes that are torch's.
    """

    def __init__(self, modules: Sequence[nn.Module], not_theirs: frozenset[str]) -> None:
        of_torch = ("torch.nn.", "torch.ao.")
        self._kept = [
            _Kept(vars(module), name, value)
            for module in modules
            if not type(module).__module__.startswith(of_torch)
            for name, value in vars(module).items()
            if isinstance(value, CONTAINERS) and name not in not_theirs
        ]

    def remember(self) -> None:
        """Save the containers before a step."""
        for kept in self._kept:
            kept.remember()

    def restore(self) -> None:
        """Restore the contents of containers, and the attributes that held them."""
        for kept in self._kept:
            kept.restore()

    def release(self) -> None:
        """Discard what was saved before the step."""
        for kept in self._kept:
            kept.release()


class _Kept:
    """A container in an attribute, with those inside it."""

    __slots__ = ("_before", "_inside", "_name", "_own", "_sizes", "_value")

    def __init__(self, own: dict[str, Any], name: str, value: Any) -> None:
        self._own, self._name = own, name
        self._before: list[_Before] = []
        self._inspect(value)

    def _inspect(self, value: Any) -> None:
        self._value = value
        self._inside = list(containers_in([value], _MOST_INSIDE, largest=MOST_COPIED))
        self._sizes = [*map(len, self._inside)]

    def remember(self) -> None:
        now = self._own.get(self._name)
        if not isinstance(now, CONTAINERS):
            self._before = []
            return
        if now is not self._value or self._sizes != [*map(len, self._inside)]:
            self._inspect(now)
        self._before = [_Before(one) for one in self._inside]
        if not self._before[0].is_known:
            self._before = []

    def restore(self) -> None:
        if self._before:
            self._own[self._name] = self._value
        for one in self._before:
            one.put_back()

    def release(self) -> None:
        self._before = []
        if self._value is not self._own.get(self._name):  # another took its place: release it
            self._inspect(self._own.get(self._name))


class _Before:
    """Contents of a container."""

    __slots__ = ("_contents", "_last", "_one", "_size", "is_known")

    def __init__(self, one: Any) -> None:
        self._one, self._size = one, len(one)
        self._contents = self._last = None
        self.is_known = True
        """Whether it can be restored."""
        if self._size > (_MOST_IN_QUEUE if _is_bounded(one) else MOST_COPIED):
            self._last = one[-1] if isinstance(one, (list, deque)) else None
            if isinstance(self._last, torch.Tensor):
                self._last = None
                self.is_known = False
            return
        contents = contents_of(one)
        inside = one.values() if isinstance(one, dict) else contents
        if any(_is_passing(value) for value in inside):
            self.is_known = False
        else:
            self._contents = contents

    def put_back(self) -> None:
        one = self._one
        if not self.is_known:
            return
        if self._contents is not None:
            refill(one, self._contents)
        elif isinstance(one, (list, deque)):
            items = cast("list[Any]", one)
            if len(items) > self._size and items[self._size - 1] is self._last:
                while len(items) > self._size:
                    items.pop()
        elif isinstance(one, dict):
            while len(cast("dict[Any, Any]", one)) > self._size:
                one.popitem()


def containers_in(values: Iterable[Any], most: int, largest: float = math.inf) -> Iterator[Any]:
    """Yield the containers in ``values`` and those inside them, each once, before what it holds.

    Args:
        values: any values.
        most: maximum number of containers.
        largest: maximum number of elements of a container that is searched.
    """
    seen: set[int] = set()
    waiting = deque(value for value in values if isinstance(value, CONTAINERS))
    while waiting and len(seen) < most:
        one: Any = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if size_of(one) > largest:
            continue
        waiting += (value for value in values_of(one) if isinstance(value, CONTAINERS))


def _is_bounded(one: Any) -> bool:
    """Return whether adding to its end removes from its beginning."""
    return isinstance(one, deque) and cast("deque[Any]", one).maxlen is not None


def _is_passing(value: Any) -> bool:
    """Return whether ``value`` is an activation, or a large tensor.

    Both are more often an output of the forward than a state.
    """
    if isinstance(value, (tuple, frozenset)):
        return any(map(_is_passing, cast("Iterable[Any]", value)))
    if not isinstance(value, torch.Tensor):
        return False
    is_plain = value.layout is torch.strided and not value.is_nested
    return value.grad_fn is not None or (is_plain and value.nbytes > _MOST_BYTES)
