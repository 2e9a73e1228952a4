"""What a training is made of, as bytes with which another process can continue.

A notebook's classes are defined in ``__main__``, which no other process has, so they are sent by
value (cloudpickle), and with them the source of their cells: a traceback or a graph break in a
worker then names the cell's line. What is large is not sent here: parameters, buffers and moments
are left out and come from a checkpoint (`workbench.parallel.transfer.checkpoint`), sharded as the
workers need them. The process that unpacks finds empty tensors in their places, shared where they
were shared, with the attributes and hooks that they had (`workbench.experiment.state.attachments`).
Settings of the process and of the thread are included, and are applied if that is requested.

A payload is a program: it is unpickled only if it has the seal of its session, which no one but its
user can give (`workbench.trust`). Large arrays of the data are stored in files next to it, which
all ranks map into their memory: there is one copy, however many ranks there are.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import math
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import cloudpickle
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader

from workbench.experiment.loop.monitor import Monitor
from workbench.experiment.loop.weight_average import WeightAverage
from workbench.experiment.recipe.losses import OWN
from workbench.experiment.state import attachments
from workbench.experiment.state.host_bytes import host_bytes
from workbench.experiment.state.process_settings import ProcessSettings
from workbench.experiment.state.thread_state import ThreadState
from workbench.experiment.training import Training
from workbench.modes import ModeSet
from workbench.modes.core.machine_probes import first_line
from workbench.parallel.exchange.files import ARRAY
from workbench.parallel.transfer import torch_objects
from workbench.parallel.transfer.hook_state import HookState
from workbench.trust import Seal

if TYPE_CHECKING:
    from workbench.experiment.data.sources import DataSource
    from workbench.experiment.recipe.losses import Loss
    from workbench.experiment.recipe.schedules import Schedule
    from workbench.parallel.transfer.object_state import ObjectState

PAYLOAD = "payload"
"""What a payload is sealed for."""
_LARGE_BYTES = 2**20
_DEEPEST = 12
"""Maximum depth of attributes that are searched for what cannot be pickled."""


class PackingError(TypeError):
    """Something cannot be sent to another process; the message says where it is and what helps."""


def pack(
    training: Training,
    path: Path,
    caller_settings: Settings | None = None,
    *,
    seal: Seal | None = None,
) -> HookState | None:
    """Write ``training`` to ``path``, without its weights and moments; call it on its own thread.

    Its modes must be detached: compiled regions are made again by the process that unpacks.

    Args:
        training: the training to write.
        path: the file, in a folder that belongs to the user alone.
        caller_settings: what is set where it was requested; None: that of the run.
        seal: seal of the session; None: that of this process.

    Returns:
        What its hooks keep, to be taken over from the other process (`Training.hook_state`).

    Raises:
        PackingError: a part of it cannot be pickled.
    """
    parts: dict[str, Any] = {
        "model": training.model,
        "optimizer": training.optimizer,
        "schedule": training.schedule,
        "loss": training.loss,
        "train": training.cursor.source,
        "val": training.val,
    }
    settings = {
        "name": training.name,
        "device": training.device.type,
        "modes": training.modes,
        "seed": training.seed,
        "clip_grad_norm": training.clip_grad_norm,
        "monitor": _monitor_of_ranks(training),
        "ema": training.ema and training.ema.decay,
        "model_paths": (training.undivided, training.model_paths, training.num_new_paths),
    }
    caller_settings = caller_settings or Settings(
        ProcessSettings.current(), training.caller_settings
    )
    caller_settings = caller_settings._replace(
        thread=_without_modes_of_here(training, caller_settings.thread)
    )
    left_out = _left_out(training.model, training.optimizer)

    def hooks() -> HookState:
        found = HookState.of(training, caller_settings.thread, lambda one: _can(one, left_out))
        for where, whose in found.aliases():
            raise PackingError(
                f"{where} shares its memory with {whose}, which a copy in another process would "
                "not: let the hook hold the parameter or the module itself, and take .data or a "
                "view of it where it is called"
            )
        return found

    kept = Kept(training.object_state, hooks)
    return dump(path, parts, settings, left_out, caller_settings, kept=kept, seal=seal)


def dump(
    path: Path,
    parts: dict[str, Any],
    settings: dict[str, Any],
    left_out: dict[int, int] | None = None,
    caller_settings: Settings | None = None,
    *,
    kept: Kept | None = None,
    seal: Seal | None = None,
) -> HookState | None:
    """Write ``parts`` and ``settings`` to ``path``, with the sources of the cells they come from.

    Args:
        path: the file, in a folder that belongs to the user alone.
        parts: what the user made, by the names that messages use for it.
        settings: plain data.
        left_out: identity of every tensor that stays behind -> its number.
        caller_settings: what is set where it was requested; None: on this thread.
        kept: what must come back of what it keeps.
        seal: seal of the session; None: that of this process.

    Returns:
        What its hooks keep, if that was requested.

    Raises:
        PackingError: a part cannot be pickled.
    """
    left_out = left_out or {}
    caller_settings = caller_settings or Settings.current(torch.device("cpu"))
    try:
        stream = io.BytesIO()
        pickle.dump({"path": sys.path, "cells": cells()}, stream)
        pickler = _Pickler(stream, left_out, path.parent)
        operators = [one for one in torch_objects.operators_of_cells() if _can(one, {})]
        pickler.dump((caller_settings.process, operators))
        _dump_whole(pickler, (parts, settings, caller_settings.thread, attachments.hooks_of_all()))
        objects, hooks = (None, None) if kept is None else kept
        if objects is not None:
            objects.keep_those_in(pickler.travelled(), left_out)
        found = None if hooks is None else hooks()
        pickler.dump((objects, found))
        (seal or Seal.of_this_process()).write(path, stream.getvalue(), PAYLOAD)
    except PackingError:
        raise
    except Exception as error:  # noqa: BLE001 - a __reduce__ of the user's may raise anything
        sent = {**parts, **_around(caller_settings)}
        raise PackingError(_explained(sent, left_out, error)) from None
    return found


def unpack(
    path: Path, local_rank: int = 0, *, as_there: bool = False, seal: Seal | None = None
) -> Training:
    """Return the training in ``path``, with empty weights and with modes not yet attached.

    Args:
        path: what `pack` wrote.
        local_rank: index of the accelerator of this machine that it uses, if it was on one.
        as_there: whether to apply in this process what was set where it was packed (`read`); what
            was set for the thread is then in ``training.caller_settings``.
        seal: seal of the session; None: that of this process.

    Raises:
        PackingError: it needs a module that cannot be imported here.
        SealError: another user may have written it; nothing of it was run.
    """
    parts, settings, thread = _read(path, as_there=as_there, seal=seal)
    kind = settings["device"]
    device = torch.device("cpu") if kind == "cpu" else torch.device(kind, local_rank)
    training = _training(parts, settings, device)
    training.object_state, training.hook_state = settings["objects"], settings["hooks"]
    training.undivided, training.model_paths, training.num_new_paths = settings.get(
        "model_paths", ("", (), 0)
    )
    training.monitor = Monitor.of(settings["monitor"])
    decay = settings["ema"]
    training.ema = None if decay is None else WeightAverage(decay)
    for problem in settings.get("problems", ()):
        training.note(problem)
    if training.object_state is not None:
        for one in training.object_state.shared:
            one.share_again()
    if as_there:
        training.caller_settings = thread.on(device)
    return training


def _monitor_of_ranks(training: Training) -> dict[str, Any]:
    """State of the monitor that ranks have: none if its metric is logged by the user, here.

    Raises:
        PackingError: a schedule goes by it, which ranks step.
    """
    monitor, schedule = training.monitor, training.schedule
    if monitor.metric is None or monitor.metric[0] in OWN:
        return monitor.state()
    name, _ = monitor.metric
    if monitor.steps(schedule):
        raise PackingError(
            f"{schedule.name} goes by {name}, which is logged in this process, and ranks do not "
            "have it: let it go by the loss or the accuracy of validation (monitor=None), or train "
            "in one process"
        )
    return Monitor().state()


def _without_modes_of_here(training: Training, thread: ThreadState) -> ThreadState:
    """Drop Workbench's own modes, which observe this process, and those that cannot be pickled."""
    kept: dict[str, tuple[Any, ...]] = {}
    for kind in ("function_modes", "dispatch_modes"):
        modes = [one for one in getattr(thread, kind) if not attachments.is_ours(one)]
        kept[kind] = tuple(one for one in modes if _can(one, {}))
        for one in modes:
            if one not in kept[kind]:
                training.note(
                    f"{type(one).__name__}, which is on where the run was started, sees the steps "
                    "of this process alone: it cannot be pickled, and is not on the ranks"
                )
    return replace(thread, **kept)


