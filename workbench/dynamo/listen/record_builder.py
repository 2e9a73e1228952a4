"""Builds a `CompileRecord` from the compilations that the recorder kept."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from workbench.dynamo.listen.experiment_compilations import Switch
from workbench.dynamo.listen.graph_breaks import Break, Place
from workbench.dynamo.listen.kernels import Kernel, Module, read_module
from workbench.dynamo.listen.recompiles import explain
from workbench.dynamo.listen.recorder import Compilation, Generated, Recorder
from workbench.dynamo.listen.regions import Region
from workbench.records import (
    CompiledKernel,
    CompiledRegion,
    CompileRecord,
    CompileSwitch,
    GraphBreak,
    Recompile,
    SourceLine,
    source_line,
)
from workbench.torch_private.dynamo import operation_names

_LAST_NUMBER = re.compile(r"_\d+$")
_Breaks = dict[tuple[int, Place | None, str], tuple[Break, int]]
_COUNTERS = ("autograd_hits", "autograd_misses", "fx_hits", "fx_misses")


@dataclass(frozen=True)
class About:
    """Description of what was recorded."""

    title: str
    model: str = ""
    experiment: str | None = None
    device: str = ""
    switches: Sequence[Switch] = ()
    notes: Sequence[str] = ()


def build_record(
    compilations: Sequence[Compilation], about: About, recorder: Recorder
) -> CompileRecord:
    """Return all of ``compilations`` as one record.

    Args:
        compilations: oldest first.
        about: title, model and experiment.
        recorder: the recorder that kept them, for what it had to drop or could not read.
    """
    tables = _Tables()
    rows = [tables.row(one) for one in compilations]
    kernels = tuple(tables.kernels)
    return CompileRecord(
        title=about.title,
        model=about.model,
        experiment=about.experiment,
        device=about.device or _device(kernels),
        torch_version=torch.__version__,
        recorded_at=time.time(),
        notes=(*about.notes, *_notes(compilations, recorder)),
        regions=tuple(tables.finished_regions()),
        breaks=tuple(tables.finished_breaks()),
        recompiles=tuple(tables.recompiles),
        kernels=kernels,
        switches=tuple(_switches(about.switches, compilations)),
        strings=tuple(tables.strings),
        sources=tuple(tables.sources),
        **_columns(rows),
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = rows[0] if rows else _EMPTY
    return {f"compilation_{name}": np.array([row[name] for row in rows]) for name in names}


class _Tables:
    """The tables of a record while they grow, one compilation after another."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {"": 0}
        self.sources: dict[SourceLine, int] = {}
        self.recompiles: list[Recompile] = []
        self.kernels: list[CompiledKernel] = []
        self._regions: dict[tuple[str, str, int] | None, tuple[int, Region | None]] = {}
        self._breaks: _Breaks = {}
        self._variants: dict[tuple[int, Place | None], int] = {}
        self._graphs: dict[int, set[Place | None]] = {}
        self._again: dict[int, int] = {}
        self._rows = 0

    def row(self, one: Compilation) -> dict[str, Any]:
        """Return the columns of one compilation; its parts are added to the other tables."""
        region = self._region(one.region)
        key = (region, one.place)
        variant = self._variants[key] = self._variants.get(key, -1) + 1 if one.reasons else 0
        if one.operations:
            self._graphs.setdefault(region, set()).add(one.place)
        for found in one.breaks:
            break_key = (region, found.place, found.reason)
            before, count = self._breaks.get(break_key, (found, 0))
            self._breaks[break_key] = (before, count + 1)
        if one.reasons:
            self._recompiled(one, region)
        launches = self._kernels(one)
        self._rows += 1
        return {
            "region": region,
            "name": self._string(one.code_name),
            "source": self._source(one.code_place),
            "variant": variant,
            "operations": one.operations,
            "guards": one.guards,
            "error": self._string(one.error.split("\n", 1)[0]),
            "started": one.started,
            **_seconds(one.seconds),
            **{name: one.caches[_event(name)] for name in _COUNTERS},
            "forward_launches": launches.get(False, -1),
            "backward_launches": launches.get(True, -1),
        }

    def finished_regions(self) -> Iterable[CompiledRegion]:
        """Return every region with its totals."""
        for row, region in self._regions.values():
            graphs = self._graphs.get(row, ())
            yield CompiledRegion(
                label=region.label if region else "unknown",
                paths=region.paths if region else (),
                cls=region.cls if region else "",
                source=self._source(region.place if region else None),
                num_graphs=len(graphs),
                num_breaks=sum(1 for key in self._breaks if key[0] == row),
                num_recompiles=self._again.get(row, 0),
            )

    def finished_breaks(self) -> Iterable[GraphBreak]:
        """Return every break once, with the number of compilations that met it."""
        for (region, place, _), (found, count) in self._breaks.items():
            yield GraphBreak(
                region=region,
                source=self._source(place),
                reason=found.reason,
                explanation=found.explanation,
                hints=found.hints,
                link=found.link,
                skipped=found.skipped,
                count=count,
            )

    def _region(self, region: Region | None) -> int:
        key = None if region is None else region.key
        row, _ = self._regions.setdefault(key, (len(self._regions), region))
        return row

    def _recompiled(self, one: Compilation, region: int) -> None:
        known = one.region
        parameters = known.parameters if known else ()
        newest = explain(one.reasons[0], parameters, one.receiver)
        self._again[region] = self._again.get(region, 0) + 1
        self.recompiles.append(
            Recompile(
                compilation=self._rows,
                words=newest.words,
                remedy=newest.remedy,
                guard=newest.guard,
                guards=tuple(explain(reason).guard for reason in one.reasons),
                source=self._source(newest.place),
            )
        )

    def _kernels(self, one: Compilation) -> dict[bool, int]:
        """Add the kernels; return the number of launches of the forward and of the backward."""
        launches: dict[bool, int] = {}
        for generated in one.generated:
            if not generated.text:
                continue
            module = _module(generated)
            # DDP makes torch compile a graph in parts, each with a forward and a backward
            launches[module.backward] = launches.get(module.backward, 0) + module.launches
            for kernel in module.kernels:
                made = _kernel(kernel, self._rows, generated, backward=module.backward)
                self.kernels.append(made)
        return launches

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def _source(self, place: Place | None) -> int:
        if place is None:
            return -1
        return self.sources.setdefault(source_line(*place), len(self.sources))


