"""A memory record as text: the peak explained, and what holds it."""

from __future__ import annotations

import math
import unicodedata
from typing import NamedTuple

import numpy as np

from workbench.memory.reading.chart import category_names, peak_label
from workbench.records import CATEGORIES, MemoryRecord

_WIDTH = 48
_MOST_OBSTACLES = 5


class Holder(NamedTuple):
    """A group of blocks live at the peak that share a category, a name or module, and an op."""

    category: str
    what: str
    op: str
    where: str
    num_blocks: int
    num_bytes: int


def describe(record: MemoryRecord, num_holders: int = 10) -> str:
    """Return the printed summary."""
    if is_empty(record):
        return "\n".join([f"{record.title}: {empty_sentence(record)}", *record.notes])
    lines = [peak_sentence(record), "", f"{'at the peak':<18}{'bytes':>16}{'':>12}{'share':>7}"]
    for name, value in category_rows(record):
        share = value / max(record.peak_bytes, 1)
        lines.append(f"  {name:<16}{value:>16,}{format_bytes(value):>12}{share:>7.0%}")
    lines += ["", f"{'held by':<{_WIDTH + 2}}{'blocks':>7}{'bytes':>12}  allocated at"]
    for holder in top_holders(record, num_holders):
        what = shorten(holder.what, _WIDTH)
        size = format_bytes(holder.num_bytes)
        where = shorten(holder.where, 60)
        lines.append(f"  {what:<{_WIDTH}}{holder.num_blocks:>7}{size:>12}  {where}".rstrip())
    lines += refusal_lines(record)
    lines += prediction_lines(record)
    lines += ["", record.basis, *record.notes]
    return "\n".join(lines)


def prediction_lines(record: MemoryRecord) -> list[str]:
    """Describe a prediction: its GPU, the interval of its peak, and why it may be off."""
    if not record.is_predicted:
        return []
    low, high = record.peak_interval
    usable = f" ({format_bytes(record.card_bytes)} usable)" if record.card_bytes >= 0 else ""
    parts = [f"on {gpu_in_words(record.card)}{usable}", f"settings {record.settings or 'default'}"]
    if high >= 0:
        parts.append(f"{format_span(low, high)} reserved at most")
    lines = ["", f"predicted, not measured: {', '.join(parts)}"]
    if record.reasons:
        lines += ["it may be off:", *(f"  - {reason}" for reason in record.reasons)]
    return lines


def refusal_lines(record: MemoryRecord) -> list[str]:
    """Describe the last refused request, the blocks in its way, and what was found to help."""
    if not len(record.oom_event):
        return []
    row = len(record.oom_event) - 1
    blocks = record.obstacle_block[record.obstacle_oom == row]
    lines = ["", refusal_sentence(record, row)]
    if len(blocks):
        sizes = record.block_bytes[blocks]
        order = np.argsort(-sizes, kind="stable")[:_MOST_OBSTACLES].tolist()
        lines.append(
            f"it would have been served without {_plural(len(blocks), 'block')} of "
            f"{format_bytes(int(sizes.sum()))}:"
        )
        for at in order:
            category = category_names()[record.block_category[blocks[at]]]
            what = _what(
                record, int(blocks[at]), category, record.strings[record.block_op[blocks[at]]]
            )
            lines.append(
                f"  {shorten(what, _WIDTH):<{_WIDTH + 7}}{format_bytes(int(sizes[at])):>12}"
            )
    return lines + remedy_lines(record)


def refusal_sentence(record: MemoryRecord, row: int) -> str:
    """Return ``out of memory in forward on L40: 8.0 MiB requested; ...``.

    ``row`` is a row of ``oom_event``.
    """
    event = int(record.oom_event[row])
    # A phase that is ended by a refusal has no event after it.
    phase = next((p.name for p in record.phases if p.start <= event <= p.end), "")
    where = f" in {phase}" if phase else ""
    where += f" on {gpu_in_words(record.card)}" if record.card else ""
    available = [
        f"{format_bytes(int(value))} {what}"
        for value, what in (
            (record.oom_free[row], "free on the device"),
            (record.oom_largest[row], "in the largest free block"),
        )
        if value >= 0
    ]
    requested = f"{format_bytes(int(record.oom_bytes[row]))} requested"
    parts = [requested, ", ".join(available)] if available else [requested]
    return f"out of memory{where}: {'; '.join(parts)}"


def remedy_lines(record: MemoryRecord) -> list[str]:
    """Describe the remedies tried, the cheapest that fits first, with the code to apply each."""
    lines = ["", "what helps, as tried:"] if record.remedies else []
    for remedy in record.remedies:
        peak = f", {format_bytes(remedy.peak_bytes)} reserved" if remedy.peak_bytes >= 0 else ""
        lines.append(f"  {remedy.name}: {'fits' if remedy.fits else 'does not fit'}{peak}")
        lines.append(f"    {remedy.cost} ({remedy.basis})")
        lines += [f"    {line}" for line in remedy.code.splitlines()] if remedy.fits else []
    return lines


def kind_of_peak(record: MemoryRecord) -> str:
    """Return ``peak``, or ``predicted peak``."""
    return "predicted peak" if record.is_predicted else "peak"


