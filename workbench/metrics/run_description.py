"""Description of a run for TensorBoard: hyper-parameters and a text that says what ran where."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.tensorboard.summary import hparams, text

from workbench.experiment.recipe.learning_rate import leading

if TYPE_CHECKING:
    from workbench.experiment import Experiment

_RESULTS = ("val/accuracy", "val/loss", "train/loss")
_PACKAGES = ("torch-workbench", "torch", "numpy")
_MAX_CELL = 300
"""Maximum number of characters of one table cell: names come from users and may be anything."""


def hyper_parameters(experiment: Experiment) -> dict[str, float | str | bool]:
    """Return plain values that describe how ``experiment`` trains.

    For an optimizer with several parameter groups, these are the settings of the group whose rate
    is `Experiment.lr`.
    """
    found: dict[str, float | str | bool] = {
        "model": type(experiment.model).__name__,
        "loss": experiment.loss_name,
        "modes": experiment.modes,
        "seed": experiment.seed,
        "device": str(experiment.device),
        "optimizer": type(experiment.optimizer).__name__,
    }
    batch_size = getattr(experiment, "batch_size", None)
    if isinstance(batch_size, int):
        found["batch_size"] = batch_size
    groups: list[dict[str, Any]] = experiment.optimizer.param_groups
    group = groups[leading(groups)] if groups else {}
    found |= {
        key: value
        for key, value in group.items()
        if key != "lr" and isinstance(value, (bool, int, float))
    }
    if experiment.lr is not None:
        found["learning_rate"] = experiment.lr
    return found


def hparams_summaries(parameters: dict[str, float | str | bool]) -> tuple[Any, Any, Any]:
    """Return (what may vary, this run's values, its successful end) for the HParams plugin."""
    return hparams(parameters, dict.fromkeys(_RESULTS, 0.0))


def run_rows(experiment: Experiment) -> list[tuple[str, str]]:
    """Return label and value of everything worth knowing about a run."""
    rows = [("Experiment", experiment.name)]
    rows += [(fact.label, fact.value) for fact in experiment.facts()]
    rows += [("Modes", experiment.modes), ("Seed", str(experiment.seed))]
    rows += [("Device", str(experiment.device)), ("Python", platform.python_version())]
    return rows + [(name, _version(name)) for name in _PACKAGES]


def table(rows: list[tuple[str, str]]) -> str:
    """Return rows as a Markdown table whose structure no name can break."""
    lines = ["| | |", "|---|---|"]
    lines += [f"| {_cell(label)} | {_cell(value)} |" for label, value in rows]
    return "\n".join(lines)


def text_summary(tag: str, markdown: str) -> Any:
    """Make a text for TensorBoard's text plugin, which renders Markdown and strips active HTML."""
    return text(tag, markdown)


def _cell(value: str) -> str:
    flat = " ".join(value.split())
    short = flat if len(flat) <= _MAX_CELL else f"{flat[: _MAX_CELL - 1]}…"
    for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;")):
        short = short.replace(char, escaped)
    return short.replace("`", "&#96;").replace("[", "&#91;")


def _version(package: str) -> str:
    """Return a version; torch's has its build (``+cu130``), which its package's may lack."""
    if package == "torch":
        return str(torch.__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"
