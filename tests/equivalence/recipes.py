"""Recipes: what is trained and how, drawn by Hypothesis, and what a person does meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

from tests.equivalence.losses import LOSSES
from tests.equivalence.models import CLASSES, LENGTH, MODELS, VOCABULARY, WIDTH
from tests.equivalence.optimizers import (
    DENSE,
    NOT_COMPLEX,
    OVER,
    SCHEDULES,
    SPARSE,
)
from tests.equivalence.sources import SOURCES, VALIDATIONS

ACTIONS = (
    "pause",
    "single steps",
    "eval and a look",
    "random numbers",
    "seed",
    "own backward",
    "attention",
    "swap",
    "rate",
    "graph",
    "gradients off",
    "resume",
)
"""What a person does between two steps; `tests.equivalence.ours` does it."""


RESUME = "resume"
"""The process ends, and another one continues from the run directory."""


@dataclass(frozen=True)
class Recipe:
    """Everything that the numbers of a run depend on, and what is done in its course."""

    model: str = "perceptron"
    loss: str = "none given"
    optimizer: str = "sgd"
    over: str = "all"
    schedule: str = ""
    source: str = "arrays"
    precision: str = ""
    clip: float | None = None
    validates: bool = False
    validation: str = "arrays"
    samples: int = 20
    size: int = 8
    epochs: int = 2
    seed: int = 0
    poisoned: bool = False
    """Whether one sample is NaN: the steps that meet it are refused, and left out."""
    actions: tuple[tuple[int, str], ...] = ()
    """After so many steps, what."""
    device: str = "cpu"
    """Where it is trained. Everything is made on the CPU, as a person makes it, and taken there."""

    def script(self) -> str:
        """A program that repeats it."""
        return (
            "from tests.equivalence.check import check\n"
            "from tests.equivalence.recipes import Recipe\n\n"
            f"check({self!r})\n"
        )


def arrays(recipe: Recipe, *, validation: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of ``recipe``."""
    generator = torch.Generator().manual_seed(recipe.seed + 100 + validation)
    count = recipe.samples - 3 if validation else recipe.samples
    classes = torch.randint(0, CLASSES, (count,), generator=generator)
    kind = MODELS[recipe.model].inputs
    if kind == "tokens":
        x = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
        x[:, 0] = classes
    else:
        x = torch.randn(count, WIDTH, generator=generator) + classes[:, None]
        if recipe.model == "float64":
            x = x.double()
        if kind == "signal":
            x = x[:, None]
        if recipe.poisoned and not validation:
            x[recipe.samples // 2] = torch.nan
    labels = LOSSES[recipe.loss].labels(classes)
    if recipe.model == "float64" and labels.is_floating_point():
        labels = labels.double()
    return x, labels


def make_model(recipe: Recipe) -> nn.Module:
    """The model of ``recipe``, with the weights that its seed gives."""
    torch.manual_seed(recipe.seed)
    model = MODELS[recipe.model].make()
    end = LOSSES[recipe.loss].end
    return model if end is None else nn.Sequential(model, end())


def make_loss(recipe: Recipe) -> Any:
    """The loss of ``recipe``."""
    loss = LOSSES[recipe.loss].make()
    if recipe.model == "float64" and isinstance(loss, nn.Module):
        loss.double()
    return loss


def is_possible(recipe: Recipe) -> bool:
    """Whether a plain loop can be written for it at all, and is comparable."""
    asked = (
        _goes_with_optimizer,
        _goes_with_model,
        _goes_with_source,
        _goes_with_schedule,
        _goes_with_actions,
    )
    return all(ask(recipe) for ask in asked)


def _goes_with_optimizer(recipe: Recipe) -> bool:
    model = MODELS[recipe.model]
    if model.is_sparse and (recipe.optimizer not in SPARSE or recipe.clip is not None):
        return False
    if model.is_sparse and (recipe.over != "all" or recipe.loss == "with parameters"):
        return False
    if not model.is_sparse and recipe.optimizer not in DENSE:
        return False
    return not (model.is_complex and recipe.optimizer in NOT_COMPLEX)


def _goes_with_model(recipe: Recipe) -> bool:
    model, loss = MODELS[recipe.model], LOSSES[recipe.loss]
    if recipe.precision not in model.precisions or recipe.precision not in loss.precisions:
        return False
    if model.is_complex and (recipe.clip is not None or recipe.poisoned):
        return False
    if recipe.poisoned and recipe.loss == "probabilities":
        return False  # torch raises for NaN
    if recipe.poisoned and (model.inputs == "tokens" or recipe.precision == "fp16"):
        return False
    if recipe.source == "mappings" and not isinstance(make_model(recipe), nn.Sequential):
        return False  # called by keyword, with the name that `nn.Sequential` has
    last = recipe.samples % recipe.size
    if recipe.source == "distributed sampler":
        last = -(-recipe.samples // 2) % recipe.size
    # a last batch of one before batch norm: a plain loop raises
    return not (recipe.model in ("batch norm", "batch norm without statistics") and last == 1)


def _goes_with_source(recipe: Recipe) -> bool:
    """A loader that is validated on draws where the training's loader does, and else nowhere."""
    if recipe.validation == "arrays":
        return True
    draws = SOURCES[recipe.source].draws
    is_called_by_name = recipe.source == "mappings"
    return draws and recipe.validates and not is_called_by_name


def _goes_with_schedule(recipe: Recipe) -> bool:
    schedule, loss = SCHEDULES.get(recipe.schedule), LOSSES[recipe.loss]
    if schedule is not None:
        if "tensor" in recipe.optimizer:
            return False  # torch's schedulers put floats in the place of some tensors
        if schedule.fed == "accuracy" and not (loss.has_accuracy and recipe.validates):
            return False
        if schedule.fed and (recipe.poisoned or not recipe.validates):
            return False
    return True


def _goes_with_actions(recipe: Recipe) -> bool:
    happens = [name for _, name in recipe.actions]
    if "rate" in happens and recipe.schedule:
        return False
    # what a swap gives to a new model is its parameters and buffers, not what else it keeps
    return not ("swap" in happens and recipe.model in ("state of its own", "lazy", "low rank"))


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Any recipe that a plain loop can be written for."""
    model = draw(st.sampled_from(sorted(MODELS)))
    found = MODELS[model]
    optimizers = sorted(SPARSE if found.is_sparse else DENSE)
    steps = draw(st.lists(st.integers(1, 9), max_size=3, unique=True))
    return Recipe(
        model=model,
        loss=draw(st.sampled_from(sorted(LOSSES))),
        optimizer=draw(st.sampled_from(optimizers)),
        over=draw(st.sampled_from(OVER)),
        schedule=draw(st.sampled_from(["", *sorted(SCHEDULES)])),
        source=draw(st.sampled_from(sorted(SOURCES))),
        precision=draw(st.sampled_from(["", "", "bf16", "fp16"])),
        clip=draw(st.sampled_from([None, 0.1, 1.0])),
        validates=draw(st.booleans()),
        validation=draw(st.sampled_from(["arrays", "arrays", *sorted(VALIDATIONS)])),
        samples=draw(st.integers(10, 26)),
        size=draw(st.sampled_from([4, 5, 8])),
        epochs=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 999)),
        poisoned=draw(st.booleans()) and draw(st.booleans()),
        actions=tuple((step, draw(st.sampled_from(ACTIONS))) for step in sorted(steps)),
    )
