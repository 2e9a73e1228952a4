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
    return list(dict.fromkeys(arm.model for arm in record.arms))


def arms_of(record: CompareRecord, model: str) -> list[ComparedArm]:
    """Return the variants of a model, the baseline first."""
    return [arm for arm in record.arms if arm.model == model]


def row(arm: ComparedArm) -> tuple[str, ...]:
    """Return the cells of a variant, one per column."""
    spread = f" ({duration(arm.step_q1_s)} .. {duration(arm.step_q3_s)})"
    return (
        arm.modes,
        f"{duration(arm.step_s)}{spread}" if _known(arm.step_s) else _NONE,
        speed(arm),
        f"{arm.samples_per_s:,.0f}" if _known(arm.samples_per_s) else _NONE,
        duration(arm.first_step_s) if _known(arm.first_step_s) else _NONE,
        pays_back(arm),
        _bytes(arm.peak_bytes),
        f"{arm.operations:,}" if arm.operations >= 0 else _NONE,
        _graphs(arm),
        _difference(arm.delta_logit),
        f"{arm.agreement:.1%}" if _known(arm.agreement) else _NONE,
        _difference(arm.delta_loss),
    )


def speed(arm: ComparedArm) -> str:
    """Return its speed in words: ``1.4× faster (1.3 .. 1.5)``, ``tie (0.98 .. 1.03)``."""
    if arm.verdict == "baseline":
        return "baseline"
    if not _known(arm.speedup):
        return _NONE
    low, high = arm.speedup_low, arm.speedup_high
    if not _known(low):
        return "too few rounds"
    if arm.verdict == "slower":
        return f"{factor(1 / arm.speedup)} slower ({1 / high:.2f} .. {1 / low:.2f})"
    interval = f"({low:.2f} .. {high:.2f})"
    if arm.verdict == "faster":
        return f"{factor(arm.speedup)} faster {interval}"
    return f"{arm.verdict or 'too few rounds'} {interval}"


def pays_back(arm: ComparedArm) -> str:
    """Return after how many steps a longer first step is paid back."""
    if arm.verdict != "faster" or not _known(arm.break_even):
        return _NONE
    if arm.break_even < 0:
        return "never"
    steps = math.ceil(arm.break_even)
    return f"after {short_count(steps)} steps" if steps else "at once"


def verdict(record: CompareRecord, model: str) -> str:
    """Return one sentence: which combination to train with, as far as the spread supports one."""
    arms = arms_of(record, model)
    base, others = arms[0], arms[1:]
    faster = sorted(
        (arm for arm in others if arm.verdict == "faster"), key=lambda arm: -arm.speedup
    )
    name = f"{model}: " if len(models(record)) > 1 else ""
    if not _known(base.step_s):
        return f"{name}the baseline {base.modes} could not be measured: {base.problem}"
    open_ = [arm.modes for arm in others if arm.verdict == "unclear"]
    if not faster:
        measured = [arm for arm in others if arm.verdict]
        if not measured:
            return f"{name}nothing was measured well enough to compare with {base.modes}"
        words = f"{name}nothing was found to be faster than {base.modes} here"
        if ties := [arm.modes for arm in others if arm.verdict == "tie"]:
            are = "is" if len(ties) == 1 else "are"
            words += f"; {_listed(ties)} {are} as fast within {_percent(record.equal_within)}"
        return f"{words}; the spread leaves {_listed(open_)} open" if open_ else words
    best = faster[0]
    rivals = [
        arm.modes
        for arm in others
        if arm is not best
        and arm.verdict in ("faster", "unclear")
        and arm.speedup_high >= best.speedup_low
    ]
    paid = pays_back(best)
    words = f"{name}{best.modes} is {factor(best.speedup)} faster than {base.modes}"
    if paid.startswith("after"):
        words += f", its first step paid back {paid}"
    if rivals:
        words += f"; {_listed(rivals)} cannot be told apart from it"
    if _known(best.agreement) and best.agreement < 1:
        words += f"; {best.agreement:.1%} of the answers stay the same"
    return words


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def describe(record: CompareRecord) -> str:
    """Return the comparison as text: verdict, table, problems, what was measured and how."""
    parts = [f"Comparison of modes: {record.title}"]
    for model in models(record):
        parts += ["", verdict(record, model), *_table(arms_of(record, model))]
        parts += [f"  {line}" for line in remarks(arms_of(record, model))]
    return "\n".join([*parts, "", *footing(record)])


def remarks(arms: list[ComparedArm]) -> list[str]:
    """Return remarks on single variants: why one was not measured, what one figure means."""
    return [f"{arm.modes}: {text}" for arm in arms for text in (arm.problem, *arm.notes) if text]


def footing(record: CompareRecord) -> list[str]:
    """Return how it was measured, one sentence per line."""
    rounds = f"{record.rounds} round{'' if record.rounds == 1 else 's'}"
    begun = "Cancelled after" if record.cancelled else "Measured in"
    most = int(record.block_round.max(initial=-1)) + 1
    if most > record.rounds + 1 > 1:  # a round that an interrupt cut short does not count
        rounds += f" ({most} where that left an arm unclear)"
    lines = [
        f"{begun} {rounds} on {record.device}, {record.threads} CPU threads an arm, torch "
        f"{record.torch_version}: every arm in processes of its own, all from the same weights and "
        "the same order of batches, one block of steps each in random order in every round. Speed: "
        "middle of the rounds' ratios with its 99 % interval; step: median with quartiles.",
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


def _table(arms: list[ComparedArm]) -> list[str]:
    rows = [COLUMNS, *(row(arm) for arm in arms)]
    widths = [max(len(cells[at]) for cells in rows) for at in range(len(COLUMNS))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    ]


def _graphs(arm: ComparedArm) -> str:
    if arm.graphs <= 0:
        return _NONE
    breaks = f", {arm.breaks} break{'' if arm.breaks == 1 else 's'}" if arm.breaks else ""
    return f"{arm.graphs}{breaks}"


def _difference(value: float) -> str:
    return power(value) if _known(value) else _NONE


def _bytes(value: float) -> str:
    return f"{value / 2**20:,.0f} MiB" if _known(value) else _NONE


def _percent(share: float) -> str:
    """``3 %``, ``0.5 %``."""
    return f"{100 * share:.3g} %"


def _known(value: float) -> bool:
    return not math.isnan(value)
