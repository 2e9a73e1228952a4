"""A mode's badge: what its value was measured to change, in words.

A badge compares the set of modes in use with a set that differs only in this mode: the one with the
mode at its default, or, if that was never trained, with the other value that was trained last (and
then the badge names it). A verdict is given only if the intervals of the two medians exclude "no
change"; otherwise the badge says that no difference could be determined, and with what resolution.
If a comparison in turns was made, the badge shows its verdict: faster, slower, tie or unclear.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import nn

from workbench.modes.compile.mode import Compile
from workbench.modes.core.base import Mode
from workbench.modes.effects.compared import Compared, Judged
from workbench.modes.effects.statistics import Speedup, Spread, speedup
from workbench.modes.effects.step_times import MIN_STEPS, StepTimings
from workbench.modes.modeset import ModeSet
from workbench.records import Badge
from workbench.records.panel import BadgeKind

_TOO_WIDE = 5
"""An interval whose ends differ by more than this factor is not printed."""
_FINE = 1.25
"""An interval that ends within this factor of 1 shows that there is no large effect."""


def effect_of(mode: Mode, value: str, modeset: ModeSet, timings: StepTimings) -> tuple[str, bool]:
    """Effect of a value compared with the default, by this experiment's own steps or a comparison.

    Returns:
        (a sentence with its figures, or ``""``; whether the value is slower).
    """
    if value == mode.default:
        return "", False
    with_it, without = _with(mode, modeset, value), _with(mode, modeset, mode.default)
    found = timings.compared(without, with_it)
    if found is not None:
        change, figures = found.change, _comparison(value, mode.default, found)
    else:
        now, before = timings.spread(with_it), timings.spread(without)
        if now is None or before is None:
            return "", False
        change = speedup(before, now)
        figures = f"{_described(value, now)}; {_described(mode.default, before)}"
    is_slower = change.supported and change.ratio < 1
    verdict = f"{_verdict(change)} than {mode.default}" if change.supported else _verdict(change)
    return f"{verdict} in steps of this experiment: {figures}.", is_slower


def badge(mode: Mode, modeset: ModeSet, timings: StepTimings, model: nn.Module) -> Badge:
    """The badge of ``mode`` as it stands in ``modeset``."""
    if reason := mode.no_effect_reason(model):
        return Badge(kind="none", text="no effect", detail=reason)
    if needed := mode.needs(mode.device):
        return Badge(kind="warn", text=needed)
    found = _measured(mode, modeset, timings)
    return replace(
        found,
        detail=", ".join(filter(None, [mode.note, found.detail])),
        tooltip="; ".join(filter(None, [found.tooltip, mode.so_far()])),
    )


def _measured(mode: Mode, modeset: ModeSet, timings: StepTimings) -> Badge:
    """Badge with what is known about the effect of the mode."""
    if mode.value == mode.default:
        return _compared_baseline(mode, modeset, timings) or _baseline(mode, modeset, timings)
    if compared := timings.compared(_with(mode, modeset, mode.default), str(modeset)):
        return _in_turns(mode, compared)
    now = timings.spread(str(modeset))
    if now is None:
        done = timings.count(str(modeset))
        return _not_measured(f"{done} of {MIN_STEPS} steps" if done else "")
    other = _reference(mode, modeset, timings)
    before = timings.spread(_with(mode, modeset, other)) if other else None
    if other is None or before is None:
        rest = _with(mode, modeset, mode.default)
        both = mode.default if rest in ("fp32", mode.default) else f"{rest} and {mode.default}"
        return _not_measured(f"no steps with {both} yet")
    return _effect(mode, modeset, timings, other, (before, now))


def _not_measured(detail: str) -> Badge:
    return Badge(kind="todo", text="not measured", detail=detail)


def _in_turns(mode: Mode, found: Compared) -> Badge:
    """Badge with the result of a comparison with the default."""
    first_s = found.first_s if mode.name == Compile.name else None
    supported = found.change.supported
    return Badge(
        kind=_kind(found.change),
        text=_verdict(found.change),
        detail=_cost(found.before, found.now, first_s) if supported else _resolution(found.change),
        tooltip=_comparison(mode.value, mode.default, found),
    )


def _compared_baseline(mode: Mode, modeset: ModeSet, timings: StepTimings) -> Badge | None:
    """Badge of the default, which names the alternative that a comparison found to be fastest."""
    others = [value for value in mode.values if value != mode.default]
    found = {value: timings.compared(str(modeset), _with(mode, modeset, value)) for value in others}
    known = {value: one for value, one in found.items() if one is not None}
    if not known:
        return None
    value, best = max(known.items(), key=lambda pair: pair[1].change.ratio)
    return Badge(
        kind="baseline",
        text="baseline",
        detail=f"{value}: {_verdict(best.change)}",
        tooltip=_comparison(value, mode.default, best),
    )


def _comparison(value: str, other: str, found: Compared) -> str:
    rounds = min(found.before.count, found.now.count)
    return (
        f"{value}: {duration(found.now.median)} a step, {other}: {duration(found.before.median)}, "
        f"measured in turns by wb.compare, {rounds} rounds"
    )


def _baseline(mode: Mode, modeset: ModeSet, timings: StepTimings) -> Badge:
    """Badge of the default, which names the effect of the alternative that was trained last."""
    other = _latest(mode, modeset, timings, [v for v in mode.values if v != mode.default])
    now = timings.spread(str(modeset))
    then = timings.spread(_with(mode, modeset, other)) if other else None
    if other is None or now is None or then is None:
        return Badge(kind="baseline", text="baseline")
    return Badge(
        kind="baseline",
        text="baseline",
        detail=f"{other}: {_verdict(speedup(now, then))}",
        tooltip=f"{_described(other, then)}; {_described(mode.value, now)}",
    )


def _effect(
    mode: Mode, modeset: ModeSet, timings: StepTimings, other: str, pair: tuple[Spread, Spread]
) -> Badge:
    before, now = pair
    change = speedup(before, now)
    than = "" if other == mode.default else f" than {other}"
    first_s = timings.first_step_seconds(str(modeset)) if mode.name == Compile.name else None
    delta = timings.max_abs_delta_logit(str(modeset), _with(mode, modeset, other))
    tooltip = [_described(mode.value, now), _described(other, before)]
    tooltip += [f"first step {duration(first_s)}"] if first_s is not None else []
    tooltip += [_parity(delta)] if delta is not None else []
    if not change.supported:
        text, detail = _verdict(change), _resolution(change)
    else:
        text = f"{_verdict(change)}{than}"
        detail = _cost(before, now, first_s) or (_parity(delta) if delta is not None else "")
    return Badge(kind=_kind(change), text=text, detail=detail, tooltip="; ".join(tooltip))


def _resolution(change: Speedup) -> str:
    """How finely a difference could be resolved; without figures if the interval is too wide."""
    if change.high > _TOO_WIDE * change.low:
        return "step times vary too much"
    return f"{factor(change.low)} to {factor(change.high)} speed"


def _kind(change: Speedup) -> BadgeKind:
    if not change.supported:
        return "none"
    return "good" if change.ratio > 1 else "bad"


def _verdict(change: Speedup) -> str:
    if not change.supported:
        if isinstance(change, Judged):
            return change.verdict
        return "no clear effect" if change.low > 1 / _FINE and change.high < _FINE else "unclear"
    if change.ratio > 1:
        return f"{factor(change.ratio)} faster"
    return f"{factor(1 / change.ratio)} slower"


def _cost(before: Spread, now: Spread, first_s: float | None) -> str:
    """After how many steps the first one is paid back, or what it cost if it never is."""
    if first_s is None:
        return ""
    saving = before.median - now.median
    if saving <= 0:
        return f"first step took {duration(first_s)}"
    steps = max(math.ceil((first_s - now.median) / saving), 0)
    return f"pays back after {short_count(steps)} steps"


def _reference(mode: Mode, modeset: ModeSet, timings: StepTimings) -> str | None:
    if timings.count(_with(mode, modeset, mode.default)) >= MIN_STEPS:
        return mode.default
    return _latest(mode, modeset, timings, [v for v in mode.values if v != mode.value])


def _latest(mode: Mode, modeset: ModeSet, timings: StepTimings, values: list[str]) -> str | None:
    by_text = {_with(mode, modeset, value): value for value in values}
    found = timings.latest(by_text)
    return by_text[found] if found is not None else None


def _with(mode: Mode, modeset: ModeSet, value: str) -> str:
    return modeset.text_with(mode.name, value)


def _described(value: str, times: Spread) -> str:
    return (
        f"{value}: median {duration(times.median)}, middle half {duration(times.q1)} to "
        f"{duration(times.q3)}, {times.count:,} steps"
    )


def _parity(delta: float) -> str:
    return f"max |Δ logit| {power(delta)}"


def factor(ratio: float) -> str:
    """``1.4×``; two decimals near 1, none from 10."""
    if abs(ratio - 1) < 0.095:
        return f"{ratio:.2f}×"
    return f"{ratio:.1f}×" if ratio < 9.95 else f"{ratio:.0f}×"


def duration(seconds: float) -> str:
    """Three digits with the unit that fits: ``14.0 s``, ``12.1 ms``, ``141 µs``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= 0.9995 * scale:
            return f"{_three(seconds / scale)} {unit}"
    return f"{_three(seconds / 1e-6)} µs"


def short_count(number: int) -> str:
    """At most three digits: ``780``, ``12.3k``."""
    if number < 1000:
        return str(number)
    return f"{_three(number / 1000)}k" if number < 999_500 else f"{_three(number / 1e6)}M"


def power(value: float) -> str:
    """One digit and its power of ten: ``3e-3``; ``0`` for zero."""
    if not math.isfinite(value):
        return "not finite"
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if value else "0"


def _three(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
