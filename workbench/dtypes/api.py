"""``wb.dtypes``: a single function for an experiment, a block of code, a saved record."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast, overload

from torch import nn

from workbench.dtypes.probe import DtypeProbe
from workbench.dtypes.record_builder import About, build_record
from workbench.dtypes.recorder import Recorder
from workbench.dtypes.view import DtypeView
from workbench.experiment import Experiment
from workbench.records.dtypes import DtypeRecord
from workbench.records.file import record_at
from workbench.torch_private.self_check import notes_of


class DtypeRecording(DtypeView):
    """Recording of every operation of a ``with`` block, on this thread and in backward.

    Args:
        model: the model whose paths name the modules; without it, modules are learned when they
            first run.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__(self._finished)
        self._recorder: Recorder | None = Recorder(model)
        self._entered = False
        self._final: DtypeRecord | None = None

    def __enter__(self) -> Self:
        if self._entered or self._recorder is None:
            raise RuntimeError("these types are recorded already; call wb.dtypes() again")
        notes_of("types")
        self._entered = True
        self._recorder.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        assert recorder is not None, "left without being entered"  # noqa: S101
        recorder.__exit__(kind, error, traceback)
        ended = () if error is None else (f"The block ended with {type(error).__name__}: {error}",)
        models = ", ".join(type(model).__name__ for model in recorder.models)
        self._final = build_record(recorder, About(title=models or "this block", notes=ended))
        recorder.release()
        self._recorder = None

    def _finished(self) -> DtypeRecord:
        if self._final is None:
            raise RuntimeError(
                "nothing is recorded yet: write `with wb.dtypes() as types:` around forward and "
                "backward and look behind the block, or wb.dtypes(exp) for an Experiment"
            )
        return self._final


@overload
def dtypes(target: nn.Module | None = None) -> DtypeRecording: ...
@overload
def dtypes(target: Experiment | DtypeRecord | str | Path) -> DtypeView: ...
def dtypes(target: Any = None) -> DtypeView:
    """Show which operation computed in which element type, in forward, backward and update.

    Types are recorded by the dispatcher while the code runs, after autocast has cast the inputs of
    an operation: the results do not change, and compiled code runs as compiled.

    Args:
        target: an `Experiment`, for its next step (one step is run if it is idle or paused; if its
            run is over, the step is computed and undone); a module or nothing, for
            ``with wb.dtypes(model) as types:`` around your own code; a `DtypeRecord`, or the path
            of a saved one.

    Returns:
        A view with ``.record``, ``.rows(module)``, ``.save(path)``, ``.figure()`` and a rich
        display: for each operation its input types, output types and compute type (tf32 and 8-bit
        products under their own names, with emulation marked), calls, modules, shares of FLOPs and
        elements. What cannot be determined is reported as unknown.

    Raises:
        TypeError: the target is none of these.
        RuntimeError: the step failed.
        FileNotFoundError: the path does not exist.
        RecordError: the file does not contain a record of types.
    """
    if target is None or isinstance(target, nn.Module):
        return DtypeRecording(target)
    if isinstance(target, (str, Path)):
        target = record_at(target, DtypeRecord, "types")
    if isinstance(target, DtypeRecord):
        record = target
        return DtypeView(lambda: record)
    if isinstance(target, Experiment):
        modes = str(target.modeset)
        seen = cast("DtypeRecord", target.capture(DtypeProbe(modes)).wait())
        return DtypeView(lambda: seen)
    raise TypeError(
        f"dtypes() got {type(target).__name__}; it takes an Experiment, a module or nothing (as a "
        "`with` block around code that computes), a DtypeRecord, or the path of a saved one"
    )
