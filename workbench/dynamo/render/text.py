"""A compile record as text: one line for a cell, or everything as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from workbench.records import PHASES

if TYPE_CHECKING:
    from workbench.records import (
        CompiledKernel,
        CompiledRegion,
        CompileRecord,
        GraphBreak,
        Recompile,
    )

NOTHING = (
    'Nothing was compiled. To compile, set the mode: exp.modes = "compile" for an Experiment, or '
    "call torch.compile(model) inside `with wb.compile_report() as report:`; the first forward "
    "after that compiles. What this process had compiled before is used again without a report."
)
"""Sentence for a record without compilations, if none can have been missed."""
UNSEEN = "No compilation was seen."
"""Sentence if something may have been missed, before the note that says what."""
_MOST_HINTS = 3


def heading(record: CompileRecord) -> str:
    """Return the title: ``Compile report of Net``."""
    return f"Compile report of {record.title}"


def summary(record: CompileRecord) -> str:
    """Return graphs, breaks, recompiles and time in one sentence."""
    if not record.regions:
        return f"{UNSEEN} {record.notes[0]}" if record.notes else NOTHING
    breaks = counted(len(record.breaks), "graph break") if record.breaks else "no breaks"
    parts = [counted(record.num_graphs, "graph"), breaks]
    if record.recompiles:
        parts.append(counted(len(record.recompiles), "recompile"))
    if len(record.regions) > 1:
        parts.insert(0, counted(len(record.regions), "region"))
    return f"{', '.join(parts)}; compiled in {seconds(sum(record.seconds))} ({phases(record)})."


def phases(record: CompileRecord) -> str:
    """Return the times: ``Dynamo 0.4 s, AOTAutograd 0.2 s, Inductor 1.1 s, g++ 9.0 s``."""
    names = phase_names(record)
    times = zip(names, record.seconds, strict=True)
    return ", ".join(f"{name} {seconds(time)}" for name, time in times)


def phase_names(record: CompileRecord) -> tuple[str, ...]:
    """Return `PHASES` with the compiler that this device's kernels are built with."""
    compiler = "Triton" if record.device.startswith("cuda") else "g++"
    return *PHASES[:-1], compiler


def caches(record: CompileRecord) -> str:
    """Return how often the caches on disk had the requested entry; empty if none was queried."""
    found: list[str] = []
    for name, hits, misses in (
        ("AOTAutograd", record.compilation_autograd_hits, record.compilation_autograd_misses),
        ("FX graphs", record.compilation_fx_hits, record.compilation_fx_misses),
    ):
        hit, all_of_them = int(hits.sum()), int(hits.sum() + misses.sum())
        if all_of_them:
            found.append(f"{name} {hit} of {all_of_them}")
    return f"Found in the caches on disk: {', '.join(found)}." if found else ""


def describe(record: CompileRecord) -> str:
    """Return everything except the kernels' source, as lines of text."""
    lines = [f"{heading(record)}: {summary(record)}"]
    if said := caches(record):
        lines.append(said)
    lines += list(switch_lines(record))
    for row, region in enumerate(record.regions):
        lines += ["", *region_lines(record, row, region)]
    if notes := more_notes(record):
        lines += ["", *(f"Note: {note}" for note in notes)]
    return "\n".join(lines)


def more_notes(record: CompileRecord) -> tuple[str, ...]:
    """Return the notes that are not in `summary`."""
    return record.notes if record.regions else record.notes[1:]


def switch_lines(record: CompileRecord) -> Iterator[str]:
    """Yield what was compiled between two switches of modes, if modes were switched."""
    seen = False
    for at, switch in enumerate(record.switches):
        if switch.compiled:
            if switch.num_compilations:
                did = counted(switch.num_compilations, "compilation")
            elif seen:
                did = "nothing compiled: the regions from before are used again"
            else:
                did = "nothing compiled yet"
            seen = seen or switch.num_compilations > 0
            yield f"From step {switch.step:,} with {switch.modes}: {did}."
        elif at and seen:
            yield f"From step {switch.step:,} with {switch.modes}: not compiled."


