"""Inspection of one step that was going to run anyway.

A `StepProbe` is requested with ``experiment.capture(probe)`` and attached to the next step. Steps
without a probe take a path that never mentions one. A probe must not change what the step computes,
and must release every tensor and node before `finish` returns its record.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.torch_private.lookup import MissingInTorchError
from workbench.torch_private.self_check import notes_of, self_check
from workbench.trust import error_message

if TYPE_CHECKING:
    import torch
    from torch import nn

    from workbench.experiment.training import Training
    from workbench.records import Record
    from workbench.torch_private.self_check import Feature


class StepProbe:
    """Base class of all probes, with no-op hooks; called on the training thread, in this order."""

    kind: ClassVar[str] = ""
    """``graph`` or ``memory``."""
    feature: ClassVar[Feature | None] = None
    """What it needs of torch's private names (`workbench.torch_private.self_check`); they are
    checked before the step. None: it needs none."""

    def before_step(self, context: StepContext) -> None:
        """Called before the batch is moved to the device."""

    def before_forward(self) -> None:
        """Called after modes are applied, before forward."""

    def after_forward(self, loss: torch.Tensor) -> None:
        """Called when the loss exists and its graph is whole, before backward."""

    def after_backward(self) -> None:
        """Called when gradients exist and are unscaled, before the optimizer."""

    def finish(self) -> Record:
        """Release everything and return the record, after a step (or an exception in it)."""
        raise NotImplementedError(f"{type(self).__name__} must return its record")


class StepContext:
    """What a probe may inspect during its step."""

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
        """Number of the step about to run, counting from 1."""
        self.model = model
        self.optimizer = optimizer
        self.device = device
        self.batch = batch
        self.compiled = compiled
        """Whether any module of the model is compiled: hooks and modes inside a compiled region
        would make Dynamo recompile it."""


# A probe on its way through one step, and the handle that waits for its record.

_POLL_S = 0.005
_MOST_STEPS = 2
"""Maximum number of steps begun for one capture: the first may be refused because its data
cannot be fetched."""

log = logging.getLogger("workbench")


class CaptureHandle:
    """Handle that ``experiment.capture(probe)`` returns."""

    def __init__(self, run_one_step: Callable[[], bool]) -> None:
        self._run_one_step: Callable[[], bool] | None = run_one_step
        self._done = threading.Event()
        self._record: Record | None = None
        self._problem: str = ""
        self.capture_id: str | None = None
        """Id of the record in ``experiment.captures`` once it is there."""

    @property
    def done(self) -> bool:
        """Whether there is a record, or there will never be one."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> Record:
        """Return the record of the captured step. Runs one step if nothing is training.

        Args:
            timeout: maximum time to wait, in seconds.

        Raises:
            TimeoutError: no step has gone through in ``timeout`` seconds.
            RuntimeError: the probe or the step failed; the message says how.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        num_started = 0
        while not self._done.wait(_POLL_S):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(
                    f"no step was completed within {timeout} s; the capture is still pending"
                )
            # a run that was in progress may have ended without another step: check repeatedly
            if self._run_one_step is not None:
                num_started += self._run_one_step()
            if num_started > _MOST_STEPS:
                raise RuntimeError("the step that was to be captured failed; see exp.failure")
        if self._record is None:
            raise RuntimeError(self._problem)
        return self._record

    def deliver(self, record: Record | None, problem: str = "") -> None:
        """Deliver the record, or the reason why there is none."""
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
        """Hook of the same name; creates the context."""
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
        self._check_torch(training)
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
        """Record that the step raised: what the probe has is kept, what it lacks is no fault."""
        self._step_failed = True

    def finish(self) -> Record | None:
        """Return the record, or None if the probe failed or never began."""
        if not self._started:
            return None
        record: Record | None = None
        try:
            record = self._probe.finish()
        except Exception as error:  # noqa: BLE001 - a probe must never end a step
            self._failed("finish", error)
        return None if self._problem else record

    def deliver(self, record: Record | None, capture_id: str | None = None) -> None:
        """Deliver the record, or the reason why there is none, to all who wait for it."""
        problem = self._problem or "the step failed before it began: nothing was captured"
        for handle in self.handles:
            handle.capture_id = capture_id
            handle.deliver(record, "" if record is not None else problem)

    def _check_torch(self, training: Training) -> None:
        """Note in what this torch differs; without what the probe needs, it is dropped."""
        feature = self._probe.feature
        if feature is None:
            return
        for problem in self_check(feature):
            training.note(problem.sentence)
        try:
            notes_of(feature)
        except MissingInTorchError as error:
            self._failed("before_step", error)

    def _call(self, hook: str, *args: Any) -> None:
        if self._problem:
            return
        try:
            getattr(self._probe, hook)(*args)
        except Exception as error:  # noqa: BLE001 - a probe must never end a step
            self._failed(hook, error)

    def _failed(self, hook: str, error: Exception) -> None:
        is_known = self._step_failed or self._problem or isinstance(error, MissingInTorchError)
        level = logging.DEBUG if is_known else logging.ERROR
        log.log(level, "the %s probe failed in %s", self.kind, hook, exc_info=True)
        if not self._problem:
            self._problem = (
                f"the {self.kind} capture failed: {type(error).__name__}: {error_message(error)}"
            )
