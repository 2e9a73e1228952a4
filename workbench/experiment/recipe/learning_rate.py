"""Set a learning rate, with and without a schedule.

The learning rate is that of the first parameter group; if groups at the beginning are permanently
at 0 (a frozen backbone), it is that of the first one after them. A rate that is set holds from the
next step on, other groups keep their ratio to that one (so those at 0 stay there), and the rest of
the schedule is scaled by the same factor: it continues like one that was created for rates so many
times as large and stepped as often. A schedule computes its next rate from the last one, from the
initial ones, or from bounds that it keeps, so all of them are scaled; momenta, and what is a factor
already, are unchanged.

No factor moves a schedule away from rate 0, where a warm-up begins and a cosine may end. There the
value is interpreted as the rate for which the schedule was created: the next step has it, and the
schedule continues from where it is, like one that was created for it. If all groups were created
for 0 there is no ratio to keep, and all get the value.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch.optim import lr_scheduler

_OF_GROUPS = frozenset({"initial_lr", "max_lr", "min_lr", "swa_lr"})
"""Rates that schedulers keep in a parameter group: all of them, `OneCycleLR` and `SWALR`."""
_MOMENTA_OF_GROUPS = frozenset({"max_momentum", "base_momentum"})
_MADE_FOR = ("initial_lr", "max_lr")
_SET_BY_SCHEDULES = frozenset({"lr", "momentum", "betas"})
_OF_SCHEDULERS = ("base_lrs", "max_lrs", "min_lrs", "default_min_lr", "eta_min", "_last_lr")
"""Rates that schedulers keep themselves: all of them, `CyclicLR`, `ReduceLROnPlateau` and
cosines."""
_SCHEDULED = "scheduled_lr"
"""Key in a group: the rate from which its schedule continues, if a step was given another one."""


def learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    """Return the learning rate of the first parameter group that has one."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    rate = groups[leading(groups)].get("lr") if groups else None
    return None if rate is None else float(rate)


def leading(groups: list[dict[str, Any]]) -> int:
    """Return the index of the group whose rate is shown and set.

    It is the first group that is not permanently at 0; else the first.
    """
    has_one = (any(group.get(key) for key in ("lr", *_MADE_FOR)) for group in groups)
    return next((at for at, has in enumerate(has_one) if has), 0)


def without_a_rate(optimizer: torch.optim.Optimizer, scheduler: Any) -> list[int]:
    """Return the indices of the groups that are at 0 and were created for 0."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    made_for = _made_for(groups, scheduler) or [0.0] * len(groups)
    return [at for at, rate in enumerate(made_for) if not rate and not float(groups[at]["lr"])]


def worded(rate: float) -> str:
    """Format a rate: ``1.5e-2``; ``1.0e-3``."""
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def scale_learning_rate(
    optimizer: torch.optim.Optimizer, scheduler: Any, value: float
) -> float | None:
    """Set the leading group's rate to ``value``, and scale other groups and the schedule with it.

    Args:
        optimizer: optimizer whose rates are set; rates that are tensors are filled.
        scheduler: scheduler that continues from there; None: there is none.
        value: rate, above 0.

    Returns:
        The factor; None if the rate was 0.
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    before = [float(group["lr"]) for group in groups]
    of = before[leading(groups)]
    factor = value / of if of else math.inf
    if math.isfinite(factor):
        set_rates(optimizer, _in_ratio(before, value, leading(groups)))
        _scale_schedule(optimizer, scheduler, factor)
        return factor
    made_for = _made_for(groups, scheduler)
    if made_for is None:
        set_rates(optimizer, [value] * len(groups))
        _make_for_its_rates(optimizer, scheduler)
        return None
    at, of = next((at, rate) for at, rate in enumerate(made_for) if rate)
    set_rates(optimizer, _in_ratio(made_for, value, at))
    _scale_schedule(optimizer, scheduler, value / of)
    if any(isinstance(part, lr_scheduler.CosineAnnealingLR) for part in parts_of(scheduler)):
        for group, rate in zip(groups, before, strict=True):
            group[_SCHEDULED] = rate  # it would treat what was set as the bottom of its curve
    return None


def follow_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the leading group's rate to ``value``, which a schedule elsewhere has reached.

    Other groups keep their ratio to it, as far as is known here; what schedules keep is unchanged.
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    rates = [float(group["lr"]) for group in groups]
    at = leading(groups)
    if not rates[at]:
        rates = _made_for(groups, None) or [1.0] * len(groups)
        at = next(at for at, rate in enumerate(rates) if rate)
    set_rates(optimizer, _in_ratio(rates, value, at))


