"""Names of modules, parameters and storages.

Wrappers that only forward to one inner module (``torch.compile``, DDP, FSDP, checkpoint wrappers)
are skipped: their inner module takes their place, so a path is the same with and without them and
equals the one the user wrote.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.graph.core.module_owners import NOWHERE, OUTSIDE
from workbench.graph.core.tensor_memory import memory_of, plain_tensors
from workbench.records import GraphModule
from workbench.torch_private.autograd import gathered_parameters, without_functions
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.modules import buffer_table, parameter_table
from workbench.torch_private.tensors import requires_grad

if TYPE_CHECKING:
    from torch import nn

    from workbench.graph.core.walk import Ints, Walk

_WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_WRAPPER_CLASSES = ("DistributedDataParallel", "DataParallel")


@dataclass
class ModelNames:
    """Names of everything in one or more models. Valid while the models live; not to be stored."""

    modules: list[GraphModule] = field(default_factory=list["GraphModule"])
    """Parents first; the order of ``named_modules``."""
    live: list[nn.Module] = field(default_factory=list["nn.Module"])
    """The module behind each row of ``modules``, the outermost wrapper where there are several."""
    parameters: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """``id(parameter)`` -> (qualified name, row of its module); the first name wins."""
    gathered: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """The same for the tensors that FSDP2 computes with in place of sharded parameters."""
    frozen: set[int] = field(default_factory=set[int])
    """``id`` of every parameter that does not require grad."""
    storages: dict[int, str] = field(default_factory=dict[int, str])
    """Identity of a storage -> ``parameter`` or ``buffer``."""
    also: dict[str, str] = field(default_factory=dict[str, str])
    """Further path of a module that has several -> its path in ``modules``."""

    @classmethod
    def of(cls, models: Mapping[str, nn.Module]) -> ModelNames:
        """Names of ``models``: prefix -> model. The prefix of a single model is ``""``."""
        names = cls()
        seen: dict[int, int] = {}
        for prefix, model in models.items():
            names._add_model(prefix, model, seen)
        names._add_gathered()
        return names

    def also_notes(self, shown: Container[str]) -> list[str]:
        """Notes on modules among ``shown`` that have another path too; the first four."""
        others: dict[str, list[str]] = {}
        for path, first in self.also.items():
            if first in shown:
                others.setdefault(first, []).append(path)
        notes = [
            f"Module {first} is also at {', '.join(also[:4])}: all its calls are listed under "
            f"{first}."
            for first, also in others.items()
        ]
        return notes[:4]

    def _add_model(self, prefix: str, model: nn.Module, seen: dict[int, int]) -> None:
        pending: list[tuple[str, int, nn.Module]] = [(prefix, -1, model)]
        while pending:
            path, parent, module = pending.pop()
            if id(module) in seen:
                self.also[path] = self.modules[seen[id(module)]].path
                continue
            row = len(self.modules)
            inner = module
            for layer in _unwrapped(module):
                seen[id(layer)] = row
                inner = layer
                self._add_tensors(layer, path, row)
            self.modules.append(
                GraphModule(path=path, cls=_class_name(inner), parent=parent, forward_s=None)
            )
            self.live.append(module)
            children: Any = vars(inner)["_modules"]  # named_children takes three times as long
            pending += [
                (_join(path, name), row, child)
                for name, child in reversed(children.items())
                if child is not None
            ]

    def _add_gathered(self) -> None:
        sharded = [found for module in self.live for found in gathered_parameters(module)]
        if not sharded:
            return
        row_of = {id(layer): row for row, top in enumerate(self.live) for layer in _unwrapped(top)}
        for owner, name, tensor in sharded:
            row = row_of.get(id(owner))
            if row is not None:
                self.gathered[id(tensor)] = (_join(self.modules[row].path, name), row)

    def _add_tensors(self, module: nn.Module, path: str, row: int) -> None:
        # its tables: named_parameters(recurse=False) takes five times as long
        for name, parameter in parameter_table(module).items():
            if parameter is None:
                continue
            self.parameters.setdefault(id(parameter), (_join(path, name), row))
            if not parameter.requires_grad:
                self.frozen.add(id(parameter))
            self._add_storage(parameter, "parameter")
        for buffer in buffer_table(module).values():
            if buffer is not None:
                self._add_storage(buffer, "buffer")

    def _add_storage(self, tensor: torch.Tensor, kind: str) -> None:
        for memory in memory_of(tensor) or ():
            self.storages.setdefault(memory.key, kind)


def _class_name(module: nn.Module) -> str:
    """The class name given by its author, also where TorchScript has replaced the class."""
    return getattr(module, "original_name", "") or type(module).__name__


def _unwrapped(module: nn.Module) -> Iterator[nn.Module]:
    """Yield ``module`` and then the modules that it wraps, from the outside in."""
    layer: nn.Module | None = module
    while layer is not None:
        yield layer
        layer = wrapped_module(layer)


def wrapped_module(module: nn.Module) -> nn.Module | None:
    """The module that ``module`` merely forwards to, if it is such a wrapper."""
    children: Any = vars(module)["_modules"]  # named_children drops repeats
    for name in _WRAPPED:  # no `get`: a ScriptModule has no dictionary in this place
        if name in children and children[name] is not None:
            return children[name]
    if type(module).__name__ in _WRAPPER_CLASSES and "module" in children:
        return children["module"]
    return None


def weak_storages(values: Any) -> list[Any]:
    """Weak references to the storages of every tensor in a tree of arguments.

    While such a reference lives, its storage's identity is not reused for another storage.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    from workbench.torch_private.pytree import tree_leaves

    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    with without_functions():
        return [
            StorageWeakRef(part.untyped_storage())
            for tensor in tensors
            if not requires_grad(tensor)
            for part in plain_tensors(tensor)
        ]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@dataclass
