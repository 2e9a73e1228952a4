"""The gradient norm of every module over time, computed on one thread and read on another.

On a sampled step (`workbench.experiment.loop.measures` chooses them) one fused kernel computes the
L2 norm of every parameter's gradient; the norms stay on the device as one stacked tensor.
`FlowLog.flush`, on the pulse thread, reads them and sums the squares per module, in double
precision. A parameter without a gradient (``grad is None``) shows that its module did not run,
which takes no read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from workbench.gradient_flow.history import FlowHistory
from workbench.gradient_flow.module_rows import Rows, choose_rows
from workbench.records import GradientFlow
from workbench.torch_private.kernels import norms_of
from workbench.trust import error_message

if TYPE_CHECKING:
    from torch import nn

    from workbench.experiment.experiment import Experiment

ELSEWHERE = "steps that worker processes compute are not sampled"
_MAX_PENDING = 256
_MAX_NOTES = 8

log = logging.getLogger("workbench")


@dataclass(frozen=True, slots=True)
class _Sample:
    step: int
    at: float
    rows: Rows
    present: Sequence[int]
    """Positions in ``rows.parameters`` of the parameters with a gradient."""
    norms: torch.Tensor | None
    """Norms on the device, one for each of ``present``; None if there are none."""


class FlowLog:
    """Every sampled column of one experiment: a queue, and a history of bounded size."""

    def __init__(self) -> None:
        self._pending: deque[_Sample] = deque(maxlen=_MAX_PENDING)
        self._flushing = threading.Lock()
        self._trainable: list[tuple[int, bool]] = []
        self._rows: Rows | None = None
        self._history = FlowHistory()
        self._notes: list[str] = []
        self._last_at = 0.0

    # -- on the training thread -------------------------------------------------------------

    def forget_model(self) -> None:
        """Note that another model is trained now; its rows are chosen at the next sample."""
        self._rows = None

    def take(
        self, model: nn.Module, parameters: Sequence[nn.Parameter], step: int
    ) -> torch.Tensor | None:
        """Sample the current gradients of ``parameters``; reads no value from the device.

        Args:
            model: the model that is trained.
            parameters: the parameters to measure: the model's, each once, then any that only a loss
                or the optimizer has.
            step: number of the step, counted from 1.

        Returns:
            The norm of all gradients together as a scalar tensor on the device; None if there are
            none or they cannot be measured.
        """
        try:
            return self._take(model, parameters, step)
        except Exception as error:  # noqa: BLE001 - gradients of any kind must not end a run
            self._note(
                f"step {step:,} could not be measured: "
                f"{type(error).__name__}: {error_message(error)}"
            )
            return None

    @torch.no_grad()
    def _take(
        self, model: nn.Module, parameters: Sequence[nn.Parameter], step: int
    ) -> torch.Tensor | None:
        # identities are compared too: a module may have been replaced in place
        trainable = [(id(p), p.requires_grad) for p in parameters]
        rows = self._rows
        if rows is None or trainable != self._trainable:
            self._rows = rows = choose_rows(model)
            self._trainable = trainable
        gradients: list[torch.Tensor] = []
        present: list[int] = []
        for position, at in enumerate(rows.parameters):
            gradient = parameters[at].grad
            if gradient is not None:
                gradients.append(gradient)
                present.append(position)
        norms = gradient_norms(gradients) if gradients else None
        self._pending.append(_Sample(step, time.time(), rows, present, norms))
        return None if norms is None else torch.linalg.vector_norm(norms)

    # -- on any thread ----------------------------------------------------------------------

    def flush(self) -> int:
        """Read all pending samples into the history and return their number. From any thread."""
        with self._flushing:
            return self._flush()

    def record(
        self, *, title: str, model: str, device: str, experiment: str | None
    ) -> GradientFlow:
        """A record of everything kept, including pending samples."""
        with self._flushing:
            self._flush()
            rows, steps, norms = self._history.columns()
            return GradientFlow(
                title=title,
                model=model,
                experiment=experiment,
                device=device,
                recorded_at=self._last_at,
                total_sampled=self._history.total,
                notes=(*self._notes, *self._history.notes),
                rows=rows,
                step=steps,
                norm=norms.reshape(-1),
            )

    def note_steps_elsewhere(self) -> None:
        """Note that steps are computed in other processes from now on, where none is sampled."""
        if ELSEWHERE not in self._notes:
            self._notes.append(ELSEWHERE)

    def _flush(self) -> int:
        count = len(self._pending)
        for _ in range(count):
            sample = self._pending.popleft()
            try:
                column = _norms_by_row(sample)
            except RuntimeError as error:  # after a CUDA assert every read raises
                self._note(f"step {sample.step:,} could not be read: {error_message(error)}")
                continue
            self._history.append(sample.step, sample.rows, column)
            self._last_at = sample.at
        return count

    def _note(self, text: str) -> None:
        if len(self._notes) < _MAX_NOTES and text not in self._notes:
            log.warning("gradient flow: %s", text)
            self._notes.append(text)


def gradient_norms(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """L2 norm of each gradient, stacked, on their device (the first gradient's if they differ).

    Raises:
        RuntimeError: a gradient is of a kind that has no norm.
    """
    kinds = {(g.dtype, g.device, g.layout) for g in gradients}
    dtype, device, layout = next(iter(kinds))
    if len(kinds) == 1 and layout == torch.strided and dtype.is_floating_point:
        half = dtype.itemsize < 4
        return torch.stack(norms_of(gradients, 2, dtype=torch.float32 if half else None))
    norms = [torch.linalg.vector_norm(_dense(g)).float() for g in gradients]
    return torch.stack([norm.to(device) for norm in norms])


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return values.float() if values.dtype.itemsize < 4 else values


def _norms_by_row(sample: _Sample) -> npt.NDArray[np.float32]:
    """A norm per row: NaN if nothing in it got a gradient, infinity if one is not finite."""
    count = len(sample.rows.rows)
    if sample.norms is None:
        return np.full(count, np.nan, np.float32)
    norms = np.array(sample.norms.tolist(), np.float64)
    row_of = sample.rows.row_of[np.asarray(sample.present, np.int64)]
    # scaled by the largest, so that no square overflows or underflows
    most = np.zeros(count)
    np.maximum.at(most, row_of, np.where(np.isfinite(norms), norms, 0.0))
    scale = np.where(most > 0, most, 1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        squares = np.bincount(row_of, (norms / scale[row_of]) ** 2, minlength=count)
        total = (scale * np.sqrt(squares)).astype(np.float32)
    total[~np.isfinite(total)] = np.inf
    total[np.bincount(row_of, minlength=count) == 0] = np.nan
    return total


def flow_of(experiment: Experiment) -> FlowLog:
    """The log of an experiment, for subscribers; not part of its public API."""
    return experiment._training.measures.flow  # pyright: ignore[reportPrivateUsage] - the same package


def flow_source(experiment: Experiment) -> Callable[[], GradientFlow]:
    """A function that builds the record, from any thread; it keeps no experiment alive."""
    return partial(
        flow_of(experiment).record,
        title=f"gradient flow of {experiment.name}",
        model=type(experiment.model).__name__,
        device=str(experiment.device),
        experiment=experiment.id,
    )


def gradient_flow(experiment: Experiment) -> GradientFlow:
    """The gradient norm of every module at every sampled step so far, as a record.

    Reads pending norms from the device; may be called at any time, from any thread.
    """
    return flow_source(experiment)()
