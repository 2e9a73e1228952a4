"""Looking at one step that was going to run anyway.

A `StepProbe` is asked for with ``experiment.capture(probe)`` and rides along with the next step.
Steps without a probe take a path that never mentions one. A probe must not change what the step
computes, and must drop every tensor and node before `finish` returns its record.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.trust import error_message

if TYPE_CHECKING:
    import torch
    from torch import nn

    from workbench.experiment.training import Training
    from workbench.records import Record


class StepProbe:
    """Base of all probes; every hook is a no-op. Called on the training thread, in this order."""

    kind: ClassVar[str] = ""
    """``graph`` or ``memory``."""

    def before_step(self, context: StepContext) -> None:
        """Before the batch is moved to the device."""

    def before_forward(self) -> None:
        """Modes are applied; forward is next."""

    def after_forward(self, loss: torch.Tensor) -> None:
        """The loss exists, its graph is whole, backward is next."""

    def after_backward(self) -> None:
        """Gradients exist and are unscaled; the optimizer is next."""

    def finish(self) -> Record:
        """The step is over (also after an exception in it): let go of everything, return it."""
        raise NotImplementedError(f"{type(self).__name__} must return its record")


class StepContext:
    """What a probe may look at during its step."""

    def __init__(
        self,
        *,
        name: str,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        batch: Any,
        compiled: bool,
    ) -> None:
        self.name = name
        """The experiment's name."""
        self.step = step
        """The step about to run, counting from 1."""
        self.model = model
        self.optimizer = optimizer
        self.device = device
        self.batch = batch
        self.compiled = compiled
        """Whether any module of the model is compiled: hooks and modes inside a compiled region
        would make Dynamo recompile it."""


# A probe on its way through one step, and the handle that waits for its record.

_LOOK_S = 0.005
_MOST_STEPS = 2
"""Steps begun for one capture: the first may be refused by data that cannot be fetched."""

log = logging.getLogger("workbench")


class CaptureHandle:
    """What ``experiment.capture(probe)`` returns."""

    def __init__(self, run_one_step: Callable[[], bool]) -> None:
        self._run_one_step: Callable[[], bool] | None = run_one_step
        self._done = threading.Event()
        self._record: Record | None = None
        self._problem: str = ""
        self.capture_id: str | None = None
        """Its id in ``experiment.captures`` once it is there."""

    @property
    def done(self) -> bool:
        """Whether there is a record, or never will be."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> Record:
        """The record of the captured step. Runs one step if nothing trains.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: no step has gone through in ``timeout`` seconds.
            RuntimeError: the probe or the step failed; the message says how.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        num_started = 0
        while not self._done.wait(_LOOK_S):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"no step went through in {timeout} s; the capture still waits")
            # a run that was under way may have ended without another step: look again and again
            if self._run_one_step is not None:
                num_started += self._run_one_step()
            if num_started > _MOST_STEPS:
                raise RuntimeError("the step that was to be captured failed; see exp.failure")
        if self._record is None:
            raise RuntimeError(self._problem)
        return self._record

    def deliver(self, record: Record | None, problem: str = "") -> None:
        """Give the record, or say why there is none."""
        self._record, self._problem = record, problem
        self._run_one_step = None
        self._done.set()


class Probing:
    """Calls one probe's hooks; a faulty probe is dropped and the step goes on without it."""

    def __init__(self, probe: StepProbe, handle: CaptureHandle) -> None:
        self.kind = probe.kind
        self.handles = [handle]
        self._probe = probe
        self._started = False
        self._step_failed = False
        self._problem = ""

    def before_step(self, training: Training, batch: Any) -> None:
        """Hook of the same name; makes the context."""
        self._started = True
        context = StepContext(
            name=training.name,
            step=training.step_count + 1,
            model=training.model,
            optimizer=training.optimizer,
            device=training.device,
            batch=batch,
            compiled=training.modeset.compiled,
        )
        self._call("before_step", context)

    def before_forward(self) -> None:
        """Hook of the same name."""
        self._call("before_forward")

    def after_forward(self, loss: torch.Tensor) -> None:
        """Hook of the same name."""
        self._call("after_forward", loss)

    def after_backward(self) -> None:
        """Hook of the same name."""
        self._call("after_backward")

    def step_failed(self) -> None:
        """The step raised: what the probe still has is kept, what it lacks is no fault of its."""
        self._step_failed = True

    def finish(self) -> Record | None:
        """The record, or None when the probe failed or never began."""
        if not self._started:
            return None
        record: Record | None = None
        try:
            record = self._probe.finish()
        except Exception as error:  # noqa: BLE001 - a probe must never end a step
            self._failed("finish", error)
        return None if self._problem else record

    def deliver(self, record: Record | None, capture_id: str | None = None) -> None:
        """Hand the record, or why there is none, to everybody who waits for it."""
        problem = self._problem or "the step failed before it began: nothing was captured"
        for handle in self.handles:
            handle.capture_id = capture_id
            handle.deliver(record, "" if record is not None else problem)

    def _call(self, hook: str, *args: Any) -> None:
        if self._problem:
            return
        try:
            getattr(self._probe, hook)(*args)
        except Exception as error:  # noqa: BLE001 - a probe must never end a step
            self._failed(hook, error)

    def _failed(self, hook: str, error: Exception) -> None:
        level = logging.DEBUG if self._step_failed else logging.ERROR
        log.log(level, "the %s probe failed in %s", self.kind, hook, exc_info=True)
        if not self._problem:
            self._problem = (
                f"the {self.kind} capture failed: {type(error).__name__}: {error_message(error)}"
            )
