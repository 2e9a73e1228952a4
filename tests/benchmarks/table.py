"""The table a benchmark prints: plain text, one line per contender."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version


def measure_interleaved(
    contenders: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Call every contender once a round, in turn, so that a slow minute hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds):
        names = list(contenders)
        for name in names[index % len(names) :] + names[: index % len(names)]:
            found[name].append(contenders[name]())
    return found


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def compare(
    title: str,
    unit: str,
    results: Mapping[str, Sequence[float]],
    *,
    baseline: str,
    beside: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Median, middle half and difference to the baseline within each round, per contender.

    ``beside`` holds the baseline as it was measured right beside each contender; without it, the
    baseline of the same round counts.
    """
    beside = beside or {}
    lines = [title, f"{'':28} {'median':>10} {'middle half':>19} {'over baseline':>22}  [{unit}]"]
    for name, values in results.items():
        low, high = quartiles(values)
        extra = differences(values, beside.get(name, results[baseline]))
        extra_low, extra_high = quartiles(extra)
        over = (
            ""
            if name == baseline
            else f"{median(extra):+.2f} ({extra_low:+.2f} .. {extra_high:+.2f})"
        )
        spread = f"{low:.2f} .. {high:.2f}"
        lines.append(f"{name:28} {median(values):10.2f} {spread:>19} {over:>22}")
    return "\n".join(lines)


def differences(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(values, baseline, strict=True)]


def ratios(values: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Of what was measured in the same round."""
    return [a / b for a, b in zip(values, reference, strict=True)]


def ratio_line(name: str, values: Sequence[float], limit: float | None = None) -> str:
    """Median and middle half of ratios, and at most what is asked for."""
    low, high = quartiles(values)
    judged = "" if limit is None else f", at most {limit:g}"
    return f"{name}: {median(values):.2f} x ({low:.2f} .. {high:.2f}){judged}"


def versions(*packages: str) -> str:
    """Of those that are installed."""
    return ", ".join(_version(package) for package in packages)


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"