def _in_ratio(rates: list[float], value: float, leader: int) -> list[float]:
    """Scale ``rates`` so that the rate of the leader is ``value``."""
    factor = value / rates[leader]
    return [value if at == leader else rate * factor for at, rate in enumerate(rates)]


def set_rates(optimizer: torch.optim.Optimizer, rates: list[float]) -> None:
    """Set the rate of every group, in their order; a tensor is filled."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return what schedules set in every group, rates and momenta, for `set_settings`."""
    return [
        {key: _copied(group[key]) for key in _SET_BY_SCHEDULES & group.keys()}
        for group in optimizer.param_groups
    ]


def set_settings(optimizer: torch.optim.Optimizer, settings: list[dict[str, Any]]) -> None:
    """Restore the result of `settings_of`; a rate that is a tensor is filled."""
    set_rates(optimizer, [float(one["lr"]) for one in settings])
    for group, one in zip(optimizer.param_groups, settings, strict=True):
        group.update({key: value for key, value in one.items() if key != "lr"})


def back_to_schedule(optimizer: torch.optim.Optimizer) -> None:
    """Restore the rates from which a schedule continues, before it steps."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    if groups and _SCHEDULED in groups[0]:
        set_rates(optimizer, [group.pop(_SCHEDULED) for group in groups])


def forget_schedule(optimizer: torch.optim.Optimizer) -> None:
    """Remove what a schedule has stored in the groups; rates and momenta stay as they are.

    A schedule that is created later would use the initial rates of the former one as its own.
    """
    for group in optimizer.param_groups:
        for key in (_OF_GROUPS | _MOMENTA_OF_GROUPS | {_SCHEDULED}) - optimizer.defaults.keys():
            group.pop(key, None)


def parts_of(scheduler: Any) -> list[Any]:
    """Return a scheduler and those inside it, each once.

    `SequentialLR` and `ChainedScheduler` keep a list; a scheduler that warms up for another one
    keeps that one.
    """
    found: list[Any] = [] if scheduler is None else [scheduler]
    for one in found:
        listed = getattr(one, "_schedulers", ())
        inner = [*cast("list[Any]", listed)] if isinstance(listed, (list, tuple)) else []
        kept = getattr(one, "__dict__", {}).values()
        inner += [value for value in kept if isinstance(value, lr_scheduler.LRScheduler)]
        for part in inner:
            if all(part is not other for other in found):
                found.append(part)
    return found


def _made_for(groups: list[dict[str, Any]], scheduler: Any) -> list[float] | None:
    """Return the rates that a schedule begins with, or rises to if those are 0; None if unknown."""
    found = [[group.get(key, 0.0) for group in groups] for key in _MADE_FOR]
    found += [part.max_lrs for part in parts_of(scheduler) if hasattr(part, "max_lrs")]
    rates = ([float(rate) for rate in one] for one in found)
    return next((one for one in rates if any(one)), None)


def _make_for_its_rates(optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
    """Let a schedule created for rate 0 continue like one created for the groups' rates."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    for group in groups:
        if "initial_lr" in group:
            group["initial_lr"] = _copied(group["lr"])
    for part in parts_of(scheduler):
        for name in {"base_lrs", "_last_lr"} & getattr(part, "__dict__", {}).keys():
            setattr(part, name, [_copied(group["lr"]) for group in groups])


def _scale_schedule(optimizer: torch.optim.Optimizer, scheduler: Any, factor: float) -> None:
    groups: list[dict[str, Any]] = optimizer.param_groups
    for group in groups:
        for key in (_OF_GROUPS & group.keys()) - optimizer.defaults.keys():
            group[key] = _scaled(group[key], factor)
    for part in parts_of(scheduler):
        is_plateau = isinstance(part, lr_scheduler.ReduceLROnPlateau)
        names = {*_OF_SCHEDULERS, "eps"} if is_plateau else {*_OF_SCHEDULERS}  # no smaller change
        for name in names & getattr(part, "__dict__", {}).keys():
            setattr(part, name, _scaled(getattr(part, name), factor))
    if "_last_lr" in getattr(scheduler, "__dict__", ()):
        scheduler._last_lr = [_copied(group["lr"]) for group in groups]


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, (list, tuple)):
        return type(cast("Any", value))(_scaled(one, factor) for one in cast("list[Any]", value))
    is_rate = isinstance(value, (int, float, torch.Tensor))
    return value * factor if is_rate else value


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
