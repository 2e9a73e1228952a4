"""Recorder of torch's structured trace, which keeps what was compiled, as plain facts.

One listener per process is a handler of the trace logger. Torch reports everything to a handler
while it compiles and nothing at any other time, so a step that finds its compiled code costs
nothing. A ``TORCH_TRACE`` of the user's has a handler of its own, and both receive the same events.

A compile id (``3/1``) is reused after `torch.compiler.reset`, so an event belongs to the newest
compilation with its id; several may be under way at once on different threads. Backward may be
compiled later than forward, under the same id, in autograd's thread.

Memory is bounded: at most `MOST_COMPILATIONS` are kept, and `MOST_CODE` characters of generated
code; dropped items are counted.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.dynamo.listen.graph_breaks import Break, Place, read_break, read_reason
from workbench.dynamo.listen.kernels import Module
from workbench.dynamo.listen.regions import Region, region_of
from workbench.experiment.state.user_code import is_own_file
from workbench.torch_private.dynamo import RESUMED, TRACE_LOGGER, Traced, being_compiled, traced

MOST_COMPILATIONS = 1024
MOST_CODE = 32 << 20
_MOST_ITEMS = 64
"""Maximum number of breaks, of generated modules and of failed guards kept per compilation."""
_RESUMED = re.compile(rf"^{RESUMED}(?P<name>.+)_at_(?P<line>\d+)(?:_\d+)?$")
_CACHES = ("fx_graph_cache_", "fx_graph_bundled_cache_", "aotautograd_cache_")
_TIMES = {
    "dynamo": "dynamo_cumulative_compile_time_us",
    "autograd": "aot_autograd_cumulative_compile_time_us",
    "backward": "backward_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "compiler": "triton_compile_time_us",
}
"""Fields of `torch._dynamo.utils.CompilationMetrics`; each includes the ones below it. The last one
counts all waiting for compiled kernels, including those of g++."""


@dataclass
class Generated:
    """One module that Inductor generated."""

    text: str
    from_cache: bool = False
    provenance: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    module: Module | None = None
    """The parsed module, once it was requested."""


@dataclass
class Compilation:
    """One function compiled for one set of guards, as far as torch reported it."""

    number: int
    compile_id: str
    region: Region | None
    place: Place | None
    receiver: str
    """Name of its first argument, ``self`` in a forward."""
    started: float = field(default_factory=time.time)
    running: bool = False
    """Whether Dynamo has reported that it began."""
    operations: int = 0
    guards: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_TIMES, 0.0))
    caches: Counter[str] = field(default_factory=Counter[str])
    breaks: list[Break] = field(default_factory=list[Break])
    reasons: tuple[str, ...] = ()
    generated: list[Generated] = field(default_factory=list[Generated])
    error: str = ""

    @property
    def code_name(self) -> str:
        """The piece of code as a user would call it: ``forward, from line 22 on``."""
        if self.place is None:
            return ""
        file, _, name = self.place
        if is_own_file(file):
            return "forward"
        resumed = _RESUMED.match(name)
        return f"{resumed['name']}, from line {resumed['line']} on" if resumed else name

    @property
    def code_place(self) -> Place | None:
        """Where it is in the user's code: for a region of ours, the forward that it calls."""
        own = self.place is not None and is_own_file(self.place[0])
        return self.region.place if own and self.region is not None else self.place


