"""``wb.compile_report``: one function for an experiment, modes, a block of code, a record."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from workbench.dynamo.explain.explain_step import explain_step
from workbench.dynamo.listen.experiment_compilations import (
    compilations_of,
    compilations_of_modes,
    is_watched,
    watch,
    watch_modes,
)
from workbench.dynamo.listen.record_builder import About, build_record
from workbench.dynamo.listen.recorder import listen, recorder, unlisten
from workbench.dynamo.listen.structured_trace import read_by_tlparse, trace_folder, written_to
from workbench.dynamo.render.text import counted
from workbench.dynamo.view import CompileView
from workbench.experiment import Experiment
from workbench.modes import Modes
from workbench.records import CompileRecord
from workbench.records.file import record_at
from workbench.torch_private.dynamo import num_compiled


class CompileRecording(CompileView):
    """Recording of everything that this process compiles in a ``with`` block, on any thread.

    ``.record`` is up to date inside the block and final after it. A backward that runs for the
    first time after the block is compiled there, and is not included.
    """

    def __init__(self, trace: Path | None = None) -> None:
        super().__init__(self._now)
        self._trace = trace
        self._writing = written_to(trace)
        self._first: int | None = None
        self._num_before = 0
        self._final: CompileRecord | None = None

    def __enter__(self) -> Self:
        if self._first is not None:
            raise RuntimeError("this report is recorded already; call compile_report again")
        self._first, self._num_before = listen().count, num_compiled()
        self._writing.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writing.__exit__(None, None, None)
        unlisten()
        record = self._now()
        if self._trace is not None:
            record = replace(record, notes=(*record.notes, read_by_tlparse(self._trace)))
        self._final = record

    def _now(self) -> CompileRecord:
        if self._final is not None:
            return self._final
        if self._first is None:
            raise RuntimeError(
                "nothing is recorded yet: write `with wb.compile_report() as report:` around the "
                "code that compiles, or wb.compile_report(exp) for an Experiment"
            )
        kept = recorder()
        found = kept.compilations(self._first)
        notes = (_before_block(self._num_before),) if self._num_before and not found else ()
        return build_record(found, About("this block", notes=notes), kept)


@overload
def compile_report(*, trace: str | Path | None = None) -> CompileRecording: ...
@overload
def compile_report(
    target: Experiment, *, explain: bool | str = False, trace: str | Path | None = None
) -> CompileView: ...
@overload
def compile_report(target: Modes | CompileRecord | str | Path) -> CompileView: ...
def compile_report(
    target: Any = None, *, explain: bool | str = False, trace: str | Path | None = None
) -> CompileView:
    """Show what Dynamo, AOTAutograd and Inductor did when they compiled.

    The report is read from their own records of the compilations that happened: nothing is
    compiled, reset or run for it, and recording changes neither numbers nor guards.

    Args:
        target: an `Experiment`, for everything that was compiled of its model since it was created;
            a `Modes`, for what is compiled of its models from now on (call this before the first
            forward); nothing, for ``with wb.compile_report() as report:`` around any code; a
            `CompileRecord`, or the path of a saved one.
        explain: for an `Experiment`, whether to compile its next step in a process of its own and
            report that: what compile *would* do. True adds ``compile`` to the current modes; a mode
            string (``"compile:whole,dynamic"``) specifies them. Training continues meanwhile,
            nothing of it is reset, and an interrupt ends the process.
        trace: a new folder for torch's raw trace of a block or of what is explained, and for
            tlparse's pages of it, if tlparse is installed.

    Returns:
        A view with ``.record``, ``.save(path)``, ``.figure()``, ``.kernels()``, ``.source(name)``
        and a rich display: graphs, graph breaks at their lines with reasons and hints, recompiles
        with the guard that failed, time by phase, cache hits, and the generated kernels.

    Raises:
        TypeError: the target is none of these, or cannot be sent to another process to be
            explained.
        ValueError: the modes to explain are unknown, or do not compile; ``trace`` contains files,
            or is requested for what is already compiled.
        RuntimeError: the step failed in the process that explains.
        FileNotFoundError: the path does not exist.
        RecordError: the file does not contain a compile record.
    """
    if explain:
        if not isinstance(target, Experiment):
            raise TypeError(
                f"explain= takes an Experiment, got {type(target).__name__}; of a model in a loop "
                "of your own, run one step in a process of its own under wb.compile_report()"
            )
        folder = None if trace is None else trace_folder(trace)
        explained = explain_step(target, explain if isinstance(explain, str) else "", folder)
        return CompileView(lambda: explained)
    if target is None:
        return CompileRecording(None if trace is None else trace_folder(trace))
    if trace is not None:
        raise ValueError(
            "trace= writes down what is compiled from now on: give it to explain=True, or to a "
            "`with wb.compile_report(trace=folder):` around code that compiles"
        )
    if isinstance(target, Modes):
        return _of_modes(target)
    if isinstance(target, (str, Path)):
        target = record_at(target, CompileRecord, "a compile report")
    if isinstance(target, CompileRecord):
        record = target
        return CompileView(lambda: record)
    if isinstance(target, Experiment):
        record = _of_experiment(target)
        return CompileView(lambda: record)
    raise TypeError(
        f"compile_report() got {type(target).__name__}; it takes an Experiment, a Modes, a "
        "CompileRecord, the path of a saved one, or nothing, as a `with` block around code that "
        "compiles"
    )


def _before_block(count: int) -> str:
    return (
        f"{counted(count, 'graph')} had been compiled by this process before this block began: "
        "code that was compiled then is used again without a report; start before it first runs."
    )


def _before(count: int) -> str:
    return (
        f"At least {counted(count, 'graph')} of its regions had been compiled before; they are "
        "used again without a report."
    )


_LATE = (
    "Nothing was recorded before the first report was requested, so what was compiled until then "
    "is not in it; wb.Experiment records from the start."
)


_BY_RANKS = (
    "Under ddp and fsdp every rank compiles for itself, and all do the same; what rank 0 compiled "
    "is listed."
)


_EARLIER = (
    "Recording began when this report was first requested: what was compiled before is not in it, "
    "so request it before the first forward."
)


def _of_experiment(experiment: Experiment) -> CompileRecord:
    late = experiment.step_count > 0 and not is_watched(experiment)
    found = compilations_of(experiment)
    before = watch(experiment).num_before
    missed = " ".join(filter(None, [_LATE if late else "", _before(before) if before else ""]))
    by_ranks = any(one.region is not None and one.region.where for one in found)
    about = About(
        title=experiment.name,
        model=type(experiment.model).__name__,
        experiment=experiment.id,
        device=str(experiment.device),
        switches=watch(experiment).switches,
        notes=tuple(filter(None, [missed, _BY_RANKS if by_ranks else ""])),
    )
    return build_record(found, about, recorder())


def _of_modes(modes: Modes) -> CompileView:
    before = watch_modes(modes).num_before
    notes = (f"{_EARLIER} {_before(before)}",) if before else ()
    this = weakref.ref(modes)
    last: list[CompileRecord] = []

    def now() -> CompileRecord:
        live = this()
        if live is None:
            return last[0]
        found = compilations_of_modes(live)
        names = ", ".join(type(model).__name__ for model in live.models)
        about = About(title=names or "wb.Modes", model=names, notes=notes)
        last[:] = [build_record(found, about, recorder())]
        return last[0]

    now()
    return CompileView(now)
