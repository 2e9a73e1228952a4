"""Metrics: what an experiment logs becomes TensorBoard event files, off the training thread."""

from workbench.metrics.observer import TensorBoardObserver, attach
from workbench.metrics.writer import EventWriter

__all__ = ["EventWriter", "TensorBoardObserver", "attach"]
