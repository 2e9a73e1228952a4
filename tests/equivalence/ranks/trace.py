"""What a run leaves where it is home, and whether two runs agree as far as their rounding goes.

Until ranks take over, everything is equal to the bit. From then on sums are added in another order,
so float32 numbers agree to 1e-6 and float64 ones to 1e-9, of the largest number in their tensor,
unless the recipe itself makes more of a rounding: the sign of a gradient that is zero but for
rounding, which Rprop follows, or a key's bias, of whose gradient Adam makes a step as large as any.
How much a recipe makes of it is measured and not guessed: the plain loop is run again with weights
and gradients that are rounded otherwise in every step, and a tensor may differ by `_ROOM` times as
much as it differs there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tests.equivalence.ranks.attached import hooks_of
from tests.equivalence.trace import tensors

_ROOM = 8.0
_FLOOR = {torch.float64: 1e-9, torch.complex64: 1e-6}
_FLOOR_F32 = 1e-6
LOOSE = 1e-2
"""A tensor or a loss that may differ by more than this share is hardly compared."""


@dataclass
class Look:
    """The whole state between two steps, while it is home."""

    tensors: dict[str, torch.Tensor]
    plain: dict[str, Any]
    """What is no tensor: equal whatever the rounding."""


@dataclass
class Trace:
    """Of a whole run."""

    losses: list[float] = field(default_factory=list[float])
    looks: dict[int, Look] = field(default_factory=dict[int, Look])
    """After so many steps."""
    validations: list[tuple[int, float, float | None]] = field(
        default_factory=list[tuple[int, float, "float | None"]]
    )
    """(steps before it, loss, accuracy) of each."""
    rates: dict[int, float] = field(default_factory=dict[int, float])
    """Of the first group, in the step."""
    norms: dict[int, float] = field(default_factory=dict[int, float])
    """Of the gradients before they are clipped."""


def look(
    model: nn.Module,
    loss_of: Any,
    optimizer: torch.optim.Optimizer,
    held: dict[str, Any],
    random_state: torch.Tensor,
) -> Look:
    """All there is of a training; copied."""
    found = dict(tensors(model, loss_of))
    plain: dict[str, Any] = {}
    _add_modules(model, found, plain)
    _add_optimizer(optimizer, found, plain)
    plain["numbers of hooks"] = hooks_of(model)
    for name, value in held.items():
        (found if isinstance(value, torch.Tensor) else plain)[name] = value
    found["random numbers"] = random_state
    dense = {name: one.to_dense() if one.is_sparse else one for name, one in found.items()}
    return Look({name: one.detach().cpu().clone() for name, one in dense.items()}, plain)


def _add_modules(model: nn.Module, found: dict[str, torch.Tensor], plain: dict[str, Any]) -> None:
    """Attributes of modules: numbers, words, lists of them, and tensors that are no buffers."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            full = f"{path}.{name}" if path else name
            if isinstance(value, torch.Tensor):
                found[full] = value
            elif not name.startswith("_") and _is_plain(value):
                plain[full] = _copied(value)


