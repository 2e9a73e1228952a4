"""A recipe by an experiment, driven as a person drives one."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import workbench as wb
from tests.equivalence.optimizers import SCHEDULES, make_optimizer
from tests.equivalence.plain import NEW_RATE, planned_steps
from tests.equivalence.recipes import RESUME, Recipe, arrays, make_loss, make_model
from tests.equivalence.sources import SOURCES, VALIDATIONS
from tests.equivalence.trace import Trace
from workbench.experiment import Experiment, RunError
from workbench.experiment.checkpoint import folder as checkpoints
from workbench.experiment.loop.step_guard import NonFiniteError
from workbench.experiment.report.events import EpochDone, Event, StepDone


def run(recipe: Recipe, num_steps: int) -> Trace:
    """Train ``recipe``, which takes ``num_steps`` steps, and do its actions meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Trace()
        experiment = _made(recipe, folder, trace)
        try:
            for after, name in recipe.actions:
                if after >= num_steps:
                    break
                if after > experiment.step_count:
                    steps = after - experiment.step_count
                    _drive(
                        experiment,
                        lambda it=experiment, steps=steps: it.run(steps=steps, wait=True),
                    )
                if experiment.step_count >= num_steps:
                    continue
                if name == RESUME:
                    experiment = _resumed(experiment, recipe, folder, trace)
                else:
                    ACTIONS[name](experiment, recipe)
            left = recipe.epochs - experiment._training.cursor.epoch
            if left > 0:
                _drive(experiment, lambda it=experiment: it.run(epochs=left, wait=True))
        finally:
            torch.set_grad_enabled(True)
            experiment.close()
    trace.ended(experiment.optimizer)
    return trace


def _made(recipe: Recipe, folder: str, trace: Trace) -> Experiment:
    model, loss = make_model(recipe), make_loss(recipe)
    of_loss = list(loss.parameters()) if isinstance(loss, nn.Module) else []
    source, data = SOURCES[recipe.source], arrays(recipe)
    schedule = SCHEDULES.get(recipe.schedule)
    validation = VALIDATIONS[recipe.validation]
    experiment = Experiment(
        model,
        source.make(data, recipe.size, recipe.seed),
        validation(arrays(recipe, validation=True), recipe.size, recipe.seed)
        if recipe.validates
        else None,
        loss=loss,
        optimizer=make_optimizer(recipe.optimizer, recipe.over, model, of_loss),
        scheduler=schedule and (lambda optimizer: schedule.make(optimizer, planned_steps(recipe))),
        schedule_every=schedule and schedule.every,
        modes=recipe.precision,
        runs=folder,
        device=recipe.device,
        seed=recipe.seed,
        batch_size=recipe.size,
        shuffle=source.shuffle,
        order=source.order,
        clip_grad_norm=recipe.clip,
        checkpoint_every=2 if any(name == RESUME for _, name in recipe.actions) else None,
    )

    def observe(event: Event) -> None:
        if isinstance(event, StepDone):
            trace.took(event.loss.item(), experiment.model, loss, experiment.optimizer)
        elif isinstance(event, EpochDone) and recipe.validates:
            found: Any = experiment._training.last_validation
            trace.validations.append((found.loss, found.accuracy))

    experiment.subscribe(observe, every_step=True)
    return experiment


def _resumed(experiment: Experiment, recipe: Recipe, folder: str, trace: Trace) -> Experiment:
    """What another kernel makes of the run directory: from its end, or from any checkpoint in it.

    The program that made the experiment is run again, and draws other numbers than it did.
    """
    experiment.close()
    found = checkpoints.found_in(experiment.path / "checkpoints")
    again = _made(recipe, folder, trace)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    if recipe.seed % 2:
        older = found[recipe.seed // 2 % len(found)]
        again.resume_from(experiment.path, older.step, fork=True)
        del trace.losses[older.step :], trace.states[older.step :], trace.rates[older.step :]
        del trace.validations[again._training.cursor.epoch :]
    else:
        again.resume_from(experiment.path)
    torch.randn(3)
    return again


def _drive(experiment: Experiment, begin: Callable[[], object]) -> None:
    """Run, and leave out every batch that is refused because it is not finite."""
    try:
        begin()
    except NonFiniteError:
        while experiment.status == "nan":
            experiment.resume_from_failure()
            try:
                experiment.wait()
            except RunError:
                if experiment.status != "nan":
                    raise


def _pause(experiment: Experiment, _recipe: Recipe) -> None:
    experiment.pause()


def _single_step(experiment: Experiment, _recipe: Recipe) -> None:
    _drive(experiment, lambda: _stepped(experiment))


def _stepped(experiment: Experiment) -> None:
    experiment.step(1)
    try:
        experiment.wait()
    except RunError as error:
        if experiment.status != "nan":
            raise
        raise NonFiniteError("loss", float("nan")) from error


def _look(experiment: Experiment, recipe: Recipe) -> None:
    experiment.model.eval()
    with torch.no_grad():
        experiment.model(arrays(recipe, validation=True)[0].to(recipe.device))


def _draw(_experiment: Experiment, recipe: Recipe) -> None:
    torch.randn(7)
    torch.randn(7, device=recipe.device)


def _seed(_experiment: Experiment, _recipe: Recipe) -> None:
    torch.manual_seed(1234)


def _own_backward(experiment: Experiment, recipe: Recipe) -> None:
    """Gradients of a cell's own, left behind; in eval mode, so that no statistics change."""
    experiment.model.eval()
    with torch.enable_grad():
        output = experiment.model(arrays(recipe, validation=True)[0].to(recipe.device))
        output.square().mean().backward()
    experiment.model.train()


def _attention(experiment: Experiment, recipe: Recipe) -> None:
    """A switch that changes nothing here, but for the forward that measures it."""
    extra = "" if "attention" in experiment.modes else "attention:math"
    experiment.modes = "+".join(filter(None, [extra, recipe.precision]))


def _swap(experiment: Experiment, recipe: Recipe) -> None:
    other = make_model(Recipe(**{**vars(recipe), "seed": recipe.seed + 1}))
    experiment.model = other


def _rate(experiment: Experiment, _recipe: Recipe) -> None:
    experiment.learning_rate = NEW_RATE


def _graph(experiment: Experiment, _recipe: Recipe) -> None:
    wb.graph(experiment)


def _gradients_off(_experiment: Experiment, _recipe: Recipe) -> None:
    torch.set_grad_enabled(False)


ACTIONS: dict[str, Callable[[Experiment, Recipe], None]] = {
    "pause": _pause,
    "single steps": _single_step,
    "eval and a look": _look,
    "random numbers": _draw,
    "seed": _seed,
    "own backward": _own_backward,
    "attention": _attention,
    "swap": _swap,
    "rate": _rate,
    "graph": _graph,
    "gradients off": _gradients_off,
}
