"""A memory record as text: the peak explained, and who holds it."""

from __future__ import annotations

import math
import unicodedata
from typing import NamedTuple

import numpy as np

from workbench.memory.chart import category_names, peak_label
from workbench.records import CATEGORIES, MemoryRecord

_WIDTH = 48


class Holder(NamedTuple):
    """A group of blocks live at the peak that share a category, a name or module, and an op."""

    category: str
    what: str
    op: str
    where: str
    num_blocks: int
    num_bytes: int


def describe(record: MemoryRecord, num_holders: int = 10) -> str:
    """The printed summary."""
    if is_empty(record):
        return f"{record.title}: {empty_sentence(record)}"
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
    lines += ["", record.basis, *record.notes]
    return "\n".join(lines)


def peak_sentence(record: MemoryRecord) -> str:
    """``digits, step 3: peak 3.4 MiB in backward of body.0: activations 61 %, ...``."""
    if is_empty(record):
        return empty_sentence(record)
    label = peak_label(record)
    parts = sorted(category_rows(record), key=lambda row: -row[1])[:3]
    shares = ", ".join(f"{name} {value / max(record.peak_bytes, 1):.0%}" for name, value in parts)
    where = f" in {shorten(label, 80)}" if label else ""
    title = shorten(record.title, 60)
    peak = format_bytes(record.peak_bytes)
    reserved = record.reserved_bytes
    held = f" ({format_bytes(reserved)} reserved)" if reserved >= 0 else ""
    return f"{title}: peak {peak}{held} on {record.device}{where}: {shares}."


def is_empty(record: MemoryRecord) -> bool:
    """Whether nothing was allocated or freed and nothing is known to live."""
    return len(record.event_time_us) == 0


def empty_sentence(record: MemoryRecord) -> str:
    """Said in place of a chart."""
    held = int(record.block_bytes.sum())
    there = f"; {format_bytes(held)} were there before and stayed" if held else ""
    return f"Nothing was allocated or freed on {record.device}{there}."


def category_rows(record: MemoryRecord) -> list[tuple[str, int]]:
    """(category as people read it, bytes at the peak), stacking order, empty ones left out."""
    values = record.at_peak()
    rows = zip(category_names(), (values[name] for name in CATEGORIES), strict=True)
    return [(name, value) for name, value in rows if value]


def top_holders(record: MemoryRecord, count: int) -> list[Holder]:
    """The largest groups of blocks live at the peak."""
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
    """Rows of the blocks that live just after ``event``."""
    end = record.block_end
    return np.flatnonzero((record.block_start <= event) & ((end < 0) | (end > event)))


def format_bytes(value: float) -> str:
    """``3.4 MiB``, ``120 KiB``, ``12 B``: binary units, one decimal below 100."""
    if value < 1024:
        return f"{value:,.0f} B"
    power = min(int(math.log2(value) // 10), 4)
    scaled = value / 1024**power
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{scaled:,.1f} {unit}" if scaled < 100 else f"{scaled:,.0f} {unit}"


def shorten(text: str, width: int) -> str:
    """``text`` on one line in at most ``width`` characters, control characters shown as ``?``."""
    line = " ".join(text[: width * 4].split())
    line = "".join(c if unicodedata.category(c)[0] != "C" else "?" for c in line)
    return line if len(line) <= width else line[: width - 1] + "…"


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