def to_known(value: Any, known: list[Any] | dict[int, int], *, to_compare: bool = False) -> bytes:
    """Pickle ``value`` for a process that has copies of the objects in ``known``, in that order.

    Args:
        value: the value to pickle.
        known: objects, or the number of each by its identity.
        to_compare: whether the result is for comparison instead of reading, and equal where values
            are: torch's own pickles of equal tensors differ.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream, {})
    if isinstance(known, list):
        known = {id(one): number for number, one in enumerate(known)}
    pickler.known, pickler.is_to_compare = known, to_compare
    pickler.dump(value)
    return stream.getvalue()


def from_known(data: bytes, known: list[Any]) -> Any:
    """Return what `to_known` was given there, with the objects of this process for their copies."""
    unpickler = _Unpickler(io.BytesIO(data), Path())
    unpickler.known = known
    return unpickler.load()


def read(path: Path, *, as_there: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the parts and settings that `dump` wrote; tensors that were left out are empty.

    Args:
        path: what `dump` wrote.
        as_there: whether to apply in this process what was set where it was written: settings of
            torch and of Python, hooks of all modules and of all optimizers. For a process that
            exists for this alone: what is set stays.

    Raises:
        PackingError: they need a module that cannot be imported here.
        SealError: another user may have written them; nothing of them was run.
    """
    parts, settings, _ = _read(path, as_there=as_there)
    return parts, settings


