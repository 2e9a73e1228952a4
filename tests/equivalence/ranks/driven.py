"""A recipe by an experiment whose modes are switched while it trains, driven as a person does.

A switch that is refused before a process was started is written down with its sentence, and the
person goes on in one process, as the sentence has them do. Whatever is raised once a process was
started is a fault.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
import torch
from torch import nn

from tests.equivalence import ours
from tests.equivalence.ranks.attached import ATTACHED
from tests.equivalence.ranks.barrier import WAITS
from tests.equivalence.ranks.by_hand import Stays, planned_steps
from tests.equivalence.ranks.optimizers import ALL_SCHEDULES, make_optimizer
from tests.equivalence.ranks.recipes import (
    SHARED,
    SWITCH,
    RankRecipe,
    arrays,
    at_home,
    layout_of,
    make_loss,
    make_model,
    toggled_attention,
)
from tests.equivalence.ranks.trace import Trace, look
from tests.equivalence.sources import SOURCES, VALIDATIONS
from workbench.experiment import Experiment, RunError
from workbench.experiment.loop.step_guard import NonFiniteError
from workbench.experiment.report.events import EpochDone, Event, ModesChanged, StepDone
from workbench.parallel.transfer.job_pickle import PackingError


class Counted(Protocol):
    """Whoever starts ranks, and counts the launchers."""

    started: int


@dataclass
class Seen:
    """What came of it."""

    trace: Trace = field(default_factory=Trace)
    modes: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    refusals: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(modes, the sentence) of each switch that was refused before a process was started."""
    notes: list[str] = field(default_factory=list[str])
    stays: int = 0
    """How many times ranks were started."""
    steps_away: int = 0

    @property
    def facts(self) -> Stays:
        return Stays(tuple(self.modes), tuple(self.trace.looks))


def run(recipe: RankRecipe, num_steps: int, workers: Counted) -> Seen:
    """Train ``recipe``, which takes ``num_steps`` steps, and do its actions meanwhile.

    Args:
        recipe: what is trained.
        num_steps: as a plain loop finds.
        workers: counts the launchers that are started.

    Raises:
        Exception: what the experiment raised, where a plain loop does not.
    """
    with tempfile.TemporaryDirectory() as folder:
        driver = _Driver(recipe, folder, workers)
        try:
            driver.drive(num_steps)
        finally:
            torch.set_grad_enabled(True)
            driver.experiment.close()
    return driver.seen


