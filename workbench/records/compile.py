"""What was compiled: regions, the graphs in them, where they broke, what it took and what it made.

Everything here was reported by Dynamo, AOTAutograd and Inductor while they compiled for the user's
own calls; nothing is compiled, or run, for a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from workbench.records.base import F64, I32, Record
from workbench.records.rules import Index, Least
from workbench.records.source import SourceLine

PHASES = ("Dynamo", "AOTAutograd", "Inductor", "compiler")
"""What compiling consists of, in that order: reading the Python, deriving the backward, making
kernels of both, and building those: with g++ for a CPU, with Triton for a GPU."""


@dataclass(frozen=True, kw_only=True)
class CompiledRegion:
    """What one `torch.compile` is about: a module, equal modules that share it, or a function."""

    label: str
    """``layers.0, layers.1 and 10 more (Block)``, ``Net`` or ``scale``."""
    paths: tuple[str, ...]
    """Qualified names of the modules that share the region, ``""`` for the model itself; empty
    where no model of an experiment holds them."""
    cls: str
    """Class of the module; empty for a function."""
    source: Annotated[int, Index("sources", none=True)]
    """Its forward, or the function."""
    num_graphs: Annotated[int, Least(0)]
    """Pieces that it is run in; variants of a piece count once. 0: nothing of it is compiled."""
    num_breaks: Annotated[int, Least(0)]
    num_recompiles: Annotated[int, Least(0)]


@dataclass(frozen=True, kw_only=True)
class GraphBreak:
    """A line at which Dynamo had to leave a graph to Python, or to give a function up."""

    region: Annotated[int, Index("regions")]
    source: Annotated[int, Index("sources", none=True)]
    """The user's line."""
    reason: str
    """``Data-dependent branching``: Dynamo's name for it."""
    explanation: str
    """Dynamo's own, in a sentence or two."""
    hints: tuple[str, ...]
    """What may be done, cheapest first, in Dynamo's words."""
    link: str
    """Page about this kind of break; may be empty."""
    skipped: bool
    """Whether the function could not be continued behind it, so that all of it runs uncompiled."""
    count: Annotated[int, Least(1)]
    """How many compilations met it."""


@dataclass(frozen=True, kw_only=True)
class Recompile:
    """A call for which no variant fitted, so that another was compiled."""

    compilation: Annotated[int, Index("compilation")]
    """What was compiled."""
    words: str
    """What differed from the variant before: ``Dimension 0 of x was 4 and is 5.``"""
    remedy: str
    guard: str
    """The condition that failed, as Dynamo writes it."""
    guards: tuple[str, ...]
    """The same of every variant there was, newest first."""
    source: Annotated[int, Index("sources", none=True)]
    """The user's line that made Dynamo depend on it, where Dynamo knows."""


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A kernel that Inductor wrote, or a library function that it calls."""

    compilation: Annotated[int, Index("compilation")]
    backward: bool
    name: str
    language: str
    """``C++``, ``Triton``, or ``library`` for a call of a function that was there before."""
    operations: tuple[str, ...]
    """The ATen operations that were fused into it (``aten.gelu``), by Inductor's own account."""
    complete: bool
    """Whether these are all: Inductor names ten at most where it keeps no provenance."""
    launches: Annotated[int, Least(0)]
    """How often one pass through the graph calls it."""
    from_cache: bool
    """Whether it was found in the cache on disk, where an earlier compilation had left it."""
    code: str
    """Its source; empty for a library function, and where it was dropped to bound memory."""


@dataclass(frozen=True, kw_only=True)
class CompileSwitch:
    """A training began, or was switched to, computing its steps under these modes."""

    step: Annotated[int, Least(0)]
    """Steps done before."""
    modes: str
    """``compile+bf16``"""
    compiled: bool
    """Whether they include compile."""
    num_compilations: Annotated[int, Least(0)]
    """Until the next switch. 0 under compile: all of it was reused, or no step was done."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CompileRecord(Record):
    """All compilations of an experiment, or of a block of code.

    One row of the table ``compilation`` is one function, or the rest of one behind a graph break,
    compiled for one set of guards: forward, and backward where there was one. Times are wall
    times in seconds and exclude each other.
    """

    schema: ClassVar[str] = "workbench.compile/1"
    tables: ClassVar[tuple[str, ...]] = ("compilation",)

    title: str
    model: str
    """Class name of the model; empty where there is no one model."""
    experiment: str | None
    device: str
    torch_version: str
    recorded_at: float
    """Unix time, seconds."""
    notes: tuple[str, ...]
    strings: tuple[str, ...]
    sources: tuple[SourceLine, ...]
    regions: tuple[CompiledRegion, ...]
    """In the order in which they were first compiled."""
    breaks: tuple[GraphBreak, ...]
    recompiles: tuple[Recompile, ...]
    kernels: tuple[CompiledKernel, ...]
    switches: tuple[CompileSwitch, ...]

    compilation_region: Annotated[I32, Index("regions")]
    compilation_name: Annotated[I32, Index("strings")]
    """``forward``, or ``forward, from line 22 on`` behind a graph break."""
    compilation_source: Annotated[I32, Index("sources", none=True)]
    compilation_variant: Annotated[I32, Least(0)]
    """0 for the first of a piece of code, then 1, 2, ... for its recompiles."""
    compilation_operations: Annotated[I32, Least(0)]
    """Operations in its graph; 0 where there is no graph."""
    compilation_guards: Annotated[I32, Least(0)]
    """Conditions that are checked at every call."""
    compilation_error: Annotated[I32, Index("strings")]
    """Why Dynamo gave it up; empty for most."""
    compilation_started: F64
    """Unix time, seconds."""
    compilation_dynamo_s: Annotated[F64, Least(0)]
    compilation_autograd_s: Annotated[F64, Least(0)]
    compilation_inductor_s: Annotated[F64, Least(0)]
    compilation_compiler_s: Annotated[F64, Least(0)]
    """Waiting for g++ or Triton."""
    compilation_autograd_hits: Annotated[I32, Least(0)]
    """Look-ups in the AOTAutograd cache on disk that found it; likewise below."""
    compilation_autograd_misses: Annotated[I32, Least(0)]
    compilation_fx_hits: Annotated[I32, Least(0)]
    """Of Inductor's cache of FX graphs."""
    compilation_fx_misses: Annotated[I32, Least(0)]
    compilation_forward_launches: Annotated[I32, Least(-1)]
    """Kernels and library functions that one forward calls; -1 where no code is known."""
    compilation_backward_launches: Annotated[I32, Least(-1)]

    @property
    def num_graphs(self) -> int:
        """Pieces that all regions are run in."""
        return sum(region.num_graphs for region in self.regions)

    @property
    def seconds(self) -> tuple[float, float, float, float]:
        """Time by phase, in the order of `PHASES`."""
        return (
            float(self.compilation_dynamo_s.sum()),
            float(self.compilation_autograd_s.sum()),
            float(self.compilation_inductor_s.sum()),
            float(self.compilation_compiler_s.sum()),
        )