def _add_optimizer(
    optimizer: torch.optim.Optimizer, found: dict[str, torch.Tensor], plain: dict[str, Any]
) -> None:
    """Moments, the settings of groups, and attributes of its own."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    for at, parameter in enumerate(p for group in groups for p in group["params"]):
        kept: dict[str, Any] = optimizer.state.get(parameter, {})
        if isinstance(kept.get("step"), torch.Tensor) and not kept["step"]:
            continue  # made by a fused optimizer for an update that a scaler skipped
        for name, value in kept.items():
            (found if isinstance(value, torch.Tensor) else plain)[f"moment {at}.{name}"] = value
    for name, value in vars(optimizer).items():
        if not name.startswith("_") and _is_plain(value):
            plain[f"the optimizer's {name}"] = _copied(value)
    for at, group in enumerate(groups):
        for name, value in group.items():
            if name != "params":
                plain[f"group {at}'s {name}"] = _number(value)


def difference(
    ours: Trace,
    plain: Trace,
    noisy: list[Trace],
    away_from: int,
    *,
    until: int | None = None,
    loosely: list[str] | None = None,
) -> str:
    """The first thing that differs, in a sentence; ``""`` where nothing does.

    Args:
        ours: of the experiment.
        plain: of the loop by hand.
        noisy: the same loop, rounded otherwise.
        away_from: how many steps come before the first one on ranks: so many are equal to the bit.
        until: of more steps nothing is compared but what no random number goes into.
        loosely: is told what could hardly be compared.
    """
    judge = _Judge(ours, plain, noisy, away_from, until, [] if loosely is None else loosely)
    return judge.steps() or judge.looks() or judge.curves() or judge.validations()


@dataclass
class _Judge:
    ours: Trace
    plain: Trace
    noisy: list[Trace]
    away_from: int
    until: int | None
    loosely: list[str]

    def steps(self) -> str:
        if len(self.ours.losses) != len(self.plain.losses):
            mine, theirs = len(self.ours.losses), len(self.plain.losses)
            return f"there are {mine} steps, and {theirs} in a plain loop"
        for at, (mine, theirs) in enumerate(zip(self.ours.losses, self.plain.losses, strict=True)):
            others = [one.losses[at] for one in self.noisy if at < len(one.losses)]
            if found := self._number(mine, theirs, others, at):
                return (
                    f"the loss of step {at + 1} is {mine!r}, and {theirs!r} in a plain loop{found}"
                )
        return ""

    def looks(self) -> str:
        if self.ours.looks.keys() - self.plain.looks.keys():
            return f"looks at {sorted(self.ours.looks)}, and at {sorted(self.plain.looks)} by hand"
        for step in sorted(self.ours.looks):
            mine, theirs = self.ours.looks[step], self.plain.looks[step]
            others = [one.looks[step] for one in self.noisy if step in one.looks]
            if found := self._plain(step, mine, theirs, others) or self._tensors(
                step, mine, theirs, others
            ):
                return found
        return ""

    def _plain(self, step: int, mine: Look, theirs: Look, others: list[Look]) -> str:
        if mine.plain.keys() != theirs.plain.keys():
            names = sorted(mine.plain.keys() ^ theirs.plain.keys())
            return f"after step {step} one of them alone has {', '.join(names)}"
        for name, value in theirs.plain.items():
            if _alike(mine.plain[name], value):
                continue
            if any(not _alike(one.plain.get(name), value) for one in others):
                continue  # the plain loop does not agree with itself (a rate that follows a loss)
            if self._is_free(step) and name.endswith("'s lr"):
                continue
            return f"{name} is {mine.plain[name]!r} after step {step}, and {value!r} by hand"
        return ""

    def _tensors(self, step: int, mine: Look, theirs: Look, others: list[Look]) -> str:
        if mine.tensors.keys() != theirs.tensors.keys():
            names = sorted(mine.tensors.keys() ^ theirs.tensors.keys())
            return f"after step {step} one of them alone has {', '.join(names)}"
        for name, value in theirs.tensors.items():
            found, noise = mine.tensors[name], [one.tensors.get(name) for one in others]
            if found.shape != value.shape or found.dtype != value.dtype:
                return f"{name} is {_kind(found)} after step {step}, and {_kind(value)} by hand"
            if self._is_free(step) and value.is_floating_point():
                if not bool(found.isfinite().all()):
                    return f"{name} is not finite after step {step}"
                continue
            if self._is_free(step) and name == "random numbers":
                continue
            if words := self._tensor(name, found, value, noise, step):
                return f"{name} differs after step {step}{words}"
        return ""

    def _tensor(
        self,
        name: str,
        found: torch.Tensor,
        value: torch.Tensor,
        noise: list[torch.Tensor | None],
        step: int,
    ) -> str:
        if not value.numel():
            return ""
        if not (value.is_floating_point() or value.is_complex()) or step <= self.away_from:
            equal = (found == value) | ((found != found) & (value != value))
            return "" if bool(equal.all()) else _by(found, value)
        moved = [_distance(one, value) for one in noise if one is not None]
        room = self._room(float(value.abs().max()), moved, value.dtype, name)
        return "" if _distance(found, value) <= room else f"{_by(found, value)}, room {room:.1e}"

    def _number(self, mine: float, theirs: float, others: list[float], step: int) -> str:
        """The numbers of one step, in float32 as they are told."""
        if self._is_free(step + 1):
            return "" if math.isfinite(mine) else ": it is not finite"
        if step < self.away_from:
            same = torch.tensor(mine).equal(torch.tensor(theirs))
            return "" if same else ", of steps before any on ranks"
        moved = [abs(one - theirs) for one in others]
        room = self._room(abs(theirs), moved, torch.float32, f"loss {step + 1}")
        return "" if abs(mine - theirs) <= room else f", room {room:.1e}"

    def _room(self, scale: float, moved: list[float], dtype: torch.dtype, name: str) -> float:
        room = max(_FLOOR.get(dtype, _FLOOR_F32) * scale, _ROOM * max(moved, default=0.0), 1e-12)
        if scale and room > LOOSE * scale:
            self.loosely.append(name)
        return room

    def curves(self) -> str:
        for what, ours, plain in (
            ("rate", self.ours.rates, self.plain.rates),
            ("gradient norm", self.ours.norms, self.plain.norms),
        ):
            for step, mine in ours.items():
                if step not in plain:
                    return f"there is a {what} of step {step}, and none by hand"
                noisy = [one.rates if what == "rate" else one.norms for one in self.noisy]
                others = [one[step] for one in noisy if step in one]
                theirs = plain[step]
                if math.isnan(theirs) or math.isinf(theirs) or self._is_free(step):
                    continue
                moved = [abs(one - theirs) for one in others]
                room = self._room(abs(theirs), moved, torch.float32, f"{what} {step}")
                if not abs(mine - theirs) <= room:
                    return f"the {what} of step {step} is {mine!r}, and {theirs!r} by hand"
        return ""

    def validations(self) -> str:
        ours, plain = self.ours.validations, self.plain.validations
        if [one[0] for one in ours] != [one[0] for one in plain]:
            return f"validations after steps {[v[0] for v in ours]}, not {[v[0] for v in plain]}"
        for at, (mine, theirs) in enumerate(zip(ours, plain, strict=True)):
            if self._is_free(mine[0]):
                continue
            others = [one.validations[at] for one in self.noisy if at < len(one.validations)]
            moved = [abs(one[1] - theirs[1]) for one in others]
            room = max(2e-5 * abs(theirs[1]), _ROOM * max(moved, default=0.0))
            both_nan = math.isnan(mine[1]) and math.isnan(theirs[1])
            if not (both_nan or abs(mine[1] - theirs[1]) <= room):
                return f"validation {at + 1} has a loss of {mine[1]!r}, not {theirs[1]!r}"
            if (mine[2] is None) != (theirs[2] is None):
                return f"validation {at + 1} has an accuracy of {mine[2]!r}, not {theirs[2]!r}"
            if mine[2] is not None and theirs[2] is not None and abs(mine[2] - theirs[2]) > 1e-6:
                if any(one[2] != theirs[2] for one in others):
                    continue  # a row that stands between two classes
                return f"validation {at + 1} has an accuracy of {mine[2]!r}, not {theirs[2]!r}"
        return ""

    def _is_free(self, step: int) -> bool:
        return self.until is not None and step > self.until


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(_is_plain(one) for pair in value.items() for one in pair)
    return value is None or isinstance(value, (bool, int, float, str))


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(one) for one in value]
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _alike(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or abs(mine - theirs) <= 1e-6 * abs(theirs)
    if isinstance(mine, torch.Tensor) or isinstance(theirs, torch.Tensor):
        return isinstance(mine, torch.Tensor) and torch.equal(mine, theirs)
    return mine == theirs


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    apart = (one - other).abs()
    apart = torch.where((one != one) & (other != other), torch.zeros_like(apart), apart)
    largest = float(apart.max())
    return math.inf if math.isnan(largest) else largest


def _by(found: torch.Tensor, value: torch.Tensor) -> str:
    if not found.is_floating_point():
        return ""
    return f" by {_distance(found, value):.1e} of {float(value.abs().max()):.1e}"


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
