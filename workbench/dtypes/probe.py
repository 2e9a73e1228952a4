"""The types of one training step that was going to run anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from workbench.dtypes.record_builder import About, build_record
from workbench.dtypes.recorder import BACKWARD, FORWARD, UPDATE, Recorder
from workbench.experiment.loop.probe import StepContext, StepProbe

if TYPE_CHECKING:
    import torch

    from workbench.records.dtypes import DtypeRecord


class DtypeProbe(StepProbe):
    """Records the next step; compiled regions run as compiled.

    Args:
        modes: the modes of the experiment, for the record.
    """

    kind: ClassVar[str] = "dtypes"
    feature = "types"

    def __init__(self, modes: str = "") -> None:
        self._modes = modes
        self._context: StepContext | None = None
        self._recorder: Recorder | None = None
        self._entered = False

    def before_step(self, context: StepContext) -> None:
        """Learn the model's paths."""
        self._context = context
        self._recorder = Recorder(context.model)

    def before_forward(self) -> None:
        """Start to record; autocast casts above the dispatcher, so its casts are seen."""
        if self._recorder is not None:
            self._recorder.phase = FORWARD
            self._recorder.__enter__()
            self._entered = True

    def after_forward(self, loss: torch.Tensor) -> None:  # noqa: ARG002 - the hook's signature
        """Enter the backward phase."""
        if self._recorder is not None:
            self._recorder.phase = BACKWARD

    def after_backward(self) -> None:
        """Enter the phase of the optimizer."""
        if self._recorder is not None:
            self._recorder.phase = UPDATE

    def finish(self) -> DtypeRecord:
        """Stop, and return the record.

        Raises:
            RuntimeError: the step ended before its forward began.
        """
        context, recorder, entered = self._context, self._recorder, self._entered
        self._context, self._recorder, self._entered = None, None, False
        if recorder is None or context is None or not entered:
            raise RuntimeError("no types were seen: the step ended before its forward began")
        recorder.__exit__(None, None, None)
        try:
            about = About(
                title=f"{context.name}, step {context.step:,}",
                model=type(context.model).__name__,
                experiment=context.name,
                step=context.step,
                modes=self._modes,
                device=str(context.device),
            )
            return build_record(recorder, about)
        finally:
            recorder.release()
