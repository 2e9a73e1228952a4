"""The process that explains a step: ``python -m workbench.dynamo.explain_program FOLDER``.

It computes one step, forward and backward, under the requested modes, and writes what was compiled.
The step is not applied. The program ends when the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

import torch

from workbench.dynamo.api import compile_report
from workbench.dynamo.explain.explain_step import BEGUN, ERROR, PAYLOAD, RECORD
from workbench.dynamo.listen.recorder import recorder
from workbench.experiment.data.data import split, to_device
from workbench.experiment.loop.step import call
from workbench.experiment.recipe.losses import logits_of
from workbench.modes import Modes
from workbench.parallel.transfer.job_pickle import read
from workbench.processes import is_orphaned, parent

_LOOK_S = 0.5
_ORPHANED = 75


def main(arguments: list[str]) -> int:
    """Explain the step in a folder; returns the exit status."""
    folder = Path(arguments[0])
    watching = threading.Thread(target=_report, args=(folder / BEGUN, parent()), daemon=True)
    watching.start()
    try:
        explain(folder)
    except Exception as error:  # noqa: BLE001 - a model may raise anything; it is reported
        traceback.print_exc()
        reported = {"type": type(error).__name__, "message": str(error)}
        (folder / ERROR).write_text(json.dumps(reported), encoding="utf-8")
        return 1
    return 0


def explain(folder: Path) -> None:
    """Compute the step in ``folder``, and write the record of what was compiled for it."""
    parts, settings = read(folder / PAYLOAD, as_there=True)
    device = torch.device(settings["device"])
    model = parts["model"]
    modes = Modes(settings["modes"])
    modes.prepare(model)
    report = compile_report(modes)
    inputs, targets = split(parts["batch"])
    inputs, targets = to_device(inputs, device), to_device(targets, device)
    with modes.forward():
        logits = logits_of(call(model, inputs))
        parts["loss"].check(logits, targets)
        loss = parts["loss"](logits, targets)
    modes.backward(loss)
    report.save(folder / RECORD)


def _report(path: Path, starter: int) -> None:
    """Write how many compilations have begun while ``starter`` is alive, and end with it."""
    reported = 0
    while not is_orphaned(starter):
        if (count := recorder().count) > reported:
            reported = count
            path.write_text(str(reported), encoding="ascii")
        time.sleep(_LOOK_S)
    os._exit(_ORPHANED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
