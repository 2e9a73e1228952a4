"""Uses of parameters in a step that `fully_shard` does not support.

FSDP puts its own parameters into the modules, gathers those of a block when the block is called,
and releases them when it returns. What a model may do with its parameters in one process fails
under it: a method of a block that is called without going through ``forward`` finds shards, what a
forward writes is written into a copy that is discarded, and a parameter that was put into a list is
no longer the one that is trained. So a step is observed once on the whole model, with other
parameters in the modules' places, as FSDP will have them. Nothing is recognized by the names of
layers:

- a parameter that is *written* in a step, or used *by another path* than through its module, stays
  whole on every rank, as the same object;
- for one that is used while its block is not running, all parameters are gathered at once for a
  step.

What can be found without observing a step is found by `unshardable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import IntEnum
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from workbench.torch_private.autograd import without_functions
from workbench.torch_private.contexts import TorchDispatchMode
from workbench.torch_private.modules import parameter_table
from workbench.torch_private.operators import is_written, schema_arguments
from workbench.torch_private.pytree import tree_leaves
from workbench.torch_private.tensors import version_of


class Whole(IntEnum):
    """Why a parameter stays whole on every rank under `fsdp`."""

    NO = 0
    NUMBER = 1
    LAYOUT = 2
    KIND = 3
    DTYPE = 4
    SHARED = 5
    HELD = 6
    WRITTEN = 7
    HOOKED = 8


WHY = {
    Whole.LAYOUT: "not contiguous in memory, as under channels_last",
    Whole.KIND: "not a plain tensor of floating-point numbers",
    Whole.DTYPE: "of another dtype than most values of its block",
    Whole.SHARED: "shared with another block, parameter or buffer",
    Whole.HELD: "used in another way than through its module",
    Whole.WRITTEN: "written in forward",
    Whole.HOOKED: "a tensor with hooks of its own",
}
"""How notes describe each reason; a parameter that is a single number needs no note."""

_READERS = {"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage"}
"""Methods that return a tensor's values other than in a tensor."""
_SETS_MEMORY = torch.Tensor.data.__set__  # pyright: ignore[reportAttributeAccessIssue] - a descriptor of C


def unshardable(model: nn.Module, units: Sequence[nn.Module]) -> dict[str, Whole]:
    """Return parameters that `fully_shard` cannot take, or not without loss, by name.

    Args:
        model: the model, not laid out yet.
        units: the blocks that are sharded one by one; what is in none of them is the model's own.
    """
    found: dict[str, Whole] = {}
    places = _places(model, units)
    memory: dict[int, set[int]] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if (address := _address(tensor)) is not None:
            memory.setdefault(address, set()).add(id(tensor))
    most = _most_frequent_dtypes(model, units)
    for name, parameter in model.named_parameters():
        address = _address(parameter)
        shares = address is not None and len(memory[address]) > 1
        unit = next(iter(places[id(parameter)]))
        if not parameter.ndim:
            found[name] = Whole.NUMBER
        elif type(parameter) is not nn.Parameter or not _is_plain(parameter):
            found[name] = Whole.KIND
        elif not parameter.is_contiguous():
            found[name] = Whole.LAYOUT
        elif len(places[id(parameter)]) > 1 or shares:
            found[name] = Whole.SHARED
        elif _has_hooks(parameter):
            found[name] = Whole.HOOKED
        elif parameter.requires_grad and parameter.dtype is not most[unit]:
            found[name] = Whole.DTYPE
    return found


def why_not_in(dtype: str, whole: Mapping[str, Whole]) -> str:
    """Return why a model cannot be gathered in ``bf16`` or ``fp16``, and what to do, or ``""``.

    What is gathered is computed in that type; a parameter that stays whole would not be.
    """
    reasons = ((name, WHY[why]) for name, why in whole.items() if why in WHY)
    name, why = next(reasons, ("", ""))
    if not name or not dtype:
        return ""
    return (
        f"an fsdp layout with {dtype} computes in the type that it gathers parameters in, and "
        f"{name} cannot be gathered: it is {why}. Leave {dtype} out of the layout, and give it as "
        f"a mode: fsdp:2+{dtype} is autocast"
    )


def refuse_late_writes(model: nn.Module) -> None:
    """Have a forward raise if it writes into what `fully_shard` has gathered: it would be lost.

    What a first step writes is known (`ParameterUse`); this detects what begins later. A write that
    bypasses torch's version counter (``p.data.mul_``) is not seen.

    Args:
        model: the sharded model; the hooks live as long as it does.
    """
    from torch.distributed.fsdp import FSDPModule

    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    inside = set(map(id, units))
    for unit in units:
        _LateWrites(cast("nn.Module", unit), inside)


