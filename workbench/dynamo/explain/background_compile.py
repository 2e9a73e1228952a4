"""Switch to ``compile`` without a stall: the next step is compiled in another process meanwhile.

Training continues under its current modes. Once the worker of
`workbench.dynamo.explain.explain_step` has compiled a copy of the next step, the result is stored
in torch's cache on disk, and the modes are switched: the first step then traces the model and loads
what it finds. If the step does not compile, nothing is switched and the run is not affected.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
import weakref
from typing import TYPE_CHECKING, Literal

import torch

from workbench.dynamo.explain.explain_step import (
    PREFIX,
    GivenUp,
    StepFailedError,
    begun_so_far,
    compiling_modes,
    pack_next_step,
    record_of,
    run_worker,
)
from workbench.experiment.report.events import Closed, Event
from workbench.experiment.runtime import at_exit
from workbench.experiment.runtime.step_boundary import refuse_if_closed
from workbench.modes import ModeSet
from workbench.modes.compile.mode import Compile
from workbench.trust import private_folder

if TYPE_CHECKING:
    from workbench.experiment import Experiment

log = logging.getLogger("workbench")

Status = Literal["compiling", "switched", "failed", "cancelled"]

_CONTEXT_BYTES = 2**30
"""Memory in bytes that a second process needs on a GPU before it holds a tensor: about 500 MB, and
a margin."""
_THREAD = "workbench-compile-ahead"
_latest: weakref.WeakKeyDictionary[Experiment, CompileAhead] = weakref.WeakKeyDictionary()


def compile_ahead(experiment: Experiment, modes: str = "") -> CompileAhead:
    """Compile the next step in a process of its own, then switch to it, while training continues.

    The switch itself takes one step, which traces the model and loads compiled code, in a fraction
    of the time that compiling takes. The worker shares the cores with training, and holds one more
    model and batch.

    Args:
        experiment: the experiment, which is not changed until the switch.
        modes: the modes to switch to; ``""`` for the current modes with ``compile``.

    Returns:
        The switch under way: ``.status``, ``.cancel()``, ``.wait()``. An earlier one of the same
        experiment is cancelled. A step that cannot be sent to another process, because something in
        it cannot be pickled or the GPU has no room for two, is compiled in this process, as when
        setting ``exp.modes``; ``.problem`` then says why.

    Raises:
        ValueError: the modes are unknown, or do not compile, or the experiment trains in other
            processes.
        RuntimeError: the experiment is closed.
    """
    refuse_if_closed(experiment)
    if experiment.modeset.is_remote:
        raise ValueError(
            f"{experiment.name} trains in other processes under {experiment.modes}: each of them "
            "compiles for itself; set exp.modes"
        )
    wanted = compiling_modes(experiment, modes)
    cancel_ahead(experiment)
    made = _latest[experiment] = CompileAhead(experiment, wanted)
    return made


def ahead_of(experiment: Experiment) -> CompileAhead | None:
    """Return the latest of ``experiment``, under way or ended; None if its modes changed since."""
    found = _latest.get(experiment)
    return found if found is not None and found.concerns(experiment) else None


def cancel_ahead(experiment: Experiment) -> None:
    """Cancel the switch under way for ``experiment``, and forget how the latest one ended."""
    found = _latest.pop(experiment, None)
    if found is not None:
        found.cancel()


class CompileAhead:
    """A switch that is being prepared while a run continues."""

    def __init__(self, experiment: Experiment, modes: str) -> None:
        self.modes = modes
        """The modes to switch to."""
        self.value = ModeSet.parse(modes, experiment.device)[Compile.name].value
        """The value of ``compile`` among them."""
        self.status: Status = "compiling"
        self.problem = ""
        """Why it failed, or was compiled in this process instead, in a sentence."""
        self._experiment = weakref.ref(experiment)
        self._left = ""
        """The modes to switch from, known once the step is copied."""
        self._started = time.monotonic()
        self._turn = threading.Lock()
        self._folder = private_folder(PREFIX)
        self._unsubscribe = experiment.subscribe(self._on_event)
        self._thread = threading.Thread(target=self._work, name=_THREAD, daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Seconds since it was begun."""
        return time.monotonic() - self._started

    @property
    def compilations(self) -> int:
        """Number of compilations that the worker has begun."""
        return begun_so_far(self._folder)

    def concerns(self, experiment: Experiment) -> bool:
        """Whether the modes are still those to switch from."""
        here = str(experiment.modeset)
        return self.status in ("compiling", "failed") and self._left in ("", here)

    def cancel(self) -> None:
        """End the worker, within two seconds; nothing is switched. No effect once it ended."""
        self._end("cancelled")

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it has ended in any way; returns its status.

        Raises:
            TimeoutError: it has not ended after ``timeout`` seconds; it continues.
            RuntimeError: the step fails under the modes; nothing was switched.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"still compiling {self.modes} after {self.seconds:.0f} s")
        if self.status == "failed":
            raise RuntimeError(self.problem)
        return self.status

    def __repr__(self) -> str:
        return f"{self.modes}, compiled ahead: {self.problem or self.status}"

    # -- its thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            try:
                self._copy_next_step()
            except (TypeError, MemoryError) as error:  # it cannot be pickled, or does not fit twice
                self._switch(f"compiled in this process: {error}")
                return
            with self._live_experiment().timings.disturbed():
                run_worker(self._folder, is_given_up=self._is_given_up)
            record_of(self._folder, self.modes)
            self._switch()
        except GivenUp:
            self._end("cancelled")
        except Exception as error:  # noqa: BLE001 - whatever a model raises is reported
            if self._end("failed", f"{error}; nothing was switched"):
                log.warning("%s", self.problem)
                reason = error.reason if isinstance(error, StepFailedError) else str(error)
                self._report(reason.strip() or type(error).__name__)
        finally:
            self._unsubscribe()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copy_next_step(self) -> None:
        experiment = self._live_experiment()
        _refuse_where_two_have_no_room(experiment.device)
        pack_next_step(experiment, self.modes, self._folder)
        self._left = str(experiment.modeset)

    def _live_experiment(self) -> Experiment:
        experiment = self._experiment()
        if experiment is None:
            raise GivenUp
        return experiment

    def _is_given_up(self) -> bool:
        experiment = self._experiment()
        gone = experiment is None or self._left not in ("", str(experiment.modeset))
        return gone or self.status != "compiling"

    def _switch(self, note: str = "") -> None:
        experiment = self._live_experiment()
        with self._turn:
            if self._is_given_up():
                raise GivenUp
            experiment.modes = self.modes
            self.problem, self.status = note, "switched"

    def _end(self, status: Status, problem: str = "") -> bool:
        """End it with ``status``; return whether it was still compiling."""
        with self._turn:
            if self.status != "compiling":
                return False
            self.problem, self.status = problem, status
            return True

    def _report(self, reason: str) -> None:
        """Report ``reason`` in the status line too: nothing else redraws a paused experiment.

        Only its first line is shown: Dynamo's messages have many lines, all of which are in
        `problem`.
        """
        first, _, _ = reason.partition("\n")
        experiment = self._experiment()
        if experiment is not None:
            with contextlib.suppress(RuntimeError):  # it was closed at this moment
                experiment.say(f"{self.modes} was not switched to: {first.rstrip()}")

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Closed):
            self._end("cancelled")


def _refuse_where_two_have_no_room(device: torch.device) -> None:
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    needed = torch.cuda.max_memory_allocated(device) + _CONTEXT_BYTES
    if free < needed:
        raise MemoryError(
            f"a second process needs about {needed / 2**30:.1f} GiB of {device}, "
            f"{free / 2**30:.1f} GiB are free"
        )


def _cancel_all() -> None:
    for made in list(_latest.values()):
        made.cancel()
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join()


at_exit.register(at_exit.Phase.PREPARATIONS, _cancel_all)
at_exit.register_for_forks(_latest.clear)
