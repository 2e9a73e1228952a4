"""What each rank reports about itself: its speed, its memory, and the cost of its collectives.

Every rank keeps one small file, which is written about once a second and replaced atomically; a
process that follows the ranks reads these files. Collectives are those of one early step, as
recorded by torch's profiler: a faster rank waits for the others inside of them, and this wait is
included in their time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import psutil
import torch

from workbench.parallel.exchange.files import REPORT, Folder

_EVERY_S = 1.0
_PROFILED = 4
"""Which step of a session is profiled: the first ones compile, and create the optimizer's state."""
_BACKENDS = ("gloo:", "nccl:")

T = TypeVar("T")


@dataclass(frozen=True)
class Collective:
    """All collectives of one kind in one step of one rank."""

    name: str
    """The backend's own name, such as ``all_gather``."""
    calls: int
    values: int
    """Number of elements that this rank contributed."""
    seconds: float
    """Time from the call to the result, including the wait for other ranks; calls may overlap."""


@dataclass(frozen=True)
class RankReport:
    """State of one rank at a step."""

    rank: int
    step: int
    samples_per_s: float
    """Throughput of this rank's own samples."""
    memory_bytes: int
    """Memory allocated by torch on its GPU; resident memory of its process on the CPU."""
    peak_bytes: int
    """Peak of that since the rank started."""
    collectives: tuple[Collective, ...]


class RankReportWriter:
    """Writes a rank's reports."""

    def __init__(self, folder: Folder, rank: int, device: torch.device) -> None:
        self._folder, self._rank, self._device = folder, rank, device
        self._process = psutil.Process()
        self._steps = self._samples = self._peak = 0
        self._since = time.perf_counter()
        self._collectives: tuple[Collective, ...] = ()

    def profiled(self, step: Callable[[], T]) -> T:
        """Run ``step``; the step that is to be profiled runs under torch's profiler."""
        self._steps += 1
        if self._steps != _PROFILED:
            return step()
        with torch.profiler.profile(record_shapes=True) as profile:
            done = step()
        self._collectives = _collectives(profile)
        self._since, self._samples = time.perf_counter(), 0  # profiling took its time
        return done

    def count(self, step: int, samples: int) -> None:
        """Count step number ``step``, which had this many samples of this rank's own."""
        self._samples += samples
        now = time.perf_counter()
        if now - self._since < _EVERY_S:
            return
        held, peak = self._memory()
        speed = self._samples / (now - self._since)
        self._since, self._samples = now, 0
        report = RankReport(self._rank, step, speed, held, peak, self._collectives)
        with contextlib.suppress(OSError):  # a full disk ends no run by itself
            folder = self._folder
            folder.seal.write_json(folder.report(self._rank), asdict(report), REPORT)

    def _memory(self) -> tuple[int, int]:
        if self._device.type == "cuda":
            held = torch.cuda.memory_allocated(self._device)
            return held, torch.cuda.max_memory_allocated(self._device)
        held = self._process.memory_info().rss
        self._peak = max(self._peak, held)
        return held, self._peak


class Reports:
    """Reads what ranks have reported."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._ranks: tuple[RankReport, ...] = ()
        self._reported_step = -1

    def newest(self) -> tuple[RankReport, ...]:
        """Return one report of every rank that has written any."""
        paths = sorted(self._folder.path.glob("rank-*.report.json"))
        found: list[RankReport] = []
        for path in paths:
            with contextlib.suppress(OSError):  # another user has put something in its place
                found.append(_read(self._folder.seal.read_json(path, REPORT)))
        self._ranks = tuple(sorted(found, key=lambda one: one.rank))
        return self._ranks

    def scalars(self) -> Iterator[tuple[str, int, float]]:
        """Yield (name, step, value) of what is new, for the curves of a run."""
        step = max((one.step for one in self._ranks), default=-1)
        if step <= self._reported_step:
            return
        self._reported_step = step
        for one in self._ranks:
            yield f"parallel/rank {one.rank} samples_per_s", one.step, one.samples_per_s
            yield f"parallel/rank {one.rank} memory_mib", one.step, one.memory_bytes / 2**20

    @property
    def text(self) -> str:
        """All reports in one line of text."""
        ranks = [
            f"rank {one.rank}: {one.samples_per_s:,.0f} samples/s, "
            f"{one.memory_bytes / 2**20:,.0f} MiB"
            for one in self._ranks
        ]
        collectives = self._ranks[0].collectives if self._ranks else ()
        costs = [
            f"{one.calls} {one.name} of {one.values:,} values in {one.seconds * 1e3:.3g} ms"
            for one in collectives
        ]
        return "; ".join([*ranks, *(["a step has " + ", ".join(costs)] if costs else [])])


def _read(found: dict[str, Any]) -> RankReport:
    collectives = tuple(Collective(**one) for one in found.pop("collectives"))
    return RankReport(**found, collectives=collectives)


def _collectives(profile: torch.profiler.profile) -> tuple[Collective, ...]:
    """Read what the profiler has recorded: its own list of events takes a second to create."""
    recorded: Any = profile.profiler
    found: dict[str, list[Any]] = {}
    for event in recorded.kineto_results.events():
        if event.name().startswith(_BACKENDS):
            found.setdefault(event.name().partition(":")[2], []).append(event)
    return tuple(
        Collective(
            name=name,
            calls=len(events),
            values=sum(_elements(event.shapes()) for event in events),
            seconds=sum(event.duration_ns() for event in events) / 1e9,
        )
        for name, events in found.items()
    )


def _elements(shapes: list[Any] | None) -> int:
    total = 0
    for shape in shapes or ():
        if shape and all(isinstance(side, int) for side in shape):
            count = 1
            for side in shape:
                count *= side
            total += count
    return total