def region_lines(record: CompileRecord, row: int, region: CompiledRegion) -> Iterator[str]:
    """Yield the lines of one region: its parts, then every break and recompile with its remedy."""
    yield f"{region.label}{_at(record, region.source)}"
    yield f"  {region_summary(record, row)}"
    for broken in record.breaks:
        if broken.region == row:
            yield from _break_lines(record, broken)
    for again, count in recompiles_of(record, row):
        times = f" ({count} times)" if count > 1 else ""
        yield f"  Recompiled{_at(record, again.source)}: {again.words}{times}"
        yield f"    guard: {again.guard}"
        if again.remedy:
            yield f"    do: {again.remedy}"
    for kernel in kernels_of(record, row):
        yield f"  {kernel_line(kernel)}"


def recompiles_of(record: CompileRecord, row: int) -> list[tuple[Recompile, int]]:
    """Return a region's recompiles, the first for each reason, with how often it occurred.

    A region with graph breaks is compiled in pieces, and each is recompiled for the same change.
    """
    counted_by: dict[tuple[str, int], tuple[Recompile, int]] = {}
    for again in record.recompiles:
        if record.compilation_region[again.compilation] == row:
            key = again.words, again.source
            first, count = counted_by.get(key, (again, 0))
            counted_by[key] = first, count + 1
    return list(counted_by.values())


def region_summary(record: CompileRecord, row: int) -> str:
    """``1 graph, no breaks; 9 operations, 41 guards; 3 launches a forward, 5 a backward.``."""
    region = record.regions[row]
    mine = record.compilation_region == row
    first = mine & (record.compilation_variant == 0)
    if not region.num_graphs:
        breaks = f", {counted(region.num_breaks, 'graph break')}" if region.num_breaks else ""
        return f"no graph: all of it runs as Python{breaks}."
    breaks = counted(region.num_breaks, "graph break") if region.num_breaks else "no breaks"
    again = f", {counted(region.num_recompiles, 'recompile')}" if region.num_recompiles else ""
    operations = int(record.compilation_operations[first].sum())
    guards = int(record.compilation_guards[first].sum())
    launched = [
        f"{count} a {name}"
        for name, column in (
            ("forward", record.compilation_forward_launches),
            ("backward", record.compilation_backward_launches),
        )
        if (count := int(np.clip(column[first], 0, None).sum())) or (column[first] >= 0).any()
    ]
    launches = f"; launches: {', '.join(launched)}" if launched else ""
    return (
        f"{counted(region.num_graphs, 'graph')}, {breaks}{again}; "
        f"{counted(operations, 'operation')}, {counted(guards, 'guard')}{launches}."
    )


def kernels_of(record: CompileRecord, row: int) -> list[CompiledKernel]:
    """Return the kernels of a region's first variants; those of its recompiles resemble them."""
    return [
        kernel
        for kernel in record.kernels
        if record.compilation_region[kernel.compilation] == row
        and record.compilation_variant[kernel.compilation] == 0
    ]


def kernel_line(kernel: CompiledKernel) -> str:
    """Return ``backward C++ kernel cpp_fused_sum_1: aten.sum``."""
    what = "library" if kernel.language == "library" else f"{kernel.language} kernel"
    operations = ", ".join(kernel.operations) or "operations unknown"
    more = "" if kernel.complete or not kernel.operations else " and perhaps more"
    times = f", {kernel.launches} times" if kernel.launches > 1 else ""
    cached = " (from the cache on disk)" if kernel.from_cache else ""
    phase = "backward" if kernel.backward else "forward"
    return f"{phase}, {what} {kernel.name}: {operations}{more}{times}{cached}"


def _break_lines(record: CompileRecord, broken: GraphBreak) -> Iterator[str]:
    kind = "Given up" if broken.skipped else "Graph break"
    yield f"  {kind}{_at(record, broken.source)}: {broken.reason}"
    if broken.source >= 0 and (text := record.sources[broken.source].text):
        yield f"    {text}"
    if broken.explanation:
        yield f"    why: {broken.explanation}"
    for hint in broken.hints[:_MOST_HINTS]:
        yield f"    do: {hint}"


def _at(record: CompileRecord, source: int) -> str:
    return f" at {label(record, source)}" if source >= 0 else ""


def label(record: CompileRecord, source: int) -> str:
    """Return ``Cell [3], line 11`` or ``model.py:11``."""
    text = record.sources[source].label
    return text[:1].upper() + text[1:] if record.sources[source].cell is not None else text


def counted(number: int, name: str) -> str:
    """Return ``1 graph``, ``2 graphs``."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def seconds(value: float) -> str:
    """Return ``12.3 s``, ``0.41 s``, ``8 ms``."""
    if value >= 0.9995:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms"
