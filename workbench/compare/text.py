"""A comparison as text and rows; the tables in a terminal and in a notebook are built from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.modes.effects.badges import duration, factor, power, short_count

if TYPE_CHECKING:
    from workbench.records.compare import ComparedArm, CompareRecord

COLUMNS = (
    "modes", "step", "speed", "samples/s", "first step", "pays back", "memory",
    "launches", "graphs", "max |Δ logit|", "same answer", "Δ loss",
)  # fmt: skip
_NONE = "–"


def models(record: CompareRecord) -> list[str]:
    """Return the names of the models, in order."""
    return list(dict.fromkeys(variant.model for variant in record.arms))


def variants_of(record: CompareRecord, model: str) -> list[ComparedArm]:
    """Return the variants of a model, the baseline first."""
    return [variant for variant in record.arms if variant.model == model]


def row(variant: ComparedArm) -> tuple[str, ...]:
    """Return the cells of a variant, one per column."""
    spread = f" ({duration(variant.step_q1_s)} .. {duration(variant.step_q3_s)})"
    return (
        variant.modes,
        f"{duration(variant.step_s)}{spread}" if _known(variant.step_s) else _NONE,
        speed(variant),
        f"{variant.samples_per_s:,.0f}" if _known(variant.samples_per_s) else _NONE,
        duration(variant.first_step_s) if _known(variant.first_step_s) else _NONE,
        pays_back(variant),
        _bytes(variant.peak_bytes),
        f"{variant.operations:,}" if variant.operations >= 0 else _NONE,
        _graphs(variant),
        _difference(variant.delta_logit),
        f"{variant.agreement:.1%}" if _known(variant.agreement) else _NONE,
        _difference(variant.delta_loss),
    )


def speed(variant: ComparedArm) -> str:
    """Return its speed in words: ``1.4× faster (1.3 .. 1.5)``, ``tie (0.98 .. 1.03)``."""
    if variant.verdict == "baseline":
        return "baseline"
    if not _known(variant.speedup):
        return _NONE
    low, high = variant.speedup_low, variant.speedup_high
    if not _known(low):
        return "too few rounds"
    if variant.verdict == "slower":
        return f"{factor(1 / variant.speedup)} slower ({1 / high:.2f} .. {1 / low:.2f})"
    interval = f"({low:.2f} .. {high:.2f})"
    if variant.verdict == "faster":
        return f"{factor(variant.speedup)} faster {interval}"
    return f"{variant.verdict or 'too few rounds'} {interval}"


def pays_back(variant: ComparedArm) -> str:
    """Return after how many steps a longer first step is paid back."""
    if variant.verdict != "faster" or not _known(variant.break_even):
        return _NONE
    if variant.break_even < 0:
        return "never"
    steps = math.ceil(variant.break_even)
    return f"after {short_count(steps)} steps" if steps else "at once"


def verdict(record: CompareRecord, model: str) -> str:
    """Return one sentence: which combination to train with, as far as the spread supports one."""
    variants = variants_of(record, model)
    base, others = variants[0], variants[1:]
    faster = sorted(
        (variant for variant in others if variant.verdict == "faster"),
        key=lambda variant: -variant.speedup,
    )
    name = f"{model}: " if len(models(record)) > 1 else ""
    if not _known(base.step_s):
        return f"{name}the baseline {base.modes} could not be measured: {base.problem}"
    open_ = [variant.modes for variant in others if variant.verdict == "unclear"]
    if not faster:
        measured = [variant for variant in others if variant.verdict]
        if not measured:
            return f"{name}nothing was measured well enough to compare with {base.modes}"
        words = f"{name}nothing was found to be faster than {base.modes} here"
        if ties := [variant.modes for variant in others if variant.verdict == "tie"]:
            are = "is" if len(ties) == 1 else "are"
            words += f"; {_listed(ties)} {are} as fast within {_percent(record.equal_within)}"
        return f"{words}; the spread leaves {_listed(open_)} open" if open_ else words
    best = faster[0]
    rivals = [
        variant.modes
        for variant in others
        if variant is not best
        and variant.verdict in ("faster", "unclear")
        and variant.speedup_high >= best.speedup_low
    ]
    paid = pays_back(best)
    words = f"{name}{best.modes} is {factor(best.speedup)} faster than {base.modes}"
    if paid.startswith("after"):
        words += f", its first step paid back {paid}"
    if rivals:
        words += f"; {_listed(rivals)} cannot be distinguished from it"
    if _known(best.agreement) and best.agreement < 1:
        words += f"; {best.agreement:.1%} of the answers stay the same"
    return words


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def describe(record: CompareRecord) -> str:
    """Return the comparison as text: verdict, table, problems, what was measured and how."""
    parts = [f"Comparison of modes: {record.title}"]
    for model in models(record):
        parts += ["", verdict(record, model), *_table(variants_of(record, model))]
        parts += [f"  {line}" for line in remarks(variants_of(record, model))]
    return "\n".join([*parts, "", *footing(record)])


def remarks(variants: list[ComparedArm]) -> list[str]:
    """Return remarks on single variants: why one was not measured, what one figure means."""
    return [
        f"{variant.modes}: {text}"
        for variant in variants
        for text in (variant.problem, *variant.notes)
        if text
    ]


def footing(record: CompareRecord) -> list[str]:
    """Return how it was measured, one sentence per line."""
    rounds = f"{record.rounds} round{'' if record.rounds == 1 else 's'}"
    begun = "Cancelled after" if record.cancelled else "Measured in"
    most = int(record.block_round.max(initial=-1)) + 1
    if most > record.rounds + 1 > 1:  # a round that an interrupt cut short does not count
        rounds += f" ({most} where that left a variant unclear)"
    lines = [
        f"{begun} {rounds} on {record.device}, {record.threads} CPU threads per variant, torch "
        f"{record.torch_version}: every variant in its own processes, all from the same weights "
        "and the same order of batches, one block of steps each in random order in every round. "
        "Speed: middle of the rounds' ratios with its 99 % interval; step: median with quartiles.",
        f"A tie is known to differ by less than {_percent(record.equal_within)} (two one-sided "
        "tests at 2.5 %); faster and slower are known to differ; unclear is what the rounds "
        "support neither of.",
    ]
    if record.parity_samples:
        lines.append(
            f"Logits are of {record.parity_samples:,} samples of the {record.parity_on} data, with "
            "the weights at the start; losses of the first steps."
        )
    return [*lines, *record.notes]


def _table(variants: list[ComparedArm]) -> list[str]:
    rows = [COLUMNS, *(row(variant) for variant in variants)]
    widths = [max(len(cells[at]) for cells in rows) for at in range(len(COLUMNS))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    ]


def _graphs(variant: ComparedArm) -> str:
    if variant.graphs <= 0:
        return _NONE
    breaks = (
        f", {variant.breaks} break{'' if variant.breaks == 1 else 's'}" if variant.breaks else ""
    )
    return f"{variant.graphs}{breaks}"


def _difference(value: float) -> str:
    return power(value) if _known(value) else _NONE


def _bytes(value: float) -> str:
    return f"{value / 2**20:,.0f} MiB" if _known(value) else _NONE


def _percent(share: float) -> str:
    """``3 %``, ``0.5 %``."""
    return f"{100 * share:.3g} %"


def _known(value: float) -> bool:
    return not math.isnan(value)