class _LateWrites:
    """Detects what is written into the parameters of a unit during a call of it."""

    def __init__(self, unit: nn.Module, units: set[int]) -> None:
        prefixes = [
            f"{path}." for path, module in unit.named_modules() if path and id(module) in units
        ]
        self._places = [
            (parameter_table(module), name, f"{path}.{name}" if path else name)
            for path, module in unit.named_modules()
            for name, parameter in own_parameters(module).items()
            if isinstance(parameter, DTensor) and not f"{path}.".startswith(tuple(prefixes))
        ]
        self._before: list[tuple[int, int]] = []
        """Counts at the newest call: a call that a checkpoint has ended early has no end."""
        if self._places:
            # FSDP gathers before all other hooks, and releases after all others
            unit.register_forward_pre_hook(self._begins)
            unit.register_forward_hook(self._ends, prepend=True)

    def _count(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for parameters, name, _ in self._places:
            parameter = cast("torch.Tensor", parameters[name])
            is_gathered = not isinstance(parameter, DTensor)
            found.append((version_of(parameter), parameter.data_ptr()) if is_gathered else (0, 0))
        return found

    def _begins(self, _module: nn.Module, _args: Any) -> None:
        self._before = self._count()

    def _ends(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        before, after = self._before, self._count()
        if before == after:
            return
        names = (
            path
            for (_, _, path), one, other in zip(self._places, before, after, strict=True)
            if one != other
        )
        raise RuntimeError(
            f"{next(names)} is written in forward in this step, and was not in the first one under "
            "fsdp, which discards such writes: use ddp, or write it in the first step too (by "
            "adding zero, say), so that every rank keeps it whole"
        )


class ParameterUse:
    """Observes how the parameters of a model are used inside, and undoes what is written.

    Args:
        model: the whole model, on this rank.
        units: the blocks that will be sharded one by one.
    """

    def __init__(self, model: nn.Module, units: Sequence[nn.Module]) -> None:
        self._model, self._units = model, units
        self._depth = {id(unit): 0 for unit in (*units, model)}
        """How many calls of each unit are under way."""
        self.written: set[str] = set()
        self.held: set[str] = set()
        """Parameters that are used, but not as the object that their module has."""
        self.outside: set[str] = set()
        """Parameters that are used while their unit is not running."""
        self._stack = ExitStack()
        self._kept: list[tuple[nn.Parameter, torch.Tensor]] = []
        self._is_copying = False

    def __enter__(self) -> ParameterUse:
        """Put other parameters in, and start observing."""
        named = dict(self._model.named_parameters())
        places = _places(self._model, self._units)
        self._whole = named
        self._unit = {name: next(iter(places[id(p)])) for name, p in named.items()}
        self._own_names = {id(p): name for name, p in named.items() if type(p) is nn.Parameter}
        stand_ins = {
            key: nn.Parameter(named[name].detach(), requires_grad=named[name].requires_grad)
            for key, name in self._own_names.items()
        }
        self._names = {id(stand_ins[key]): name for key, name in self._own_names.items()}
        self._addresses = {
            address: name for name, p in named.items() if (address := _address(p)) is not None
        }
        # kept alive: another object must not get the identity of one
        self._placed = [
            (module, name, parameter, stand_ins[id(parameter)])
            for module in self._model.modules()
            for name, parameter in own_parameters(module).items()
            if id(parameter) in stand_ins
        ]
        for module, name, _, stand_in in self._placed:
            set_parameter(module, name, stand_in)
        self._stack.callback(self._put_back)
        for unit in (*self._units, self._model):
            self._stack.enter_context(_called(unit, self._count))
        self._stack.enter_context(_Functions(self))
        self._stack.enter_context(_Operations(self))
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the model, and the values that were written."""
        self._stack.close()
        with torch.no_grad():
            for parameter, value in self._kept:
                parameter.copy_(value)
        self._kept = []

    def _put_back(self) -> None:
        """Restore the parameters; one that forward has replaced counts as written."""
        for module, name, parameter, stand_in in self._placed:
            if own_parameters(module).get(name) is not stand_in:
                self.written.add(self._own_names[id(parameter)])
            set_parameter(module, name, parameter)

    def _count(self, unit: nn.Module, more: int) -> None:
        self._depth[id(unit)] += more

    def used(self, tensors: Iterator[torch.Tensor]) -> None:
        """Record that an operation or a function takes these."""
        if self._is_copying:
            return
        for tensor in tensors:
            key = id(tensor)
            if key in self._own_names:
                self.held.add(self._own_names[key])
            elif key in self._names:
                name = self._names[key]
                if not self._depth[self._unit[name]]:
                    self.outside.add(name)

    def writes(self, tensor: torch.Tensor) -> None:
        """Record that an operation is about to write into ``tensor``."""
        address = _address(tensor)
        name = None if address is None else self._addresses.get(address)
        if name is not None:
            self._write(name)

    def replaced(self, tensor: torch.Tensor) -> None:
        """Record that a parameter is about to be given other memory."""
        name = self._names.get(id(tensor)) or self._own_names.get(id(tensor))
        if name is not None:
            self._write(name)

    def _write(self, name: str) -> None:
        if name not in self.written:
            self.written.add(name)
            parameter, self._is_copying = self._whole[name], True
            self._kept.append((parameter, parameter.detach().clone()))
            self._is_copying = False


class _Functions(TorchFunctionMode):
    """Observes functions and methods with the very objects that are passed to them."""

    def __init__(self, use: ParameterUse) -> None:
        super().__init__()
        self._use = use

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check one call: one that returns no tensor (a shape, a device) reads no value."""
        if func == _SETS_MEMORY:
            self._use.replaced(args[0])
        result = cast("Callable[..., Any]", func)(*args, **(kwargs or {}))
        is_read = getattr(func, "__name__", "") in _READERS
        if is_read or next(_tensors(result), None) is not None:
            self._use.used(_tensors((args, kwargs)))
        return result


class _Operations(TorchDispatchMode):
    """Observes what is computed, by compiled code and scripts too, and what is written."""

    def __init__(self, use: ParameterUse) -> None:
        super().__init__()
        self._use = use

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check one operation."""
        kwargs = kwargs or {}
        with without_functions():
            for tensor in _written_by(func, args, kwargs):
                self._use.writes(tensor)
        self._use.used(_tensors((args, kwargs)))
        return cast("Callable[..., Any]", func)(*args, **kwargs)


def _written_by(func: Any, args: Any, kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the arguments that an operation writes into, according to its schema."""
    for at, argument in enumerate(schema_arguments(func)):
        if is_written(argument):
            given = args[at] if at < len(args) else kwargs.get(argument.name)
            yield from _tensors(given)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


class _called:  # noqa: N801 - a context manager, named as a verb
    """Counts calls of ``unit`` as they begin and end, while inside."""

    def __init__(self, unit: nn.Module, count: Callable[[nn.Module, int], None]) -> None:
        self._unit, self._count = unit, count

    def __enter__(self) -> None:
        """Register hooks like FSDP's own: before all others, and after all others."""
        self._handles = (
            self._unit.register_forward_pre_hook(self._begins, prepend=True),
            self._unit.register_forward_hook(self._ends, always_call=True),
        )

    def __exit__(self, *error: object) -> None:
        """Stop counting."""
        for handle in self._handles:
            handle.remove()

    def _begins(self, module: nn.Module, _args: Any) -> None:
        self._count(module, 1)

    def _ends(self, module: nn.Module, _args: Any, _output: Any) -> None:
        self._count(module, -1)


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of ``module`` itself, under all of its names for each."""
    return dict(module.named_parameters(recurse=False, remove_duplicate=False))


def set_parameter(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Put a parameter into a module in place of another, without checking what it is.

    A module with a ``__setattr__`` of its own, as recurrent ones have, is updated through that.
    """
    if type(module).__setattr__ is nn.Module.__setattr__:
        parameter_table(module)[name] = parameter  # as `fully_shard` does
    else:
        setattr(module, name, parameter)


def _places(model: nn.Module, units: Sequence[nn.Module]) -> dict[int, dict[int, None]]:
    """Identity of each parameter -> identities of the units that have it, in their order."""
    found: dict[int, dict[int, None]] = {}
    inside: set[int] = set()
    for unit in units:
        inside |= {id(module) for module in unit.modules()}
        for parameter in unit.parameters():
            found.setdefault(id(parameter), {})[id(unit)] = None
    for module in model.modules():
        if id(module) not in inside:
            for parameter in module.parameters(recurse=False):
                found.setdefault(id(parameter), {})[id(model)] = None
    return found


def _most_frequent_dtypes(
    model: nn.Module, units: Sequence[nn.Module]
) -> dict[int, torch.dtype | None]:
    """The dtype that most trained values of a unit have, by the unit's identity."""
    counts: dict[int, dict[torch.dtype, int]] = {id(unit): {} for unit in (*units, model)}
    places = _places(model, units)
    for parameter in model.parameters():
        if parameter.requires_grad:
            of = counts[next(iter(places[id(parameter)]))]
            of[parameter.dtype] = of.get(parameter.dtype, 0) + parameter.numel()
    return {unit: max(of, key=lambda one: of[one]) if of else None for unit, of in counts.items()}


def _is_plain(parameter: torch.Tensor) -> bool:
    return (
        parameter.layout is torch.strided
        and parameter.is_floating_point()
        and not parameter.is_quantized
        and parameter.numel() > 0
    )


def _has_hooks(parameter: torch.Tensor) -> bool:
    """Whether hooks are called with its gradient, which another parameter would not have."""
    names = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return any(getattr(parameter, name, None) for name in names)


def _address(tensor: torch.Tensor) -> int | None:
    """Return the address of its memory; None where it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # sparse, or of a class of its own
        return None
