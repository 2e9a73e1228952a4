"""Hot swap: a new model takes over what fits from the old one, by name and shape.

It receives what ``new.load_state_dict(old.state_dict())`` would copy: parameters and persistent
buffers of the same name and shape. A ``state_dict`` lists a tied weight under each of its names, so
a weight that is no longer tied is copied to all of them, and of several weights that are tied now
the last one is used. A buffer that is not persistent keeps the new model's value.

The optimizer remains the same object, with its hooks and its rates, for all who hold it; the
parameters in its groups, and the state that it keeps for each, are exchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn

from workbench.experiment.recipe.optimizers import optimizers_in
from workbench.records import CarryRow

_DEPTH = 3
"""Nesting depth of containers in an optimizer's attributes that are searched for parameters."""


def refusal(optimizer: torch.optim.Optimizer, model: nn.Module) -> str:
    """Return why ``optimizer`` cannot continue with a model other than ``model``, or ``""``."""
    held = {id(p) for p in model.parameters()}
    for one in optimizers_in(optimizer):
        for name, value in vars(one).items():
            if name not in ("param_groups", "state") and _holds(value, held, _DEPTH):
                return (
                    f"{type(one).__name__} keeps parameters of the model in its attribute "
                    f"{name!r}, not only in its parameter groups, so it cannot continue with "
                    "another model: create a new Experiment with the new model"
                )
    return ""