def _kernel(kernel: Kernel, row: int, generated: Generated, *, backward: bool) -> CompiledKernel:
    return CompiledKernel(
        compilation=row,
        backward=backward,
        name=kernel.name,
        language=kernel.language,
        operations=kernel.operations,
        complete=kernel.complete,
        launches=kernel.launches,
        from_cache=generated.from_cache,
        code=kernel.code,
    )


def _module(generated: Generated) -> Module:
    if generated.module is None:
        names, known = operation_names(), _provenance(generated)
        generated.module = read_module(generated.text, names, known)
    return generated.module


def _provenance(generated: Generated) -> dict[str, list[str]]:
    """Return, for each kernel, the operations behind the nodes it was fused from, each once."""
    return {
        kernel: list(dict.fromkeys(_LAST_NUMBER.sub("", node) for node in nodes))
        for kernel, nodes in generated.provenance.items()
    }


def _event(counter: str) -> str:
    """``fx_hits`` -> ``fx_hit``, ``fx_misses`` -> ``fx_miss``, as the recorder counts them."""
    return counter.removesuffix("es") if counter.endswith("misses") else counter.removesuffix("s")


def _seconds(times: Mapping[str, float]) -> dict[str, float]:
    """Convert times that include each other to times that do not."""
    behind = times["autograd"] + times["backward"]
    return {
        "dynamo_s": max(0.0, times["dynamo"] - times["autograd"]),
        "autograd_s": max(0.0, behind - times["inductor"]),
        "inductor_s": max(0.0, times["inductor"] - times["compiler"]),
        "compiler_s": times["compiler"],
    }


_EMPTY = (
    *("region", "name", "source", "variant", "operations", "guards", "error", "started"),
    *("dynamo_s", "autograd_s", "inductor_s", "compiler_s"),
    *_COUNTERS,
    *("forward_launches", "backward_launches"),
)


def _switches(
    switches: Sequence[Switch], compilations: Sequence[Compilation]
) -> Iterable[CompileSwitch]:
    for at, switch in enumerate(switches):
        end = switches[at + 1] if at + 1 < len(switches) else None
        count = sum(_is_after(switch, one) and not _is_after(end, one) for one in compilations)
        yield CompileSwitch(
            step=switch.step,
            modes=switch.modes,
            compiled=switch.compiled,
            num_compilations=count,
        )


def _is_after(switch: Switch | None, one: Compilation) -> bool:
    """Compare by number; what another process compiled has none here, and is compared by time."""
    if switch is None:
        return False
    return one.started >= switch.at if one.number < 0 else one.number >= switch.number


def _device(kernels: Sequence[CompiledKernel]) -> str:
    return "cuda" if any(kernel.language == "Triton" for kernel in kernels) else "cpu"


def _notes(compilations: Sequence[Compilation], recorder: Recorder) -> Iterable[str]:
    if recorder.dropped:
        yield (
            f"{recorder.dropped:,} older compilations of this process are not kept any more: the "
            "newest are."
        )
    without = sum(1 for one in compilations for made in one.generated if not made.text)
    if without:
        yield f"The code of {without:,} older graphs was dropped to bound memory."
    for fault, count in recorder.faults.items():
        yield f"An event of torch's trace could not be read ({fault}), {count} times."