class _Driver:
    def __init__(self, recipe: RankRecipe, folder: str, workers: Counted) -> None:
        self.recipe, self.workers, self.seen = recipe, workers, Seen()
        self.modes = ""
        self._to_do: list[tuple[int, str]] = []
        """What is done while it runs, in turn."""
        self._paused_for, self._paused_at = "", 0
        model, self.loss = make_model(recipe), make_loss(recipe)
        of_loss = list(self.loss.parameters()) if isinstance(self.loss, nn.Module) else []
        optimizer = make_optimizer(recipe.optimizer, recipe.over, model, of_loss)
        self.held = ATTACHED[recipe.attached](model, optimizer)
        source, schedule = SOURCES[recipe.source], ALL_SCHEDULES.get(recipe.schedule)
        held_out = arrays(recipe, validation=True)
        self.experiment = Experiment(
            model,
            source.make(arrays(recipe), recipe.size, recipe.seed),
            VALIDATIONS[recipe.validation](held_out, recipe.size, recipe.seed)
            if recipe.validates
            else None,
            loss=self.loss,
            optimizer=optimizer,
            scheduler=schedule and (lambda given: schedule.make(given, planned_steps(recipe))),
            schedule_every=schedule and schedule.every,
            runs=folder,
            device=recipe.device,
            seed=recipe.seed,
            batch_size=recipe.size,
            shuffle=source.shuffle,
            order=source.order,
            clip_grad_norm=recipe.clip,
        )
        self.experiment.subscribe(self._observe, every_step=True)

    def drive(self, num_steps: int) -> None:
        experiment, recipe = self.experiment, self.recipe
        doing = [(after, name) for after, name in recipe.actions if after < num_steps]
        if recipe.hot:
            self._drive_hot(doing)
        else:
            self._drive_in_turn(doing)
        self._look(last=True)
        self.seen.trace.rates = self._curve("learning_rate")
        if recipe.clip is not None:
            self.seen.trace.norms = self._curve("gradient_norm")
        self.seen.notes = list(experiment.notes)

    def _switch(self, modes: str) -> None:
        try:
            self.experiment.modes = modes
        except ValueError as error:
            self._refused(modes, str(error))
            modes = at_home(modes)
            self.experiment.modes = modes
        if not self.recipe.hot:  # else the event says at which step
            self._now(modes)

    def _now(self, modes: str) -> None:
        self.modes = modes
        self.seen.modes.append((self.experiment.step_count, modes))

    def _refused(self, modes: str, sentence: str) -> None:
        self.seen.refusals.append((modes, sentence))

    def _go(self, begin: Callable[[], object]) -> None:
        """Run to the end of a plan, past batches that are not finite and modes that are refused."""
        experiment, before, steps = self.experiment, self.experiment.step_count, 0
        while True:
            started = self.workers.started
            try:
                begin()
            except Exception as error:
                if experiment.status == "nan":
                    if not isinstance(error, (NonFiniteError, RunError)):
                        raise
                elif layout_of(self.modes) and (
                    self.workers.started == started
                    # while it runs, from ranks that had been started to others
                    or (self.recipe.hot and isinstance(error, PackingError))
                ):
                    failure = experiment.failure
                    self._refused(self.modes, failure.message if failure else str(error))
                    experiment.modes = at_home(self.modes)
                    if not self.recipe.hot:
                        self._now(at_home(self.modes))
                else:
                    raise
            else:
                break
            finally:
                self.seen.stays += self.workers.started - started
                if self.workers.started > started:
                    self.seen.steps_away += experiment.step_count - before
                steps, before = experiment.step_count - before, experiment.step_count
            begin = self._go_on
        stayed = steps > 0 and self.workers.started == started
        if not self.recipe.hot and layout_of(self.modes) and stayed:
            raise AssertionError(f"under {self.modes} no process was started")

    def _go_on(self) -> None:
        self.experiment.resume_from_failure()
        self.experiment.wait()

    def _single_step(self) -> None:
        self.experiment.step(1)
        self.experiment.wait()

    def _look(self, *, last: bool = False) -> None:
        experiment = self.experiment
        kept: Any = experiment._training.random._states
        state = torch.get_rng_state() if kept is None else kept[0]
        found = look(experiment.model, self.loss, experiment.optimizer, self.held(), state)
        if not experiment.step_count:
            return  # before a run has begun, it is nobody's random state
        if self.recipe.source not in SHARED and not last:
            return  # ranks refuse it, and here its epoch ends when the next batch is asked for
        self.seen.trace.looks[experiment.step_count] = found

    def _drive_in_turn(self, doing: list[tuple[int, str]]) -> None:
        """Run so many steps, do something while nothing runs, and so on."""
        experiment = self.experiment
        for after, name in doing:
            if (steps := after - experiment.step_count) > 0:
                self._go(lambda steps=steps: experiment.run(steps=steps, wait=True))
            assert experiment.step_count == after, f"{experiment.step_count} steps, not {after}"
            self._look()
            self._do(name)
        if (left := self.recipe.epochs - experiment._training.cursor.epoch) > 0:
            self._go(lambda: experiment.run(epochs=left, wait=True))

    def _drive_hot(self, doing: list[tuple[int, str]]) -> None:
        """Run to the end, and do things while it runs, or in a pause where they want one."""
        experiment = self.experiment
        while doing and not doing[0][0]:
            self._do(doing.pop(0)[1])
        self._to_do = list(doing)
        begin: Callable[[], object] = lambda: experiment.run(  # noqa: E731
            epochs=self.recipe.epochs, wait=True
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(WAITS, ",".join(str(after) for after, _ in doing))
            while True:
                self._go(begin)
                if experiment.status != "paused":
                    return
                after = self._paused_at
                assert experiment.step_count == after, f"{experiment.step_count} steps, not {after}"
                self._look()
                self._do(self._paused_for)
                begin = self._resume

    def _resume(self) -> None:
        self.experiment.resume()
        self.experiment.wait()

    def _do(self, name: str) -> None:
        """While nothing runs."""
        if name.startswith(SWITCH):
            self._switch(name.removeprefix(SWITCH))
        elif name == "attention":
            self._switch(toggled_attention(self.modes))
        elif name == "single steps":
            self._go(self._single_step)
        else:
            _ACTIONS[name](self.experiment, self.recipe)

    def _do_hot(self, step: int) -> None:
        """On the thread that trains, after ``step``; ranks wait for it before the next one."""
        if not self._to_do:
            return
        after, name = self._to_do[0]
        if step < after - self.experiment._training.is_remote:
            return
        del self._to_do[0]
        if name.startswith(SWITCH):
            self.experiment.modes = name.removeprefix(SWITCH)
        elif name == "attention":
            self.experiment.modes = toggled_attention(self.modes)
        elif name == "rate":
            _ACTIONS[name](self.experiment, self.recipe)
        else:
            self._paused_for, self._paused_at = name, after
            self.experiment.pause()

    def _curve(self, name: str) -> dict[int, float]:
        steps, values = self.experiment.scalars.since(f"train/{name}", 0)
        return dict(zip(steps.tolist(), values.tolist(), strict=True))

    def _observe(self, event: Event) -> None:
        trace = self.seen.trace
        if isinstance(event, StepDone):
            assert event.step == len(trace.losses) + 1, f"step {event.step} is told out of turn"
            trace.losses.append(event.loss.item())
            self._do_hot(event.step)
        elif isinstance(event, ModesChanged) and self.recipe.hot:
            self.modes = event.after
            self.seen.modes.append((event.step, event.after))
        elif isinstance(event, EpochDone) and self.recipe.validates:
            found: Any = self.experiment._training.last_validation
            trace.validations.append((event.step, found.loss, found.accuracy))


def _look_at_it(experiment: Experiment, recipe: RankRecipe) -> None:
    experiment.model.eval()
    with torch.no_grad():
        experiment.model(arrays(recipe, validation=True)[0].to(recipe.device))


def _own_backward(experiment: Experiment, recipe: RankRecipe) -> None:
    """Gradients of a cell's own, left behind; in eval mode, so that no statistics change."""
    experiment.model.eval()
    with torch.enable_grad():
        output = experiment.model(arrays(recipe, validation=True)[0].to(recipe.device))
        output.square().mean().backward()
    experiment.model.train()


def _swap(experiment: Experiment, recipe: RankRecipe) -> None:
    experiment.model = make_model(dataclasses.replace(recipe, seed=recipe.seed + 1))


_ACTIONS: dict[str, Callable[[Experiment, Any], None]] = {
    **ours.ACTIONS,
    "eval and a look": _look_at_it,
    "own backward": _own_backward,
    "swap": _swap,
}
