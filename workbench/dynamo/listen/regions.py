"""Owner of a compilation: the region, the modules that share it, what trains them.

Determined on the thread that compiles, at the start of a compilation, while the function and its
arguments are on the stack. Only names are kept.

`workbench.modes.compile.mode` gives every region a code object with a name of its own; other code
that the user passes to `torch.compile` is identified by file, line and name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from workbench.dynamo.listen.model_owners import owners
from workbench.experiment.state.user_code import is_own_file
from workbench.torch_private.dynamo import Compiling, region_name

if TYPE_CHECKING:
    from types import CodeType

    from workbench.dynamo.listen.graph_breaks import Place

_LISTED = 2
"""Number of modules that a label names before it only counts the others."""


@dataclass(frozen=True)
class Region:
    """What one `torch.compile` call compiles."""

    key: tuple[str, str, int]
    """File, name and first line of its code object, which identify the region in this process."""
    cls: str
    paths: tuple[str, ...]
    place: Place | None
    """Place of its forward, or of the function."""
    parameters: tuple[str, ...]
    """The forward's names of its arguments, which the compiled code calls ``args``."""
    function: str
    owner: str
    """Id of the experiment or the `wb.Modes` whose model it is part of, or ``""``."""
    where: str = ""
    """``rank 0``; empty for what this process compiled."""

    @property
    def label(self) -> str:
        """``layers.0, layers.1 and 10 more (Block)``, ``Net`` or ``scale``."""
        return f"{self._of_code}, {self.where}" if self.where else self._of_code

    @property
    def _of_code(self) -> str:
        if not self.cls:
            return self.function
        paths = [path for path in self.paths if path]
        if not paths:
            return self.cls
        more = len(paths) - _LISTED
        listed = ", ".join(paths[:_LISTED]) if more > 0 else " and ".join(paths)
        return f"{listed} and {more} more ({self.cls})" if more > 0 else f"{listed} ({self.cls})"


def region_of(compiling: Compiling) -> Region:
    """Return the region that is being compiled on this thread."""
    root = compiling.root
    own = is_own_file(root.co_filename)
    module = _module(root, compiling.root_locals)
    owner, paths = _owner_and_paths(root.co_name if own else "", module)
    return Region(
        key=(root.co_filename, root.co_name, root.co_firstlineno),
        cls=_class(module),
        paths=paths,
        place=_forward(module) or (root.co_filename, root.co_firstlineno, root.co_name),
        parameters=_parameters(module) if module is not None else (),
        function=_called(root),
        owner=owner,
    )


def _module(root: CodeType, arguments: Mapping[str, Any]) -> nn.Module | None:
    """Return what is compiled, if it is a module: the first argument, or what is wrapped.

    A module of torch's own is compiled through a function around it
    (``torch/_dynamo/external_utils.py: wrap_inline``).
    """
    first = arguments.get(root.co_varnames[0]) if root.co_argcount else None
    wrapped = arguments.get("fn")
    for found in (first, wrapped, getattr(wrapped, "__self__", None)):
        if isinstance(found, nn.Module):
            return found
    return None


def _class(module: nn.Module | None) -> str:
    """Return its name as the user wrote it: `fully_shard` puts a class of its own in front."""
    if module is None:
        return ""
    cls = type(module)
    bases = cls.__bases__
    sharded = len(bases) == 2 and bases[0].__name__ == "FSDPModule"
    return bases[1].__name__ if sharded else cls.__name__


def _owner_and_paths(name: str, module: nn.Module | None) -> tuple[str, tuple[str, ...]]:
    """Return the id of the owner of the region or module, and the paths of what shares it."""
    for owner, model in owners():
        paths = tuple(_paths(model, name, module))
        if paths:
            return owner, paths
    return "", ()


def _paths(model: nn.Module, name: str, module: nn.Module | None) -> Iterator[str]:
    for path, inner in model.named_modules():
        if inner is module or (name and region_name(inner) == name):
            yield path


def _forward(module: nn.Module | None) -> Place | None:
    forward: Any = getattr(type(module), "forward", None)
    code = getattr(inspect.unwrap(forward), "__code__", None) if forward is not None else None
    if code is None or module is None:
        return None
    return code.co_filename, code.co_firstlineno, code.co_name


def _parameters(module: nn.Module) -> tuple[str, ...]:
    try:
        signature = inspect.signature(type(module).forward)
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, one in signature.parameters.items() if one.kind in positional]
    return tuple(names[1:])


def _called(code: CodeType) -> str:
    return code.co_qualname.rpartition("<locals>.")[2]
