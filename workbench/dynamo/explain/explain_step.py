"""What compile would do to the next step of an experiment, determined in a separate process.

Torch's own `torch._dynamo.explain` resets everything that was compiled in the process, and a real
step under ``compile`` would have to be undone. So the next step (model with its weights, loss, one
batch) is packed between two steps, and a fresh process computes it under the given modes while the
recorder listens. In this process nothing is compiled, reset or run. Code that was compiled there is
stored in the same cache on disk, so a switch to the same modes finds it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.dynamo.listen.structured_trace import read_by_tlparse
from workbench.experiment.runtime.step_boundary import NextStep, between_steps
from workbench.modes import ModeSet
from workbench.parallel.transfer.job_pickle import Settings, dump
from workbench.processes import (
    KILL,
    PARENT,
    Group,
    interrupts_deferred,
    python_path,
    start_group,
)
from workbench.records import CompileRecord
from workbench.trust import Seal, private_folder

if TYPE_CHECKING:
    from workbench.experiment import Experiment

PAYLOAD, RECORD, ERROR, LOG = "step.bin", "record.safetensors", "error.json", "log.txt"
BEGUN = "begun.txt"
"""Files of the folder that both processes share; the last one contains how many compilations have
begun."""
PREFIX = "workbench-explain-"
_LAYOUTS = ("ddp", "fsdp")
"""Prefixes of the mode tokens that start ranks: compile works within one rank."""
_GRACE_S = 2.0
_LOOK_S = 0.1
_END_LOOK_S = 0.01


def explain_step(
    experiment: Experiment, modes: str = "", trace: Path | None = None
) -> CompileRecord:
    """Return the record of the next step of ``experiment`` under ``modes``, from another process.

    Args:
        experiment: the experiment, which is not changed; it waits only while its next step is
            copied.
        modes: the modes to explain; ``""`` for its own, with ``compile``.
        trace: an empty folder for torch's raw trace.

    Raises:
        TypeError: a part of the step cannot be sent to another process; the message names it.
        ValueError: the modes are unknown, or do not compile.
        RuntimeError: the step failed there; the message says how.
    """
    wanted = compiling_modes(experiment, modes)
    folder = private_folder(PREFIX)
    try:
        pack_next_step(experiment, wanted, folder)
        with experiment.timings.disturbed():
            run_worker(folder, trace)
        record = record_of(folder, wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    note = (
        f"This is what {wanted} would do: the next step was compiled and run in a process of its "
        "own, from a copy. Nothing of the training was compiled or reset. What this report lists "
        "is found in the cache on disk when the mode is switched on."
    )
    return replace(
        record,
        title=f"{experiment.name}, explained",
        experiment=experiment.id,
        notes=(note, *record.notes, *([] if trace is None else [read_by_tlparse(trace)])),
    )


class StepFailedError(RuntimeError):
    """The next step fails under the modes that were tried."""

    def __init__(self, modes: str, reason: str) -> None:
        super().__init__(f"under {modes} the step fails: {reason}")
        self.reason = reason
        """The error message, without the modes."""


class GivenUp(Exception):  # noqa: N818 - nothing went wrong
    """The caller no longer waits for the answer."""


def compiling_modes(experiment: Experiment, modes: str) -> str:
    """Return ``modes``, or those of ``experiment`` with ``compile``: what one process can explain.

    Raises:
        ValueError: the modes are unknown, or do not compile.
    """
    tokens = [t for t in str(experiment.modeset).split("+") if not t.startswith(_LAYOUTS)]
    own = "+".join(tokens) or "fp32"
    compiled = ModeSet.parse(own, experiment.device).compiled
    wanted = modes or (own if compiled else f"compile+{own}" if own != "fp32" else "compile")
    modeset = ModeSet.parse(wanted, experiment.device)
    if not modeset.compiled:
        raise ValueError(
            f"{str(modeset)!r} compiles nothing, so there is nothing to explain; give modes such "
            "as 'compile' or 'compile:whole+bf16'"
        )
    if modeset.is_remote:
        raise ValueError("one process explains one step: leave ddp and fsdp out of the modes")
    return str(modeset)


def pack_next_step(experiment: Experiment, modes: str, folder: Path) -> None:
    """Copy the next step into ``folder``, at a step boundary.

    Raises:
        TypeError: a part of the step cannot be sent to another process; the message names it.
    """
    caller_settings = Settings.current(experiment.device)
    between_steps(experiment, lambda step: _pack(step, modes, folder, caller_settings))


def _pack(step: NextStep, modes: str, folder: Path, caller_settings: Settings) -> None:
    parts = {"model": step.model, "loss": step.loss, "batch": step.batch}
    settings = {"modes": modes, "device": str(step.device)}
    if step.is_attached:
        step.modes.detach(step.model)
    try:
        dump(folder / PAYLOAD, parts, settings, caller_settings=caller_settings)
    finally:
        if step.is_attached:
            step.modes.attach(step.model)


def run_worker(
    folder: Path, trace: Path | None = None, is_given_up: Callable[[], bool] = lambda: False
) -> None:
    """Run the worker to its end; after an interrupt, nothing of it is left.

    Raises:
        GivenUp: ``is_given_up`` returned True.
    """
    command = [sys.executable, "-m", "workbench.dynamo.explain_program", str(folder)]
    env = {
        **os.environ,
        "PYTHONPATH": python_path(),
        PARENT: str(os.getpid()),
        **Seal.of_this_process().to_hand_on(),
        # compiling in its own threads would start processes that outlive an interrupt
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    if trace is not None:
        env["TORCH_TRACE"] = str(trace)
    group: Group | None = None
    try:
        with (folder / LOG).open("wb") as log, interrupts_deferred():
            group = start_group(command, environment=env, stdout=log, stderr=subprocess.STDOUT)
        while group.alive:
            if is_given_up():
                raise GivenUp
            time.sleep(_LOOK_S)
    finally:
        if group is not None:
            _end(group)


def _end(group: Group) -> None:
    """End the worker and the compilers that it started."""
    for number in (signal.SIGTERM, KILL):
        group.signal(number)
        deadline = time.monotonic() + _GRACE_S
        while group.alive and time.monotonic() < deadline:
            time.sleep(_END_LOOK_S)


def begun_so_far(folder: Path) -> int:
    """Return how many compilations the worker has begun."""
    try:
        return int((folder / BEGUN).read_text(encoding="ascii"))
    except (OSError, ValueError):  # none yet, or the file is being written
        return 0


def record_of(folder: Path, modes: str) -> CompileRecord:
    """Return the record that the worker wrote.

    Raises:
        StepFailedError: the step failed there.
        RuntimeError: the worker was ended; the message says how.
    """
    record = folder / RECORD
    if record.exists():
        return CompileRecord.from_bytes(record.read_bytes())
    report = folder / ERROR
    if report.exists():
        error: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        raise StepFailedError(modes, f"{error['type']}: {error['message']}")
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
    raise RuntimeError(
        f"the process that explains {modes} was ended from outside, by hand or by the system when "
        f"memory ran out; its last output: {last}"
    )
