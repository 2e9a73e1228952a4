"""What the objects of a training keep in Python, brought back: counters, lists, tables, a rate.

A model counts its calls, a loss keeps a list, an optimizer has a number of its own, a schedule has
no ``state_dict``. On ranks these are copies. So before a training is sent, every object that its
model, loss, optimizer and schedule hold is listed, and the list is sent with it: a rank has the
copies in the same order. With a checkpoint rank 0 reports what is in each of them that was not
there when it arrived, and that is put into the very objects that the user has here: code that holds
the optimizer, a list of the model or the schedule finds in it what one process would have left.

*What comes back* is what has changed: attributes, also new and deleted ones, what is in containers,
values of tensors and arrays, states of generators. What a cell changes here meanwhile stays, unless
the ranks have changed the same. An activation comes back without its graph. Weights, buffers and
moments come with the checkpoint (`workbench.parallel.transfer.checkpoint`).

*Ranks that differ*: each rank sees its own rows, so what is computed from them (a list of means,
the last logits) is not the same on all ranks. What comes back is rank 0's, as it is for running
statistics, and a note says for which attributes that is so. What cannot be pickled stays on the
ranks, and is named.

*What it costs*: nothing in a step. With each checkpoint and each validation everything listed is
compared with what it was, by identity, and tensors by their values; of each small one there is a
copy on the rank.
"""

from __future__ import annotations

import hashlib
import types
from collections import deque
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.experiment.state.attachments import OPTIMIZER_HOOKS, own_attributes
from workbench.experiment.state.object_change import Change, fill, generator_state
from workbench.experiment.state.object_copy import attributes, never_changes, walk
from workbench.experiment.state.user_code import may_be_user_module
from workbench.parallel.sentences import listed
from workbench.parallel.transfer.job_pickle import from_known, to_known
from workbench.parallel.transfer.outside_writes import written_outside
from workbench.parallel.transfer.shared_memory import Shared, shared_in
from workbench.torch_private.tensors import counted_version

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_LARGE_BYTES = 16 * 2**20
"""Size of a tensor above which it is not copied for comparison: torch's count of writes is used."""
_OF_RECURRENT = ("_flat_weights", "_flat_weight_refs")
_MISSING = object()


class Changes(NamedTuple):
    """The part of a checkpoint that belongs to `ObjectState`."""

    changed: bytes
    """Changes, for a process that has the same list."""
    differ: list[str]
    """What is not the same on all ranks."""
    lost: list[str]
    """What has changed and cannot be pickled."""


