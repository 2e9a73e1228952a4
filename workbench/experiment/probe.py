"""Looking at one step that was going to run anyway.

A `StepProbe` is asked for with ``experiment.capture(probe)`` and rides along with the next step.
Steps without a probe take a path that never mentions one. A probe must not change what the step
computes, and must drop every tensor and node before `finish` returns its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch
    from torch import nn

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