def _read(
    path: Path, *, as_there: bool, seal: Seal | None = None
) -> tuple[dict[str, Any], dict[str, Any], ThreadState]:
    """`read`, and also return what was set for the thread.

    Raises:
        PackingError: they need a module that cannot be imported here.
        SealError: another user may have written them.
    """
    with io.BytesIO((seal or Seal.of_this_process()).read(path, PAYLOAD)) as stream:
        header = pickle.load(stream)  # noqa: S301 - it has our seal
        sys.path[:] = [*sys.path, *(entry for entry in header["path"] if entry not in sys.path)]
        linecache.cache.update(header["cells"])
        try:
            unpickler = _Unpickler(stream, path.parent)
            process, _ = unpickler.load()
            problems = process.apply() if as_there else []
            parts, settings, thread, of_all = _load_whole(unpickler)
            settings["objects"], settings["hooks"] = unpickler.load()
            if as_there:
                attachments.take_hooks_of_all(of_all)
                settings["problems"] = problems
        except ModuleNotFoundError as error:
            raise PackingError(
                f"the module {error.name!r} cannot be imported by a worker: it exists only in the "
                "process it was made in. Save it as a file beside the notebook, or define what it "
                "holds in a cell"
            ) from error
    return parts, settings, thread


class Kept(NamedTuple):
    """What must come back of what a training keeps in Python."""

    objects: ObjectState | None
    hooks: Callable[[], HookState]
    """Called once it is known which objects are sent."""


class Settings(NamedTuple):
    """What is set where a training is packed."""

    process: ProcessSettings
    thread: ThreadState

    @classmethod
    def current(cls, device: torch.device) -> Settings:
        """Return those of this process and the calling thread, which trains on ``device``."""
        return cls(ProcessSettings.current(), ThreadState.current(device))


def _around(caller_settings: Settings) -> dict[str, Any]:
    """Return what is sent along with a training, by the names that messages use for it."""
    thread = caller_settings.thread
    modes = [*thread.function_modes, *thread.dispatch_modes]
    named = {f"the {type(mode).__name__} that is on where it was started": mode for mode in modes}
    return {
        **named,
        "the hooks on saved tensors": thread.saved_tensors_hooks,
        "the settings of this process": caller_settings.process,
        "the hooks of all modules and optimizers": attachments.hooks_of_all(),
    }


def cells() -> dict[str, Any]:
    """Return sources that no file holds, as `linecache` keeps them: those of notebook cells."""
    return {
        name: entry
        for name, entry in dict(linecache.cache).items()
        if len(entry) == 4 and entry[1] is None and not Path(name).exists()
    }


