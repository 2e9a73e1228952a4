"""Builds a `DtypeRecord` from the sums of a recorder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workbench.dtypes.operation_types import UNKNOWN, Types
from workbench.dtypes.recorder import BACKWARD, FORWARD, Key, Recorder, Sums
from workbench.records.dtypes import DTYPE_KINDS, DtypeRecord
from workbench.torch_private.self_check import notes_of

COMPILED_REGION = "compiled region"
COMPILED = (
    "Compiled regions ran as they always do. What is inside them is not seen, so its types are "
    "unknown here, but for the library functions that it calls; wb.graph opens a compiled node, "
    "and wb.compile_report names the operations of each kernel."
)


@dataclass(frozen=True)
class About:
    """Description of what was recorded."""

    title: str
    model: str = ""
    experiment: str | None = None
    step: int | None = None
    modes: str = ""
    device: str = ""
    notes: Sequence[str] = ()


def build_record(recorder: Recorder, about: About) -> DtypeRecord:
    """Build the record of all that ``recorder`` saw, without references to it."""
    rows = [*recorder.found.items(), *_compiled_rows(recorder)]
    strings: dict[str, int] = {"": 0}

    def row_of(text: str) -> int:
        return strings.setdefault(text, len(strings))

    def texts(values: Sequence[str]) -> npt.NDArray[np.int32]:
        return np.array([row_of(value) for value in values], dtype=np.int32)

    keys = [key for key, _ in rows]
    sums = [one for _, one in rows]
    models = [type(model).__name__ for model in recorder.models]
    columns: dict[str, Any] = {
        "row_phase": np.array([key.phase for key in keys], dtype=np.uint8),
        "row_kind": np.array([_kind(key) for key in keys], dtype=np.uint8),
        "row_op": texts([key.op for key in keys]),
        "row_module": texts([key.module for key in keys]),
        "row_takes": texts([key.types.takes for key in keys]),
        "row_gives": texts([key.types.gives for key in keys]),
        "row_computes": texts([key.types.computes for key in keys]),
        "row_emulated": np.array([key.types.emulated for key in keys], dtype=np.uint8),
        "row_calls": np.array([one.calls for one in sums], dtype=np.int64),
        "row_elements": np.array([one.elements for one in sums], dtype=np.int64),
        "row_flops": np.array([one.flops for one in sums], dtype=np.int64),
    }
    return DtypeRecord(
        title=about.title,
        model=about.model or (models[0] if len(models) == 1 else ""),
        experiment=about.experiment,
        step=about.step,
        modes=about.modes,
        device=about.device or ", ".join(sorted(recorder.devices)),
        torch_version=str(torch.__version__),
        recorded_at=time.time(),
        notes=(*about.notes, *_notes(recorder)),
        strings=tuple(strings),
        **columns,
    )


def _kind(key: Key) -> int:
    if key.op == COMPILED_REGION:
        return DTYPE_KINDS.index("compiled")
    return DTYPE_KINDS.index("casts" if key.types.cast else "computes")


def _compiled_rows(recorder: Recorder) -> list[tuple[Key, Sums]]:
    """Return one row per compiled module and phase: something ran there, with unknown types."""
    nothing = Types(cast=False, takes=UNKNOWN, gives=UNKNOWN, computes=UNKNOWN, emulated=False)
    return [
        (Key(phase, COMPILED_REGION, path, nothing), Sums())
        for phase in (FORWARD, BACKWARD)
        for path in recorder.compiled()
    ]


def _notes(recorder: Recorder) -> list[str]:
    notes = [*notes_of("types"), *([COMPILED] if recorder.compiled() else [])]
    if recorder.uncounted:
        names = ", ".join(sorted(recorder.uncounted))
        notes.append(
            f"torch has no formula for the FLOPs of {names}: shares of FLOPs are without them."
        )
    return notes