def swap(
    old: nn.Module, new: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[CarryRow, ...]:
    """Carry weights, persistent buffers and optimizer state from ``old`` to ``new``.

    A parameter's optimizer state moves with its value; if one tied weight becomes several
    parameters, each starts from a copy of the shared state. A parameter takes the place of the old
    parameter of the same name in the optimizer's groups, even if that one was in no group; a
    parameter without such an old one, or whose old one was frozen and not held, joins the first
    group. What else the optimizer holds, such as parameters of a loss, stays as it is.

    Returns:
        One row per parameter and buffer.
    """
    new.to(device)
    taken = _Taken(old, new)
    names = [name for name in {**taken.after, **taken.before} if not taken.is_alias(name)]
    crossing = dict(_crossing(old, new, taken))
    rows = [taken.row(name) for name in names if name not in crossing]
    with torch.no_grad():
        for parameter, before in taken.values():
            if parameter is not before:
                parameter.copy_(before)
        rows += [_carry_across(name, *pair) for name, pair in crossing.items()]
        rows += _carry_buffers(old, new, set(crossing))
    seen: set[int] = set()
    for one in optimizers_in(optimizer):
        _exchange(one, taken, seen, joins=one is optimizer)
    return tuple(rows)


def shape_text(tensor: torch.Tensor) -> str:
    """Format a shape: ``64×3×3×3``, or ``scalar``."""
    return "×".join(map(str, tensor.shape)) or "scalar"


class _Taken:
    """Which parameter of a new model takes over which one of the old model."""

    def __init__(self, old: nn.Module, new: nn.Module) -> None:
        self.before = dict(old.named_parameters(remove_duplicate=False))
        self.after = dict(new.named_parameters(remove_duplicate=False))
        self.olds = {id(p): p for p in self.before.values()}
        self.news = {id(p): p for p in self.after.values()}
        self._first_before, self._first_after = _first(self.before), _first(self.after)
        self._from: dict[int, str] = {}
        """For a new parameter, the name whose old value it has: the last one that fits."""
        for name, parameter in self.after.items():
            same = self.before.get(name)
            # a parameter of the old model that is also in the new one keeps its value
            fits = same is not None and same.shape == parameter.shape
            if fits and id(parameter) not in self.olds:
                self._from[id(parameter)] = name

    def values(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Yield new parameters with the old ones whose value and state they have."""
        for parameter in self.news.values():
            if id(parameter) in self.olds:
                yield parameter, parameter
            elif (name := self._from.get(id(parameter))) is not None:
                yield parameter, self.before[name]

    def predecessor(self, parameter: nn.Parameter) -> nn.Parameter | None:
        """Return the old parameter of its name, of any shape, whose optimizer place it takes."""
        if id(parameter) in self.olds:
            return parameter
        if (name := self._from.get(id(parameter))) is not None:
            return self.before[name]
        names = (name for name, one in self.after.items() if one is parameter)
        return next((self.before[name] for name in names if name in self.before), None)

    def after_name(self, parameter: nn.Parameter) -> str:
        """Return the first name of ``parameter`` in the new model, or ``""``."""
        return self._first_after.get(id(parameter), "")

    def is_alias(self, name: str) -> bool:
        """Return whether it is tied to the same other name in both models: one row suffices."""
        old, new = self.before.get(name), self.after.get(name)
        if old is None or new is None:
            return False
        first = self._first_after[id(new)]
        return first != name and self._first_before[id(old)] == first

    def row(self, name: str) -> CarryRow:
        """Return the row of the parameter of this name."""
        old, new = self.before.get(name), self.after.get(name)
        outcome, note = self._outcome(name, old, new)
        return CarryRow(
            name=name,
            outcome=outcome,
            old_shape="" if old is None else shape_text(old),
            new_shape="" if new is None else shape_text(new),
            note=note,
        )

    def _outcome(self, name: str, old: nn.Parameter | None, new: nn.Parameter | None) -> Any:
        if new is None:
            return "dropped", self._went(name)
        if id(new) in self.olds:
            former = self._first_before[id(new)]
            same = old is new or former == name
            return "carried", "" if same else f"the same parameter that was {former}"
        source = self._from.get(id(new))
        if source is None:
            return ("new" if old is None else "reshaped"), ""
        if source == name:
            return "carried", self._untied(name)
        if old is self.before[source]:
            return "carried", ""
        note = f"tied to {source}, whose value and optimizer state it has"
        return ("carried" if old is None else "dropped"), note

    def _went(self, name: str) -> str:
        old = self.before[name]
        if id(old) in self._first_after:
            return f"is {self._first_after[id(old)]} now"
        first = self._first_before[id(old)]
        return f"was tied to {first}" if first != name else ""

    def _untied(self, name: str) -> str:
        old, new = self.before[name], self.after[name]
        others = [
            other
            for other, one in self.before.items()
            if one is old and other in self.after and self.after[other] is not new
        ]
        if not others:
            return ""
        return f"no longer tied to {', '.join(others)}: each starts from the shared optimizer state"


def _first(named: dict[str, nn.Parameter]) -> dict[int, str]:
    found: dict[int, str] = {}
    for name, parameter in named.items():
        found.setdefault(id(parameter), name)
    return found


def _crossing(
    old: nn.Module, new: nn.Module, taken: _Taken
) -> Iterator[tuple[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Yield parameters that are now buffers of the same name, and vice versa: old and new.

    A ``state_dict`` identifies both by name alone, and excludes buffers that are not persistent.
    """
    before, after = dict(_buffers(old)), dict(_buffers(new))
    for name, parameter in taken.before.items():
        if name in after and after[name][1]:
            yield name, (parameter, after[name][0])
    for name, parameter in taken.after.items():
        if name in before and before[name][1]:
            yield name, (before[name][0], parameter)


def _carry_across(name: str, was: torch.Tensor, is_now: torch.Tensor) -> CarryRow:
    fits = was.shape == is_now.shape
    if fits:
        is_now.copy_(was)
    was_parameter = isinstance(was, nn.Parameter)
    return CarryRow(
        name=name,
        outcome="carried" if fits else "reshaped",
        old_shape=shape_text(was),
        new_shape=shape_text(is_now),
        kind="buffer" if was_parameter else "parameter",
        note="was a parameter, and is no longer trained" if was_parameter else "was a buffer",
    )


def _carry_buffers(old: nn.Module, new: nn.Module, known: set[str]) -> list[CarryRow]:
    before, after = dict(_buffers(old)), dict(_buffers(new))
    rows: list[CarryRow] = []
    for name in {**after, **before}:
        if name in known:
            continue
        was, is_now = before.get(name), after.get(name)
        note = ""
        if is_now is None:
            outcome = "dropped"
        elif was is None:
            outcome = "new"
        elif was[0] is is_now[0]:
            outcome = "carried"
        elif not (was[1] and is_now[1]):
            outcome, note = "new", "not persistent: the new model's value"
        elif was[0].shape != is_now[0].shape:
            outcome = "reshaped"
        else:
            outcome = "carried"
            is_now[0].copy_(was[0])
        rows.append(
            CarryRow(
                name=name,
                outcome=outcome,
                old_shape="" if was is None else shape_text(was[0]),
                new_shape="" if is_now is None else shape_text(is_now[0]),
                kind="buffer",
                note=note,
            )
        )
    return rows


def _buffers(model: nn.Module) -> Iterator[tuple[str, tuple[torch.Tensor, bool]]]:
    """Yield each buffer by name, and whether it is persistent."""
    for path, module in model.named_modules(remove_duplicate=False):
        left_out: set[str] = vars(module).get("_non_persistent_buffers_set", set())
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            yield f"{path}.{name}".lstrip("."), (buffer, name not in left_out)


def _exchange(
    optimizer: torch.optim.Optimizer, taken: _Taken, seen: set[int], *, joins: bool
) -> None:
    """Put the new parameters into the groups of the old ones, and their state into its place.

    Args:
        optimizer: optimizer to change.
        taken: which new parameter takes over which old one.
        seen: groups that are already done: optimizers that wrap others share their groups.
        joins: whether parameters without a place join the first group.
    """
    heirs: dict[int, list[nn.Parameter]] = {}
    without: list[nn.Parameter] = []
    groups: list[dict[str, Any]] = optimizer.param_groups
    held = {id(p) for group in groups for p in group["params"]}
    for parameter in taken.news.values():
        before = taken.predecessor(parameter)
        if before is not None and id(before) in held:
            heirs.setdefault(id(before), []).append(parameter)
        elif parameter.requires_grad and (before is None or not before.requires_grad):
            without.append(parameter)
    for number, group in enumerate(groups):
        if id(group) not in seen:
            _refill(group, heirs, without if joins and number == 0 else [], taken)
            seen.add(id(group))
    _move_state(optimizer, taken)


def _refill(
    group: dict[str, Any],
    heirs: dict[int, list[nn.Parameter]],
    more: list[nn.Parameter],
    taken: _Taken,
) -> None:
    """Exchange the parameters of a group, in the order in which it would be created now."""
    given: list[str] = group.get("param_names", [])
    former = [id(p) for p in group["params"] if id(p) in taken.olds]
    in_order = former == [key for key in taken.olds if key in set(former)]
    found: dict[int, tuple[nn.Parameter, str]] = {}
    for at, before in enumerate(group["params"]):
        heir = heirs.get(id(before), []) if id(before) in taken.olds else [before]
        for number, parameter in enumerate(heir):
            keeps_name = given and number == 0
            name = given[at] if keeps_name else taken.after_name(parameter)
            found[id(parameter)] = parameter, name
    found |= {id(p): (p, taken.after_name(p)) for p in more}
    entries = list(found.values())
    if in_order:  # as ``model.parameters()`` gave them; a state_dict goes by position
        own = [at for at, (p, _) in enumerate(entries) if id(p) in taken.news]
        sorted_own = [found[key] for key in taken.news if key in found]
        for at, entry in zip(own, sorted_own, strict=True):
            entries[at] = entry
    group["params"] = [parameter for parameter, _ in entries]
    if given:
        group["param_names"] = [name for _, name in entries]


def _move_state(optimizer: torch.optim.Optimizer, taken: _Taken) -> None:
    """Give each parameter the state of the one whose value it has; state of others stays."""
    state = optimizer.state
    former = {key: state.pop(p) for key, p in taken.olds.items() if p in state}
    given: set[int] = set()
    for parameter, before in taken.values():
        if id(before) not in former:
            continue
        own = former[id(before)]
        if id(before) in given:  # it was tied: two parameters must not update one moment
            own = copy.deepcopy(own)
        given.add(id(before))
        state[parameter] = _as_of(parameter, before, own)


def _as_of(parameter: nn.Parameter, before: nn.Parameter, state: Any) -> Any:
    """Cast moments to the dtype of the new parameter, as ``Optimizer.load_state_dict`` does."""
    if parameter.dtype == before.dtype or not isinstance(state, dict):
        return state
    return {
        key: value.to(parameter.dtype)
        if isinstance(value, torch.Tensor) and value.dtype == before.dtype and key != "step"
        else value
        for key, value in cast("dict[str, Any]", state).items()
    }


def _holds(value: Any, held: set[int], depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return id(value) in held
    if depth and isinstance(value, dict):
        both = cast("dict[Any, Any]", value).items()
        return any(_holds(one, held, depth - 1) for pair in both for one in pair)
    if depth and isinstance(value, (list, tuple, set)):
        return any(_holds(one, held, depth - 1) for one in cast("list[Any]", value))
    return False
