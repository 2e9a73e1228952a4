"""What compile would do to the next step of an experiment, found out in a process of its own.

Torch's own `torch._dynamo.explain` resets everything that was compiled in the process, and a real
step under ``compile`` would have to be undone. So the next step (model with its weights, loss, one
batch) is packed between two steps, and a fresh process computes it under the modes in question with
the recorder listening. Here nothing is compiled, reset or run. Code that was compiled there lies in
the same cache on disk, so a switch to the same modes finds it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.dynamo.raw_trace import read_by_tlparse
from workbench.experiment.between_steps import NextStep, between_steps
from workbench.modes import ModeSet
from workbench.parallel.payload import Settings, dump
from workbench.processes import interrupts_deferred
from workbench.records import CompileRecord

if TYPE_CHECKING:
    from workbench.experiment import Experiment

PAYLOAD, RECORD, ERROR, LOG = "step.bin", "record.safetensors", "error.json", "log.txt"
BEGUN = "begun.txt"
"""Files of the folder that both processes share; the last says how many compilations have begun."""
PREFIX = "workbench-explain-"
_LAYOUTS = ("ddp", "fsdp")
"""How the tokens begin that start ranks: compile works within one."""
_GRACE_S = 2.0
_LOOK_S = 0.1


def explain_step(
    experiment: Experiment, modes: str = "", trace: Path | None = None
) -> CompileRecord:
    """The record of the next step of ``experiment`` under ``modes``, made by another process.

    Args:
        experiment: stays as it is; it waits only while its next step is copied.
        modes: what to explain; ``""``: its own, with ``compile``.
        trace: an empty folder for torch's raw trace.

    Raises:
        TypeError: a part of the step cannot go to another process; the message names it.
        ValueError: the modes are unknown, or do not compile.
        RuntimeError: the step failed there; the message says how.
    """
    wanted = compiling_modes(experiment, modes)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        pack_next_step(experiment, wanted, folder)
        run_worker(folder, trace)
        record = record_of(folder, wanted)
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


class GivenUp(Exception):  # noqa: N818 - nothing went wrong
    """Nobody waits for the answer any more."""


def compiling_modes(experiment: Experiment, modes: str) -> str:
    """``modes``, or those of ``experiment`` with ``compile``: what one process can explain.

    Raises:
        ValueError: they are unknown, or do not compile.
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
    if modeset.elsewhere:
        raise ValueError("one process explains one step: leave ddp and fsdp out of the modes")
    return str(modeset)


def pack_next_step(experiment: Experiment, modes: str, folder: Path) -> None:
    """Copy the next step into ``folder``, at a step boundary.

    Raises:
        TypeError: a part of the step cannot go to another process; the message names it.
    """
    asked_from = Settings.current(experiment.device)
    between_steps(experiment, lambda step: _pack(step, modes, folder, asked_from))


def _pack(step: NextStep, modes: str, folder: Path, asked_from: Settings) -> None:
    parts = {"model": step.model, "loss": step.loss, "batch": step.batch}
    settings = {"modes": modes, "device": str(step.device)}
    if step.is_attached:
        step.modes.detach(step.model)
    try:
        dump(folder / PAYLOAD, parts, settings, asked_from=asked_from)
    finally:
        if step.is_attached:
            step.modes.attach(step.model)


def run_worker(
    folder: Path, trace: Path | None = None, is_given_up: Callable[[], bool] = lambda: False
) -> None:
    """Run the worker to its end; when this is interrupted, nothing of it is left.

    Raises:
        GivenUp: ``is_given_up`` said so.
    """
    command = [sys.executable, "-m", "workbench.dynamo.explain_worker", str(folder)]
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), root]))
    # compiling in threads of its own would start processes that outlive an interrupt
    env = {**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    if trace is not None:
        env["TORCH_TRACE"] = str(trace)
    process: subprocess.Popen[bytes] | None = None
    try:
        with (folder / LOG).open("wb") as log, interrupts_deferred():
            process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        while process.poll() is None:
            if is_given_up():
                raise GivenUp
            try:  # noqa: SIM105 - an interrupt is to come through
                process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                pass
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker and the compilers that it started."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        return


def begun_so_far(folder: Path) -> int:
    """How many compilations the worker has begun."""
    try:
        return int((folder / BEGUN).read_text(encoding="ascii"))
    except (OSError, ValueError):  # none yet, or it is being written
        return 0


def record_of(folder: Path, modes: str) -> CompileRecord:
    """What the worker found.

    Raises:
        RuntimeError: the step failed there, or the worker was ended; the message says how.
    """
    record = folder / RECORD
    if record.exists():
        return CompileRecord.from_bytes(record.read_bytes())
    told = folder / ERROR
    if told.exists():
        error: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
        raise RuntimeError(f"under {modes} the step fails: {error['type']}: {error['message']}")
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    raise RuntimeError(
        f"the process that explains {modes} was ended from outside, by hand or by the system when "
        f"memory ran out; its last words: {last}"
    )