class Leaves:
    """Name, owner and kind of each leaf, per row; empty and `NOWHERE` for operations."""

    name: list[str]
    owner: Ints
    kind: list[str]
    """``parameter`` or ``input``."""
    storages: dict[int, str]
    """Identity of a leaf's storage -> its kind."""

    @classmethod
    def of(cls, graph: Walk, names: ModelNames, extra: Mapping[int, str]) -> Leaves:
        """Name the leaves of ``graph``; ``extra`` names tensors that are not parameters."""
        size = len(graph.nodes)
        found = cls([""] * size, np.full(size, NOWHERE, np.int64), [""] * size, {})
        for row in np.flatnonzero(graph.sequence < 0).tolist():
            variable = leaf_of(graph.nodes[row])
            if variable is None:
                continue
            known = names.parameters.get(id(variable)) or names.gathered.get(id(variable))
            is_parameter = known is not None or isinstance(variable, torch.nn.Parameter)
            found.kind[row] = "parameter" if is_parameter else "input"
            found.name[row] = known[0] if known else extra.get(id(variable), "")
            found.owner[row] = known[1] if known else NOWHERE
            for memory in memory_of(variable) or ():
                found.storages.setdefault(memory.key, found.kind[row])
        return found

    def place(self, owner: Ints, graph: Walk) -> None:
        """Assign every leaf an owner: a parameter its module, an unnamed leaf its first user's.

        Args:
            owner: owner per row, complete for operations; changed in place.
            graph: the graph that the rows are of.
        """
        rows = np.flatnonzero(graph.sequence < 0)
        owner[rows] = self.owner[rows]
        for edge in range(len(graph.edge_from) - 1, -1, -1):
            row = int(graph.edge_from[edge])
            if graph.sequence[row] < 0 and self.owner[row] < 0:
                owner[row] = owner[graph.edge_to[edge]]
        owner[(graph.sequence < 0) & (owner == NOWHERE)] = OUTSIDE


def is_of_torch(cls: str) -> bool:
    """Whether a module's class is in ``torch.nn``: its lines are then those of its caller."""
    return isinstance(getattr(torch.nn, cls, None), type)
