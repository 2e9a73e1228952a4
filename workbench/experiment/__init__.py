"""Experiments: a model, its data and its optimizer, trained in the background."""

from workbench.experiment.control import RunError
from workbench.experiment.data.data import DataError
from workbench.experiment.data.sampler import EpochSampler
from workbench.experiment.experiment import Experiment, experiments
from workbench.experiment.loop.probe import StepContext, StepProbe
from workbench.experiment.run import Run
from workbench.experiment.runtime.weights import load_weights

__all__ = [
    "DataError",
    "EpochSampler",
    "Experiment",
    "Run",
    "RunError",
    "StepContext",
    "StepProbe",
    "experiments",
    "load_weights",
]
