"""An experiment as the panel shows it: its state, and the chart of its last memory capture."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, cast

from workbench.panel.channel.mode_switch import states_of
from workbench.records import ExperimentState, MemoryChart, MemoryRecord

if TYPE_CHECKING:
    from workbench.experiment import Experiment


def describe(experiment: Experiment) -> ExperimentState:
    """Return everything the panel shows of ``experiment``, apart from curves and charts."""
    return ExperimentState(
        id=experiment.id,
        name=experiment.name,
        model=type(experiment.model).__name__,
        status=experiment.status,
        step=experiment.step_count,
        total_steps=experiment.total_steps,
        steps_per_epoch=experiment.steps_per_epoch,
        epoch=experiment.epoch,
        epochs=experiment.epochs,
        samples_per_s=_rounded(experiment.samples_per_s),
        seconds_left=_rounded(experiment.seconds_left),
        learning_rate=experiment.learning_rate,
        schedule=experiment.schedule,
        loss_name=experiment.loss_name,
        best_accuracy=experiment.best_accuracy,
        started_at=experiment.started_at,
        message=experiment.message,
        facts=experiment.facts(),
        modes=states_of(experiment),
        markers=tuple(experiment.markers),
        failure=experiment.failure,
        newer_model=experiment.newer_model,
        captures=tuple(experiment.captures.infos()),
        carried=tuple(experiment.carried),
        dropped_points=experiment.dropped_points,
        run_path=str(experiment.path),
        device=str(experiment.device),
        notes=tuple(experiment.notes),
    )


def latest_memory_capture(experiment: Experiment) -> str | None:
    """Return the id of the newest memory capture, None before the first."""
    captures = experiment.captures.infos()
    return next((info.id for info in captures if info.kind == "memory"), None)


def chart_of(experiment: Experiment, capture_id: str) -> MemoryChart:
    """Return the panel's chart of a memory capture.

    Raises:
        KeyError: the capture is no longer held.
    """
    from workbench.memory.reading.chart import to_chart

    return to_chart(cast("MemoryRecord", experiment.captures.get(capture_id)))


def kernel_facts() -> dict[str, Any]:
    """Return what this kernel runs on: the top line of the side panel."""
    import psutil
    import torch

    accelerator = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if accelerator else None
    name = torch.cuda.get_device_name() if device is not None and device.type == "cuda" else ""
    return {
        "device": name or (str(device) if device is not None else "CPU"),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _rounded(value: float | None) -> float | None:
    """Round to three digits: a figure that only jitters must not be sent ten times a second."""
    return None if value is None else float(f"{value:.3g}")