class Recorder(logging.Handler):
    """Keeps compilations, newest last."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.dropped = 0
        """Number of compilations that are no longer kept."""
        self.faults: Counter[str] = Counter()
        """What could not be read from torch's trace, and how often."""
        self.num_events = 0
        """Number of events so far."""
        self.on_break: list[Callable[[Compilation, Break], None]] = []
        """Called with each break that is kept, on the thread that compiles."""
        self._kept: deque[Compilation] = deque()
        self._newest: dict[str, Compilation] = {}
        self._count = 0
        self._code = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Process one event; an internal error is recorded and never raised to the user."""
        try:
            event = traced(record)
            if event is not None:
                self._take(event)
                self.num_events += 1
        except Exception as error:  # noqa: BLE001 - a private format of torch's: never the user's error
            self.faults[f"{type(error).__name__}: {error}".splitlines()[0][:200]] += 1

    @property
    def count(self) -> int:
        """Number of compilations that were begun so far."""
        return self._count

    def compilations(self, first: int, end: int | None = None) -> list[Compilation]:
        """Return those numbered from ``first`` up to, not including, ``end``, oldest first."""
        self.acquire()
        try:
            kept = list(self._kept)
        finally:
            self.release()
        return [one for one in kept if first <= one.number < (self._count if end is None else end)]

    def _take(self, event: Traced) -> None:
        match event.kind:
            case "dynamo_start":
                self._of(event, new=True).running = True
            case "recompile_reasons":
                self._open(event).reasons = _reasons(event.payload)
            case "dynamo_graph_break_reason":
                self._keep_break(self._of(event), read_break(event.payload))
            case "inductor_output_code":
                self._keep_code(self._of(event), event.payload)
            case "inductor_provenance_tracking_node_mappings":
                _read_provenance(self._of(event), event.payload)
            case "compilation_metrics" | "bwd_compilation_metrics":
                compilation = self._of(event)
                failed = _read_metrics(compilation, event.details)
                known = {broken.reason for broken in compilation.breaks}
                if failed is not None and failed.reason not in known:
                    self._keep_break(compilation, failed)
            case kind if kind.startswith(_CACHES):
                _read_cache(self._of(event), kind)
            case _:
                pass

    def _of(self, event: Traced, *, new: bool = False) -> Compilation:
        """Return the compilation of an event: a new one if it begins or is unknown."""
        found = self._newest.get(event.compile_id)
        if found is None or (new and found.running):
            return self._open(event)
        return found

    def _open(self, event: Traced) -> Compilation:
        compiling = being_compiled()
        code = None if compiling is None else compiling.code
        opened = Compilation(
            number=self._count,
            compile_id=event.compile_id,
            region=None if compiling is None else region_of(compiling),
            place=None if code is None else (code.co_filename, code.co_firstlineno, code.co_name),
            receiver=code.co_varnames[0] if code is not None and code.co_varnames else "",
        )
        self._count += 1
        self._kept.append(opened)
        self._newest[event.compile_id] = opened
        if len(self._kept) > MOST_COMPILATIONS:
            self._drop(self._kept.popleft())
        return opened

    def _drop(self, old: Compilation) -> None:
        self.dropped += 1
        self._code -= sum(len(one.text) for one in old.generated)
        if self._newest.get(old.compile_id) is old:
            del self._newest[old.compile_id]

    def _keep_break(self, compilation: Compilation, broken: Break) -> None:
        if _add(compilation.breaks, broken):
            for call in tuple(self.on_break):
                call(compilation, broken)

    def _keep_code(self, compilation: Compilation, text: str) -> None:
        if not _add(compilation.generated, Generated(text)):
            return
        self._code += len(text)
        for old in self._kept:
            if self._code <= MOST_CODE:
                return
            for one in old.generated:
                self._code -= len(one.text)
                one.text, one.module = "", None


def _add(known: list[Any], item: Any) -> bool:
    """Append if there is room; return whether there was."""
    has_room = len(known) < _MOST_ITEMS
    if has_room:
        known.append(item)
    return has_room


def _reasons(payload: str) -> tuple[str, ...]:
    if not payload.startswith("["):
        return (payload,)
    listed: list[Any] = json.loads(payload)
    return tuple(str(one) for one in listed[:_MOST_ITEMS])


def _read_provenance(compilation: Compilation, payload: str) -> None:
    if not payload or not compilation.generated:
        return
    mappings: dict[str, Any] = json.loads(payload) or {}
    compilation.generated[-1].provenance = {
        str(kernel): [str(node) for node in nodes]
        for kernel, nodes in (mappings.get("cppCodeToPost") or {}).items()
    }


def _read_cache(compilation: Compilation, kind: str) -> None:
    """Count a look-up; a hit is reported after the code that was loaded."""
    name, _, state = kind.rpartition("_")
    cache = "autograd" if name.startswith("aotautograd") else "fx"
    compilation.caches[f"{cache}_{state}"] += 1
    if cache == "fx" and state == "hit" and compilation.generated:
        compilation.generated[-1].from_cache = True


def _read_metrics(compilation: Compilation, metrics: Mapping[str, Any]) -> Break | None:
    """Add the metrics of a forward or backward; return why it was given up, if it was."""
    for name, key in _TIMES.items():
        compilation.seconds[name] += (metrics.get(key) or 0) / 1e6
    if metrics.get("is_forward") is False:
        return None
    compilation.operations = int(metrics.get("graph_op_count") or 0)
    compilation.guards = int(metrics.get("guard_count") or 0)
    if not metrics.get("fail_type"):
        return None
    line, file = metrics.get("fail_user_frame_lineno"), metrics.get("fail_user_frame_filename")
    place = (str(file), int(line), "") if file and line else compilation.place
    failed = read_reason(str(metrics.get("fail_reason") or ""), place, skipped=True)
    compilation.error = f"{metrics['fail_type']}: {failed.reason}"
    return failed


_recorder: Recorder | None = None
_users = 0
_guard = threading.RLock()
"""Reentrant, because a finalizer takes it too, which may run in a thread that holds it."""


def recorder() -> Recorder:
    """Return the only recorder of this process; it listens while there are users (`listen`)."""
    global _recorder  # noqa: PLW0603 - one per process, made on first use
    with _guard:
        if _recorder is None:
            _recorder = Recorder()
        return _recorder


def listen() -> Recorder:
    """Make the recorder listen until `unlisten` has been called as often; returns it."""
    global _users  # noqa: PLW0603 - number of users of the one recorder
    found = recorder()
    with _guard:
        _users += 1
        logging.getLogger(TRACE_LOGGER).addHandler(found)
    return found


def unlisten() -> None:
    """Undo one `listen`."""
    global _users  # noqa: PLW0603 - as above
    with _guard:
        _users -= 1
        if _users == 0 and _recorder is not None:
            logging.getLogger(TRACE_LOGGER).removeHandler(_recorder)