def _training(parts: dict[str, Any], settings: dict[str, Any], device: torch.device) -> Training:
    model, loss = cast("nn.Module", parts["model"]), cast("Loss", parts["loss"])
    model.to(device)  # its parameters stay the objects that the optimizer knows
    loss.to(device)
    optimizer = cast("torch.optim.Optimizer", parts["optimizer"])
    optimizer.state.clear()
    schedule = cast("Schedule", parts["schedule"])
    schedule.rebind(optimizer)
    return Training(
        name=settings["name"],
        model=model,
        train=cast("DataSource", parts["train"]),
        val=cast("DataSource | None", parts["val"]),
        loss=loss,
        optimizer=optimizer,
        schedule=schedule,
        modeset=ModeSet.parse(settings["modes"], device),
        seed=settings["seed"],
        clip_grad_norm=settings["clip_grad_norm"],
    )


_UNNAMED = "<dynamic-code>"
"""The file name that cloudpickle gives to all code."""


class _Pickler(cloudpickle.Pickler):
    """Leaves tensors out, as (kind, number, shape, stride, dtype, whether it is trained).

    Args:
        stream: the stream to write to.
        left_out: identity of tensors that are not sent -> their number.
        folder: for large arrays; None keeps them in the stream.
    """

    def __init__(self, stream: Any, left_out: dict[int, int], folder: Path | None = None) -> None:
        super().__init__(stream)
        self._left_out, self._folder = left_out, folder
        self._files: dict[int, tuple[int, torch.Tensor]] = {}
        """Tensors in files: held, so that no other tensor gets the identity of one."""
        self.known: dict[int, int] = {}
        """Identity of objects that the other process has a copy of -> their number."""
        self.is_to_compare = False
        self._looked_at: dict[int, Any] = {}
        self._attached: list[tuple[Any, dict[str, Any]]] = []

    def take_attached(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return what is attached to what was written since the last call."""
        found, self._attached = self._attached, []
        return found

    def _look_at(self, obj: Any) -> None:
        has_hooks = isinstance(obj, (torch.Tensor, torch.optim.Optimizer))
        if has_hooks and id(obj) not in self._looked_at:
            self._looked_at[id(obj)] = obj
            found = attachments.attached_to(obj, with_attributes=id(obj) in self._left_out)
            if found:
                self._attached.append((obj, found))

    def travelled(self) -> dict[int, Any]:
        """Return what was pickled until now, by identity, except for numbers and strings."""
        memo = cast("dict[int, tuple[int, Any]]", cast("Any", self).memo.copy())
        found = {key: obj for key, (_, obj) in memo.items()}
        return found | {key: tensor for key, (_, tensor) in self._files.items()}

    def persistent_id(self, obj: Any) -> Any:
        if (known := self.known.get(id(obj))) is not None:
            return "known", known
        self._look_at(obj)
        number = self._left_out.get(id(obj))
        if number is None and self._folder is not None and _is_large(obj):
            return self._in_file(obj, self._folder)
        if number is None:
            return None
        kind = "parameter" if isinstance(obj, nn.Parameter) else "tensor"
        shape, stride = tuple(obj.shape), obj.stride()
        return kind, number, shape, stride, obj.dtype, obj.requires_grad

    def reducer_override(self, obj: Any) -> Any:
        """Reduce as cloudpickle does, except for parametrized modules: torch made a class for each.

        And code keeps the name of its file, by which a failure there is reported at the cell's
        line: cloudpickle >= 3.1.3 gives all code of a cell the same name.
        """
        reduce_code: Any = self.dispatch_table.get(types.CodeType)
        if isinstance(obj, types.CodeType) and reduce_code is not None:
            make, arguments = reduce_code(obj)
            return make, tuple(obj.co_filename if one == _UNNAMED else one for one in arguments)
        if isinstance(obj, nn.Module) and parametrize.is_parametrized(obj):
            state = (dict(vars(obj)), list(cast("Any", obj).parametrizations))
            own_class = type(obj).__bases__[0]
            return _bare, (own_class,), state, None, None, _parametrize_again
        if self.is_to_compare and isinstance(obj, torch.Tensor) and obj.layout is torch.strided:
            return bytes, (host_bytes(obj).tobytes(),)
        if (found := torch_objects.reduced(obj)) is not None:
            return found
        if isinstance(obj, torch.optim.Optimizer) and _is_pickled_by_torch(type(obj)):
            state = {**obj.__getstate__(), **attachments.own_attributes(obj)}
            return _bare, (type(obj),), state
        if isinstance(obj, DataLoader) and _is_pickled_by_python(type(obj)):
            # persistent workers of this process serve no other one, which starts its own
            return _bare, (type(obj),), {**vars(obj), "_iterator": None}
        return super().reducer_override(obj)

    def _in_file(self, tensor: torch.Tensor, folder: Path) -> Any:
        if id(tensor) not in self._files:
            number = len(self._files)
            self._files[id(tensor)] = number, tensor
            host_bytes(tensor).tofile(folder / f"{ARRAY}{number}")
        number = self._files[id(tensor)][0]
        return "file", number, tuple(tensor.shape), None, tensor.dtype, False


def _dump_whole(pickler: _Pickler, value: Any) -> None:
    """Write ``value``, then what is attached to it, which may have more attached to it."""
    pickler.dump(value)
    while found := pickler.take_attached():
        pickler.dump(found)
    pickler.dump([])


def _load_whole(unpickler: _Unpickler) -> Any:
    """Read what `_dump_whole` wrote."""
    value = unpickler.load()
    while found := unpickler.load():
        for obj, what in found:
            attachments.attach(obj, what)
    return value


def _is_pickled_by_torch(cls: type[torch.optim.Optimizer]) -> bool:
    """Whether the class lets torch decide what of it is pickled: groups and state only."""
    torchs: Any = torch.optim.Optimizer
    own: Any = cls
    return (
        own.__getstate__ is torchs.__getstate__
        and own.__reduce__ is torchs.__reduce__
        and own.__reduce_ex__ is torchs.__reduce_ex__
    )


def _is_pickled_by_python(cls: type) -> bool:
    """Whether the class lets Python decide what of it is pickled: its attributes."""
    own: Any = cls
    return (
        own.__reduce__ is object.__reduce__
        and own.__reduce_ex__ is object.__reduce_ex__
        and getattr(own, "__getstate__", None) is getattr(object, "__getstate__", None)
        and not hasattr(own, "__setstate__")
    )


def _bare(cls: Any) -> Any:
    return cls.__new__(cls)


def _parametrize_again(module: nn.Module, state: tuple[dict[str, Any], list[str]]) -> None:
    """Give a parametrized module its attributes, and the class with computed tensors."""
    attributes, names = state
    vars(module).update(attributes)
    private: Any = parametrize
    private._inject_new_class(module)
    for name in names:
        private._inject_property(module, name)


def _is_large(obj: Any) -> bool:
    """Whether it is a plain array that is worth a file of its own."""
    return (
        type(obj) is torch.Tensor
        and obj.layout == torch.strided
        and obj.device.type == "cpu"
        and obj.nbytes >= _LARGE_BYTES
        and not obj.requires_grad
        and not (obj.is_quantized or obj.is_conj() or obj.is_neg())
    )


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, folder: Path) -> None:
        super().__init__(stream)
        self._folder = folder
        self.known: list[Any] = []
        self._cells: dict[str, Any] | None = None
        self._mapped: dict[int, torch.Tensor] = {}
        self._made: dict[int, torch.Tensor] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Find it as usual; but functions of cells, by value, get one module for their globals."""
        found = super().find_class(module_name, global_name)
        return self._function_of_cell if found is _MAKE_FUNCTION else found

    def _function_of_cell(self, code: Any, own_globals: dict[str, Any], *rest: Any) -> Any:
        is_cell = own_globals.get("__name__") == "__main__"
        return _MAKE_FUNCTION(code, self._namespace if is_cell else own_globals, *rest)

    @property
    def _namespace(self) -> dict[str, Any]:
        """The globals of what is defined in a cell."""
        if self._cells is None:  # what comes back belongs to the cells that are here
            self._cells = vars(sys.modules["__main__"] if self.known else _module_for_cells())
        return self._cells

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "known":
            return self.known[pid[1]]
        kind, number, shape, stride, dtype, trained = pid
        if kind == "file":
            if number not in self._mapped:
                path = self._folder / f"{ARRAY}{number}"
                # private: what a data set changes in it, it changes for this rank only
                flat = torch.from_file(str(path), shared=False, size=math.prod(shape), dtype=dtype)
                self._mapped[number] = flat.view(shape)
            return self._mapped[number]
        if number not in self._made:
            empty = torch.empty_strided(shape, stride, dtype=dtype)
            self._made[number] = (
                nn.Parameter(empty, requires_grad=trained) if kind == "parameter" else empty
            )
        return self._made[number]


def _module_for_cells() -> types.ModuleType:
    """Return the ``__main__`` of the cells of a payload.

    Dynamo looks up a function's globals in the module that they claim to belong to, so there must
    be one, with these very globals. A program of Workbench's own gives up its name for it, and
    keeps its own globals; in a kernel, ``__main__`` is the user's, and the module gets another
    name.
    """
    ours = sys.modules["__main__"]
    spec = getattr(ours, "__spec__", None)
    if spec is not None and spec.name.startswith("workbench."):
        name = "__main__"
        _programs.append(ours)  # its functions are running, and need their globals
    else:
        numbered = (f"__cells_{number}__" for number in itertools.count(1))
        name = next(free for free in numbered if free not in sys.modules)
    module = sys.modules[name] = types.ModuleType(name)
    return module


_MAKE_FUNCTION: Any = cloudpickle.cloudpickle._make_function  # pyright: ignore[reportPrivateUsage] - pickles name it
_programs: list[types.ModuleType] = []


def _left_out(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[int, int]:
    """Return the identity of every tensor that is not sent -> its number.

    Tensors of a class of their own are sent (only their class knows how to make one), and so are
    sparse moments.
    """
    states = cast("Iterator[dict[str, Any]]", optimizer.state.values())
    moments = [value for state in states for value in state.values()]
    known = [*model.parameters(), *model.buffers(), *moments]
    plain = [
        tensor
        for tensor in known
        if type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided
    ]
    return {id(tensor): number for number, tensor in enumerate(plain)}


def _explained(parts: dict[str, Any], left_out: dict[int, int], error: Exception) -> str:
    """Return which attribute cannot be pickled, as the user would write it."""
    for name, part in parts.items():
        if (found := _culprit(name, part, left_out, set(), _DEEPEST)) is not None:
            where, value = found
            return (
                f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which cannot "
                f"go to another process ({first_line(error)}). Make it where it is used, or leave "
                "it out with __getstate__"
            )
    return f"this training cannot go to another process: {first_line(error)}"


def _culprit(
    path: str, value: Any, left_out: dict[int, int], seen: set[int], depth: int
) -> tuple[str, Any] | None:
    """The innermost part of ``value`` that cannot be pickled, and where it is; None if all can."""
    if id(value) in seen or _can(value, left_out):
        return None
    seen.add(id(value))
    if depth:
        for name, inner in _inside(path, value):
            found = _culprit(name, inner, left_out, seen, depth - 1)
            if found is not None:
                return found
    return path, value


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        inside = itertools.chain(value.named_children(), value.named_parameters(recurse=False))
        yield from ((f"{path}.{name}", one) for name, one in inside)
    if isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield f"{path}[{key!r}]", item
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield f"{path}[{index}]", item
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        hidden = ("_parameters", "_buffers", "_modules")
        for name, item in cast("dict[str, Any]", own).items():
            if name not in hidden:
                yield f"{path}.{name}", item
    yield from _inside_code(path, value)


def _inside_code(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the hooks on a parameter or an optimizer, and what a function of a cell refers to."""
    for hooks in attachments.attached_to(value, with_attributes=False).values():
        for hook in hooks.values():
            yield f"the hook {getattr(hook, '__name__', '')} on {path}".replace("  ", " "), hook
    if isinstance(value, types.FunctionType):
        for name, inner in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                yield f"{name} of {path}", inner.cell_contents
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f"{name} of {path}", value.__globals__[name]


def _can(value: Any, left_out: dict[int, int]) -> bool:
    try:
        _dump_whole(_Pickler(io.BytesIO(), left_out), value)
    except Exception:  # noqa: BLE001 - a __reduce__ of the user's may raise anything
        return False
    return True
