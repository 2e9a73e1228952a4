"""Choice of the modules that are the rows of a gradient flow, and of the parameters in each.

One row per module would be unreadable for a deep model, and one row per child of the root shows
nothing of a model that is one long list. So the tree of modules is opened level by level: always
where a module is a mere container (``ModuleList``, ``Sequential``), elsewhere only while there are
few rows, and never past `MAX_ROWS`. A list too long for that is split into groups of neighbours.

Every trainable parameter counts in one row; a shared one counts where ``named_parameters`` names it
first. A module without trainable parameters has no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import nn

from workbench.records import FlowRow

MAX_ROWS = 24
_FEW = 5
"""Number of rows below which ordinary modules are opened too."""
_ENOUGH = 12
"""Number of rows from which a long list stays closed instead of being split into groups."""
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
"""Names of submodules given by a wrapper and not by the user; left out of paths."""
_PARALLEL = ("DistributedDataParallel", "DataParallel")
"""Wrappers whose only submodule is called ``module``."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one model, valid while the same parameters stay trainable."""

    rows: tuple[FlowRow, ...]
    parameters: tuple[int, ...]
    """Positions of the trainable parameters in ``list(model.parameters())``."""
    row_of: npt.NDArray[np.int64]
    """The row of each of these parameters."""


@dataclass(eq=False)
class _Part:
    """A module and its own parameters, or a part made from modules."""

    path: str
    label: str
    cls: str
    is_list: bool = False
    num_modules: int = 1
    own: list[int] = field(default_factory=list[int])
    names: list[str] = field(default_factory=list[str])
    children: list[_Part] = field(default_factory=list["_Part"])

    def opened(self) -> list[_Part]:
        """The module's own parameters, if it has any, as one part, followed by its children."""
        if not self.own:
            return self.children
        names = ", ".join(_join(self.path, name) for name in self.names)
        return [_Part(self.path, names, self.cls, own=self.own), *self.children]

    def label_with_class(self) -> str:
        """The label, with the class after a bare number; for the model itself, its class."""
        if not self.label:
            return self.cls
        number = self.label[0].isdigit() and "." not in self.label
        return f"{self.label} {self.cls}".rstrip() if number else self.label

    def members(self) -> list[int]:
        """Positions of all parameters in this part."""
        return [*self.own, *(at for child in self.children for at in child.members())]


def choose_rows(model: nn.Module) -> Rows:
    """Choose rows for the parameters of ``model`` that are trainable now; may be none."""
    index = {id(p): at for at, p in enumerate(model.parameters()) if p.requires_grad}
    root = _part_of(model, "", index)
    parts = [] if root is None else _open([root])
    rows: list[FlowRow] = []
    row_of: dict[int, int] = {}
    for part in parts:
        members = part.members()
        row_of.update(dict.fromkeys(members, len(rows)))
        rows.append(
            FlowRow(
                path=part.path,
                label=part.label_with_class(),
                cls=part.cls,
                num_modules=part.num_modules,
                num_parameters=len(members),
            )
        )
    parameters = tuple(sorted(row_of))
    return Rows(tuple(rows), parameters, np.array([row_of[at] for at in parameters], np.int64))


def _part_of(module: nn.Module, path: str, index: dict[int, int]) -> _Part | None:
    """The tree under ``module``, None if empty; removes from ``index`` the parameters it counts."""
    part = _Part(path, path, type(module).__name__, isinstance(module, _LISTS))
    for name, parameter in module.named_parameters(recurse=False):
        at = index.pop(id(parameter), None)
        if at is not None:
            part.own.append(at)
            part.names.append(name)
    for name, child in module.named_children():
        is_inner = name in _WRAPPERS or (name == "module" and part.cls in _PARALLEL)
        found = _part_of(child, path if is_inner else _join(path, name), index)
        if found is not None:
            part.children.append(found)
    return part if part.own or part.children else None


def _open(parts: list[_Part]) -> list[_Part]:
    while True:
        few = len(parts) < _FEW
        wanted = {part for part in parts if part.children and (few or part.is_list)}
        if not wanted:
            return parts
        opened = [more for part in parts for more in (part.opened() if part in wanted else [part])]
        if len(opened) > MAX_ROWS:
            return parts if len(parts) >= _ENOUGH else _in_groups(parts, wanted)
        parts = opened


def _in_groups(parts: list[_Part], wanted: set[_Part]) -> list[_Part]:
    """Open ``wanted`` within `MAX_ROWS`: short lists fully, long ones in groups that fit."""
    others = len(parts) - len(wanted)
    share = (MAX_ROWS - others) // len(wanted)
    counts = {part: len(part.opened()) for part in wanted}
    long = {part for part, count in counts.items() if count > share}
    taken = others + sum(count for count in counts.values() if count <= share)
    room = (MAX_ROWS - taken) // len(long)
    found: list[_Part] = []
    for part in parts:
        inside = part.opened() if part in wanted else [part]
        length = -(-len(inside) // room) if part in long else 1
        starts = range(0, len(inside), length)
        found.extend(_group(inside[start : start + length]) for start in starts)
    return found


def _group(parts: Sequence[_Part]) -> _Part:
    first, last = parts[0], parts[-1]
    if first is last:
        return first
    return _Part(
        path=first.path,
        label=f"{first.label}–{last.path.rpartition('.')[2]}",
        cls=first.cls if len({part.cls for part in parts}) == 1 else "",
        num_modules=len(parts),
        own=[at for part in parts for at in part.members()],
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