class ObjectState:
    """The objects that a training holds, here or as their copies on a rank.

    Args:
        objects: the objects, in the same order in each process.
        names: the path by which each is reached.
        references: what is known on both sides, and comes back by other means.
        tensors_of: modules whose parameters and buffers come with no checkpoint.
    """

    def __init__(
        self,
        objects: list[Any],
        names: list[str],
        references: list[Any],
        tensors_of: list[nn.Module],
    ) -> None:
        self.objects, self._names = objects, names
        self._references, self._tensors_of = references, tensors_of
        self.shared: list[Shared] = []
        """Tensors of the training that share memory."""
        self.functions: list[types.FunctionType] = []
        """A loss that is a function, in this process only."""
        self._begun: list[_Contents] | None = None

    @classmethod
    def of(cls, training: Training) -> ObjectState:
        """Return the state of a training that is about to be sent."""
        optimizer, schedule = training.optimizer, training.schedule.scheduler
        roots = {
            "model": training.model,
            "loss": training.loss.function,
            type(optimizer).__name__: optimizer,
            type(schedule).__name__: schedule,
        }
        roots |= _of_classes([*training.model.modules(), *roots.values()])
        beside = list(_by_other_ways(training))
        found = list(walk(roots, beside, modules=True))
        own = set(map(id, training.model.modules()))
        modules = [one for _, one in found if isinstance(one, nn.Module) and id(one) not in own]
        changing = [(path, one) for path, one in found if _can_be_looked_at(one)]
        made = cls([one for _, one in changing], [path for path, _ in changing], beside, modules)
        of_model = (*training.model.named_parameters(), *training.model.named_buffers())
        made.functions = [one for one in roots.values() if isinstance(one, types.FunctionType)]
        made.shared = shared_in((*of_model, *made.tensors))
        return made

    def __reduce__(self) -> Any:
        """Pickle it after the training: the copies are listed in this order there."""
        parts = self.objects, self._names, self._references, self._tensors_of
        return ObjectState, parts, {"shared": self.shared}

    def keep_those_in(self, travelled: Mapping[int, Any], numbered: Container[int]) -> None:
        """Once the training is pickled, forget what was left out of it, and reference its code.

        Args:
            travelled: every object that was pickled, by identity.
            numbered: identity of tensors of which only the number was pickled.
        """
        kept = [at for at, one in enumerate(self.objects) if id(one) in travelled]
        self.objects = [self.objects[at] for at in kept]
        self._names = [self._names[at] for at in kept]
        self._tensors_of = [one for one in self._tensors_of if id(one) in travelled]
        known = {id(one) for one in self.objects}
        self.shared = [
            one
            for one in self.shared
            if all(id(tensor) in known or id(tensor) in numbered for tensor in one.tensors)
        ]
        code = [one for one in travelled.values() if isinstance(one, _CODE)]
        both = [one for one in self._references if id(one) in travelled or id(one) in numbered]
        self._references = [*both, *code]

    def written_outside(self) -> list[str]:
        """Return names of what code writes outside of these objects, which stays on the ranks."""
        functions = [
            one
            for value in self.objects
            for one in attributes(value).values()
            if isinstance(one, types.FunctionType)
        ]
        return written_outside([*self.functions, *functions, *self.objects])

    @property
    def named(self) -> list[tuple[str, Any]]:
        """All of them, with the path to each."""
        return list(zip(self._names, self.objects, strict=True))

    @property
    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Tensors that come with no checkpoint, with the path to each."""
        return [(name, one) for name, one in self.named if isinstance(one, torch.Tensor)]

    # -- on a rank --------------------------------------------------------------------------

    def begin(self, changed: Mapping[int, Any]) -> None:
        """Detect changes from here on.

        Args:
            changed: by identity of a parameter as it arrived, what it is now that it is sharded.
        """
        self._references = [changed.get(id(one), one) for one in self._references]
        known = self._known
        apart = set(map(id, self._tensors_of))
        self._begun = [_Contents(one, known, with_tensors=id(one) in apart) for one in self.objects]

    @contextmanager
    def undone(self) -> Generator[None]:
        """Restore objects other than modules on leaving: inside, a step is tried.

        Attributes of modules are restored by the caller (`workbench.experiment.loop.step_undo`).
        """
        known = self._known
        beside = [one for one in self.objects if not isinstance(one, nn.Module)]
        before = [_Contents(one, known, with_tensors=False) for one in beside]
        try:
            yield
        finally:
            for one, contents in zip(beside, before, strict=True):
                contents.put_back(one, known)

    def changes(self) -> tuple[Changes, dict[str, bytes]]:
        """Return what has changed on this rank, and a digest of each change, by the path to it.

        ``differ`` is filled in by a caller that has the digests of all ranks.
        """
        if self._begun is None:
            return Changes(b"", [], []), {}
        known, numbers = self._known, {id(one): at for at, one in enumerate(self._all)}
        found: list[tuple[int, Change]] = []
        lost: list[str] = []
        digests: dict[str, bytes] = {}
        for at, (one, begun) in enumerate(zip(self.objects, self._begun, strict=True)):
            if (change := begun.changes(one, known)) is None:
                continue
            own: dict[Any, Any] = {}
            for key, value in change.own.items():
                name = f"{self._names[at]}.{key[-1] if isinstance(key, tuple) else key}"
                if (digest := _digest_if_any(value, numbers)) is None:
                    lost.append(name)
                else:
                    own[key], digests[name] = value, digest
            kept = change._replace(own=own)
            if change.inside is not None or change.whole is not None:
                digest = _digest_if_any((change.inside, change.whole), numbers)
                if digest is None:
                    lost.append(self._names[at])
                    kept = kept._replace(inside=None, whole=None)
                else:
                    digests[self._names[at]] = digest
            found.append((at, kept))
        return Changes(to_known(found, numbers), [], lost), digests

    @property
    def _all(self) -> list[Any]:
        return [*self._references, *self.objects]

    @property
    def _known(self) -> frozenset[int]:
        return frozenset(map(id, self._all))

    # -- in the kernel ----------------------------------------------------------------------

    def take(self, changes: Changes | None) -> Iterator[str]:
        """Put what has changed into the objects here; yields what the user should know about it."""
        if changes is None:
            return
        if changes.changed:
            tensors = (one for one in self._references if isinstance(one, torch.Tensor))
            device = next((one.device for one in tensors), None)
            for at, change in from_known(changes.changed, self._all):
                fill(self.objects[at], change, device)
        if changes.differ:
            verb = "are" if len(changes.differ) > 1 else "is"
            yield (
                f"{listed(changes.differ, 4)} {verb} not the same on all ranks, as each has its "
                "own samples (or rows of parameters); what has come back is the first rank's"
            )
        if changes.lost:
            yield (
                f"{listed(changes.lost, 4)} changed on the ranks and cannot be pickled: what is "
                "here is what was here before"
            )


def differing(digests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is not the same on all ranks, by their digests; some may have more."""
    first, *others = digests
    names = dict.fromkeys(name for one in (first, *others) for name in one)
    return [name for name in names if any(one.get(name) != first.get(name) for one in others)]