def peak_sentence(record: MemoryRecord) -> str:
    """Return ``digits, step 3: peak 3.4 MiB in backward of body.0: activations 61%, ...``."""
    if is_empty(record):
        return empty_sentence(record)
    where = _where_and_of_what(record)
    title = shorten(record.title, 100)
    peak = f"{kind_of_peak(record)} {format_bytes(record.peak_bytes)}"
    reserved = record.reserved_bytes
    held = f" ({format_bytes(reserved)} reserved then)" if reserved >= 0 else ""
    gpu = f", {gpu_in_words(record.card)}" if record.card else ""
    comma = "," if gpu and where.startswith(" ") else ""
    return f"{title}: {peak}{held} on {record.device}{gpu}{comma}{where}."


def _where_and_of_what(record: MemoryRecord) -> str:
    """Return `` in backward of head: activations 61%, ...``; the event if no category is known."""
    label = shorten(peak_label(record), 80)
    where = f"{' in' if record.peak_event >= 0 else ''} {label}" if label else ""
    rows = category_rows(record)
    if [name for name, _ in rows] == ["unknown"]:
        after = f" after event {record.peak_event + 1:,}"
        return where + (after if record.peak_event >= 0 else "")
    whole = max(record.peak_bytes, 1)
    parts = sorted(rows, key=lambda row: -row[1])[:3]
    # what rounds to zero is in the legend, and is left out of the sentence
    shown = [(name, value / whole) for name, value in parts if value / whole > 0.005]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in shown)
    return f"{where}: {shares}" if shares else where


def is_empty(record: MemoryRecord) -> bool:
    """Return whether nothing was allocated or freed: the record has no events."""
    return len(record.event_time_us) == 0


def empty_sentence(record: MemoryRecord) -> str:
    """Return the sentence that replaces the chart of an empty record."""
    held = int(record.block_bytes.sum())
    there = f"; {format_bytes(held)} were there before and stayed" if held else ""
    return f"Nothing was allocated or freed on {record.device}{there}."


def category_rows(record: MemoryRecord) -> list[tuple[str, int]]:
    """Return (category as users see it, bytes at the peak), stacking order, no empty ones."""
    values = record.at_peak()
    rows = zip(category_names(), (values[name] for name in CATEGORIES), strict=True)
    return [(name, value) for name, value in rows if value]


def top_holders(record: MemoryRecord, count: int) -> list[Holder]:
    """Return the largest groups of blocks live at the peak."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for row in live_rows(record, record.peak_event).tolist():
        category = category_names()[record.block_category[row]]
        op, where = record.strings[record.block_op[row]], _where(record, row)
        key = (category, _what(record, row, category, op), op, where)
        group = groups.setdefault(key, [0, 0])
        group[0] += 1
        group[1] += int(record.block_bytes[row])
    holders = [Holder(*key, *group) for key, group in groups.items()]
    return sorted(holders, key=lambda holder: -holder.num_bytes)[:count]


def live_rows(record: MemoryRecord, event: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the rows of the blocks that are live just after ``event``."""
    end = record.block_end
    return np.flatnonzero((record.block_start <= event) & ((end < 0) | (end > event)))


def format_bytes(value: float) -> str:
    """Format bytes as ``3.4 MiB``, ``120 KiB``, ``12 B``: binary units, one decimal below 100."""
    if value < 1024:
        return f"{value:,.0f} B"
    power = min(int(math.log2(value) // 10), 4)
    scaled = value / 1024**power
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{scaled:,.1f} {unit}" if scaled < 100 else f"{scaled:,.0f} {unit}"


def format_span(low: float, high: float) -> str:
    """Format an interval as ``3.4 MiB to 4.0 MiB``; as one number if both are the same."""
    return format_bytes(high) if low == high else f"{format_bytes(low)} to {format_bytes(high)}"


def shorten(text: str, width: int) -> str:
    """Return ``text`` on one line of at most ``width`` characters, ``?`` for control characters."""
    line = " ".join(text[: width * 4].split())
    line = "".join(c if unicodedata.category(c)[0] != "C" else "?" for c in line)
    return line if len(line) <= width else line[: width - 1] + "…"


def gpu_label(gpu: str) -> str:
    """Return ``RTX 4090``; ``8 GiB GPU`` if the name is only a size."""
    name = shorten(gpu, 40)
    return f"{name} GPU".strip() if not name or name[0].isdigit() else name


def gpu_in_words(gpu: str) -> str:
    """Return `gpu_label` as used within a sentence: ``an 8 GiB GPU``."""
    if not gpu:
        return "a GPU without a limit"
    label = gpu_label(gpu)
    if not label[0].isdigit():
        return label
    whole = label.split(".")[0].split(" ")[0]
    article = "an" if whole.startswith("8") or whole in ("11", "18") else "a"
    return f"{article} {label}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _what(record: MemoryRecord, row: int, category: str, op: str) -> str:
    name = record.strings[record.block_name[row]]
    module = record.strings[record.block_module[row]]
    if name and category in ("parameters", "gradients", "optimizer"):
        return f"{category} of {module or name}"
    held = name or " in ".join(part for part in (op, module) if part)
    return f"{category}: {held}" if held else category


def _where(record: MemoryRecord, row: int) -> str:
    source = int(record.block_source[row])
    return record.sources[source].label if source >= 0 else ""
