"""The panel without a browser: a text summary and a static picture of the loss."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.html import fill
from workbench.panel.channel.mode_switch import states_of
from workbench.panel.channel.thinning import kept_rows

if TYPE_CHECKING:
    from workbench.experiment import Experiment

WIDTH, HEIGHT = 640, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 30, 26
_MAX_POINTS = 240


def text_summary(experiment: Experiment) -> str:
    """Return a few plain lines: what the experiment is, its progress, and its results."""
    lines = [f"Experiment {experiment.name}: {experiment.status}"]
    total = experiment.total_steps
    lines.append(f"  step {experiment.step_count:,}" + (f" of {total:,}" if total else ""))
    lines += [f"  {fact.label.lower()}: {fact.value}" for fact in experiment.facts()]
    lines.append(f"  modes: {experiment.modes}")
    lines += [f"    {line}" for line in _measured(experiment)]
    for name in ("train/loss", "val/loss", "val/accuracy"):
        _, values = experiment.scalars.since(name, 0)
        if len(values):
            lines.append(f"  {name}: {_value(name, float(values[-1]))}")
    if experiment.best_accuracy is not None:
        lines.append(f"  best accuracy: {experiment.best_accuracy:.1%}")
    if experiment.failure is not None:
        lines.append(f"  {experiment.failure.title}: {experiment.failure.message}")
    lines += [f"  note: {note}" for note in experiment.notes]
    return "\n".join(" ".join(line[:300].splitlines()) for line in lines)


def _measured(experiment: Experiment) -> list[str]:
    """Return the measurements of each mode that has any."""
    return [
        f"{state.label.lower()} {state.value}: {state.badge.text}"
        + (f", {state.badge.detail}" if state.badge.detail else "")
        for state in states_of(experiment)
        if state.badge.kind != "todo"
    ]


def static_html(experiment: Experiment) -> str:
    """Return an inline SVG of the loss with the text summary below it."""
    steps, values = experiment.scalars.since("train/loss", 0)
    val_steps, val_values = experiment.scalars.since("val/loss", 0)
    summary = fill("<pre>{{ text }}</pre>", text=text_summary(experiment))
    finite = np.isfinite(values)
    if not finite.any():
        return summary
    picture = _loss_svg(experiment.name, steps[finite], values[finite], val_steps, val_values)
    return picture + summary


def _loss_svg(
    name: str,
    steps: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    val_steps: npt.NDArray[np.int64],
    val_values: npt.NDArray[np.float64],
) -> str:
    # a custom loss may be negative: the axis then reaches below 0
    low, top = min(0.0, float(np.percentile(values, 0.5))), float(np.percentile(values, 99.5))
    ticks = _ticks(low, max(top, 0.0 if low < 0 else 1e-12))
    low, high, last = ticks[0], ticks[-1], int(max(steps[-1], 1))
    inner_w, inner_h = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(step: Any) -> float:
        return round(_LEFT + inner_w * step / last, 1)

    def y(value: Any) -> float:
        return round(_TOP + inner_h * (1 - (min(max(value, low), high) - low) / (high - low)), 1)

    keep = kept_rows(values, _MAX_POINTS)
    line = " ".join(f"{x(steps[i])},{y(values[i])}" for i in keep)
    grid = "".join(
        f'<path d="M{_LEFT} {y(t)}H{WIDTH - _RIGHT}" stroke="currentColor" opacity=".15"/>'
        f'<text x="{_LEFT - 6}" y="{y(t) + 4}" text-anchor="end">{t:g}</text>'
        for t in ticks
    )
    marks = "".join(
        f'<circle cx="{x(s)}" cy="{y(v)}" r="3" fill="none" stroke="currentColor"/>'
        for s, v in zip(val_steps.tolist(), val_values.tolist(), strict=True)
        if np.isfinite(v)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'style="max-width:100%;font:11px sans-serif" fill="currentColor">'
        f"<title>Loss of {escape(name[:80])} by step</title>"
        f'<text x="{_LEFT}" y="16" font-weight="600">Loss</text>'
        f'<text x="{_LEFT + 36}" y="16">train (line), validation (rings)</text>{grid}'
        f'<text x="{_LEFT}" y="{HEIGHT - 8}">0</text>'
        f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">step {last:,}</text>'
        f'<polyline points="{line}" fill="none" stroke="#1976d2" stroke-width="1.5"/>{marks}</svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return about four round numbers from ``low`` to at least ``high``."""
    raw = (high - low) / 4
    power = 10.0 ** np.floor(np.log10(raw))
    size = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = np.floor(low / size) * size
    # a loss may be tiny: the significant digits are those of one interval of the axis
    digits = max(10, 2 - int(np.log10(power)))
    return [round(first + i * size, digits) for i in range(int(np.ceil((high - first) / size)) + 1)]


def _value(name: str, value: float) -> str:
    return f"{value:.1%}" if name.endswith("accuracy") else f"{value:.4g}"