def _of_classes(objects: Iterable[Any]) -> dict[str, Any]:
    """Return containers and tensors in attributes of user classes, which are sent with them."""
    classes = dict.fromkeys(cls for one in objects for cls in type(one).__mro__)
    return {
        f"{cls.__name__}.{name}": value
        for cls in classes
        if may_be_user_module(cls.__module__)
        for name, value in vars(cls).items()
        if isinstance(value, (list, dict, set, deque, torch.Tensor)) and not name.startswith("__")
    }


def _can_be_looked_at(value: Any) -> bool:
    """Whether its contents can be compared one by one, and restored; others are compared whole."""
    if isinstance(value, (tuple, frozenset)):
        return False
    is_container = isinstance(value, (torch.Tensor, nn.Module, dict, list, set, deque))
    return is_container or _state(value) is not None or bool(attributes(value))


def _by_other_ways(training: Training) -> Iterator[Any]:
    """Yield what belongs to the training and comes back with a checkpoint, or stays as it is."""
    yield from training.model.parameters()
    yield from training.model.buffers()
    optimizer = training.optimizer
    groups: list[dict[str, Any]] = optimizer.param_groups
    yield from (optimizer.state, groups, *groups, *(group["params"] for group in groups))
    for state in cast("dict[Any, dict[str, Any]]", optimizer.state).values():
        yield from (state, *(one for one in state.values() if _is_tensor(one)))
    yield from (getattr(optimizer, name) for name in OPTIMIZER_HOOKS if hasattr(optimizer, name))
    yield from (training.schedule, training.loss)
    for source in (training.cursor.source, training.val):
        for one in (source, *(getattr(source, name, None) for name in ("loader", "dataset"))):
            if one is not None:
                yield one


# -- one object -----------------------------------------------------------------------------


class _Contents:
    """What is in an object at this moment.

    Args:
        value: the object.
        known: identities of all objects that are inspected separately.
        with_tensors: for a module, whether its own parameters and buffers count.
    """

    def __init__(self, value: Any, known: frozenset[int], *, with_tensors: bool) -> None:
        self._with_tensors = with_tensors
        self._whole = _whole(value)
        self._own = _own(value, with_tensors=with_tensors) if self._whole is None else {}
        self._inside = _contents(value)
        self._marks = {name: _mark(one, known) for name, one in self._own.items()}
        self._mark_inside = [_mark(one, known) for one in _flat(self._inside)]

    def changes(self, value: Any, known: frozenset[int]) -> Change | None:
        """Return what has changed in it; None if nothing has."""
        if self._whole is not None:
            now = self._whole.changed(value)
            return None if now is None else Change({}, [], None, now)
        own = _own(value, with_tensors=self._with_tensors)
        changed = {
            name: _without_graph(one)
            for name, one in own.items()
            if name not in self._own or not _is_as(one, self._own[name], self._marks[name], known)
        }
        gone = [name for name in self._own if name not in own]
        inside = _contents(value)
        was, is_now = _flat(self._inside), _flat(inside)
        if len(was) == len(is_now) and all(
            _is_as(one, before, mark, known)
            for one, before, mark in zip(is_now, was, self._mark_inside, strict=True)
        ):
            inside = None
        if not (changed or gone or inside is not None):
            return None
        return Change(changed, gone, _without_graphs(inside), None)

    def put_back(self, value: Any, known: frozenset[int]) -> None:
        """Restore what the object held."""
        change = self.changes(value, known)
        if change is None:
            return
        if self._whole is not None:
            if (was := self._whole.was) is not None:
                fill(value, Change({}, [], None, was), None)
            return
        own = {name: self._own[name] for name in change.own if name in self._own}
        own |= {name: self._own[name] for name in change.gone}
        gone = [name for name in change.own if name not in self._own]
        inside = None if change.inside is None else self._inside
        fill(value, Change(own, gone, inside, None), None)


def _own(value: Any, *, with_tensors: bool) -> dict[Any, Any]:
    own: dict[Any, Any] = (
        own_attributes(value)
        if isinstance(value, torch.optim.Optimizer)
        else dict(attributes(value))
    )
    own = {name: one for name, one in own.items() if not isinstance(one, DTensor)}
    if isinstance(value, nn.RNNBase):  # lists of its parameters, which torch makes again
        own = {name: one for name, one in own.items() if name not in _OF_RECURRENT}
    if with_tensors:
        for table in ("_parameters", "_buffers"):
            own |= {(table, name): one for name, one in vars(value)[table].items()}
    return own


def _contents(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        return list(cast("dict[Any, Any]", value).items())
    if isinstance(value, (list, set, deque)):
        return list(cast("Iterable[Any]", value))
    return None


def _flat(inside: list[Any] | None) -> list[Any]:
    """Return the elements; for a mapping, keys and values."""
    if inside and all(type(one) is tuple and len(one) == 2 for one in inside):
        return [part for pair in inside for part in pair]
    return inside or []


def _mark(value: Any, known: frozenset[int]) -> bytes | None:
    """Return what shows that the same object has other contents; None where they show anyway."""
    if id(value) in known or never_changes(value):
        return None
    if isinstance(value, (tuple, frozenset)):
        items = cast("Iterable[Any]", value)
        if all(_mark(one, known) is None for one in items):
            return None
    try:
        return _digest(_plainly(value))
    except Exception:  # noqa: BLE001 - what cannot be pickled is compared by identity
        return None


def _is_as(now: Any, before: Any, mark: bytes | None, known: frozenset[int]) -> bool:
    if now is before:
        return mark is None or _mark(now, known) in (mark, None)
    is_plain = type(now) is type(before) and isinstance(now, _COMPARED)
    return is_plain and (now == before or now != now)  # noqa: PLR0124 - a NaN is not itself


def _plainly(value: Any) -> bytes:
    return to_known(value, {}, to_compare=True)


def _digest_if_any(value: Any, numbers: dict[int, int]) -> bytes | None:
    """Return its digest; None where it cannot be pickled."""
    try:
        return _digest(to_known(value, numbers, to_compare=True))
    except Exception:  # noqa: BLE001 - a __reduce__ of the user's may raise anything
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _without_graph(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.grad_fn is not None:
        return value.detach()
    if isinstance(value, tuple) and any(_has_graph(one) for one in cast("Any", value)):
        return tuple(_without_graph(one) for one in cast("Any", value))
    return value


def _without_graphs(inside: list[Any] | None) -> list[Any] | None:
    return None if inside is None else [_without_graph(one) for one in inside]


def _has_graph(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


_COMPARED = (bool, int, float, complex, str, bytes)
_CODE = (type, types.FunctionType)


# -- objects whose contents are in no attribute ---------------------------------------------


class _Values:
    """Values of a tensor, which are copied unless it is large."""

    def __init__(self, tensor: torch.Tensor) -> None:
        is_small = tensor.nbytes <= _LARGE_BYTES and tensor.layout is torch.strided
        self._values = tensor.detach().cpu().clone() if is_small else None
        self._count = _writes(tensor)

    @property
    def was(self) -> torch.Tensor | None:
        """The values; None for a large tensor."""
        return self._values

    def changed(self, tensor: torch.Tensor) -> torch.Tensor | None:
        now = tensor.detach()
        if isinstance(now, DTensor):
            return None
        if self._values is None:
            return None if _writes(tensor) == self._count else now.cpu()
        now = now.cpu()
        alike = (now.shape, now.dtype) == (self._values.shape, self._values.dtype)
        return None if alike and torch.equal(now, self._values) else now.clone()


class _State:
    """The state of an array or of a generator of random numbers."""

    def __init__(self, value: Any) -> None:
        self.was = _state(value)
        self._digest = _digest(_plainly(self.was))

    def changed(self, value: Any) -> Any:
        state = _state(value)
        return None if _digest(_plainly(state)) == self._digest else state


def _whole(value: Any) -> _Values | _State | None:
    if isinstance(value, torch.Tensor):
        return _Values(value)
    return None if _state(value) is None else _State(value)


def _state(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return cast("Any", value).copy()
    return generator_state(value)


def _writes(tensor: torch.Tensor) -> tuple[int, int]:
    return counted_version(tensor), tensor.data_ptr()
