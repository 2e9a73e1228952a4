"""A recipe by hand, in one process: the judge of what ranks do.

It is the loop of PyTorch's documentation over whole batches. Ranks appear in it for two reasons
only. Modes of arithmetic (``bf16``) are switched at the steps at which they were switched. And a
model that sees more than a row at a time (batch norm, by nature everywhere) is computed part by
part, rank 0's part by the model itself and the others' by copies that share its parameters; the
loss is still that of all outputs together, so no weighting of ranks is known here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.equivalence import plain
from tests.equivalence.ranks.attached import ATTACHED, Held
from tests.equivalence.ranks.models import MODELS
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
    precision_of,
)
from tests.equivalence.ranks.trace import Trace, look
from tests.equivalence.sources import SOURCES, VALIDATIONS

_STAND_IN = 2
"""Rows of a batch for a rank without any of its own."""
_ROUNDING = {"": {torch.float32: 1.2e-7, torch.float64: 2.2e-16}, "bf16": 4e-3, "fp16": 5e-4}


@dataclass(frozen=True)
class Stays:
    """What an experiment did when: facts that the judge cannot know of itself."""

    modes: tuple[tuple[int, str], ...] = ()
    """(steps done before, modes from then on)"""
    looks: tuple[int, ...] = ()
    """Numbers of steps after which it was home, and is compared; ranks begin anew there."""

    @classmethod
    def planned(cls, recipe: RankRecipe) -> Stays:
        """Without ranks, and looked at as the recipe has its actions."""
        found = tuple((after, at_home(modes)) for after, modes in recipe.switches)
        return cls(found, tuple(after for after, _ in recipe.actions))

    @property
    def begun(self) -> set[int]:
        """Numbers of steps after which ranks begin anew, if they train on."""
        return {*self.looks, *(after for after, _ in self.modes)}

    def at(self, step: int) -> str:
        """The modes of the step after so many."""
        return next((modes for after, modes in reversed(self.modes) if after <= step), "")

    @property
    def away_from(self) -> int:
        """Steps before the first one whose sums are added in another order: by ranks, by compiled
        code, by another kernel of attention."""
        found = [
            after
            for at, (after, modes) in enumerate(self.modes)
            if (layout_of(modes) or "compile" in modes or "attention" in modes)
            and (at + 1 == len(self.modes) or self.modes[at + 1][0] > after)
        ]
        return min(found, default=10**9)


@dataclass
class Noise:
    """Weights and gradients that are rounded otherwise, to see what a recipe makes of it.

    Weights before every forward and gradients after every backward: a sum of numbers that do not
    depend on the weights (the bias of a margin loss) is zero here and a rounding there, too.
    """

    seed: int
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        self.generator.manual_seed(self.seed)

    @contextmanager
    def around(self, parameters: list[nn.Parameter], precision: str) -> Iterator[None]:
        added: list[tuple[nn.Parameter, torch.Tensor]] = []
        with torch.no_grad():
            for p in parameters:
                delta = p.abs() * self._drawn(p, precision)
                added.append((p, delta))
                p.add_(delta)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, delta in added:
                    p.sub_(delta)
                    if p.grad is not None and not p.grad.is_sparse and p.grad.numel():
                        p.grad.add_(p.grad.abs().max() * self._drawn(p, precision))

    def _drawn(self, p: torch.Tensor, precision: str) -> torch.Tensor:
        by = _ROUNDING[precision]
        eps = by.get(p.dtype, 1.2e-7) if isinstance(by, dict) else by
        noise = torch.randn(p.shape, generator=self.generator, dtype=torch.float64)
        return (eps * noise).to(torch.float32 if p.is_complex() else p.dtype)


def run(recipe: RankRecipe, stays: Stays, noise: Noise | None = None) -> Trace:
    """Train ``recipe``, with ranks where ``stays`` has some."""
    return _Loop(recipe, stays, noise).run()


class _Loop:
    def __init__(self, recipe: RankRecipe, stays: Stays, noise: Noise | None) -> None:
        self.recipe, self.stays, self.noise = recipe, stays, noise
        self.trace = Trace()
        self.model = make_model(recipe).to(recipe.device)
        self.loss_of = make_loss(recipe)
        if isinstance(self.loss_of, nn.Module):
            self.loss_of.to(recipe.device)
        self.function = F.cross_entropy if self.loss_of is None else self.loss_of
        is_module = isinstance(self.loss_of, nn.Module)
        self.of_loss = list(self.loss_of.parameters()) if is_module else []
        self.optimizer = make_optimizer(recipe.optimizer, recipe.over, self.model, self.of_loss)
        self.held: Held = ATTACHED[recipe.attached](self.model, self.optimizer)
        schedule = self.schedule = ALL_SCHEDULES.get(recipe.schedule)
        self.scheduler: Any = schedule and schedule.make(self.optimizer, planned_steps(recipe))
        self.scaler = torch.amp.GradScaler(recipe.device)
        self.frozen = [module for module in self.model.modules() if not module.training]
        self.others: list[nn.Module] = []
        """Of a model that sees a part: one of each rank but the first."""

    def run(self) -> Trace:
        recipe, trace = self.recipe, self.trace
        source, data = SOURCES[recipe.source], arrays(recipe)
        given = source.make(data, recipe.size, recipe.seed)
        held_out = arrays(recipe, validation=True)
        to_validate = VALIDATIONS[recipe.validation](held_out, recipe.size, recipe.seed)
        doing = {after: name for after, name in recipe.actions if not name.startswith(SWITCH)}
        torch.manual_seed(recipe.seed)
        for epoch in range(recipe.epochs):
            plain.train_mode(self.model, self.frozen)
            batches = source.by_hand(given, data, recipe.size, recipe.seed, epoch)
            for x, y in plain.pairs(batches):
                self._look()
                if x.is_floating_point() and bool(x.isnan().any()):
                    self.others = []  # refused: ranks come home, and begin anew
                    continue
                steps = len(trace.losses)
                plain.act(doing.pop(steps, ""), self.model, self.frozen, self.optimizer)
                self._step(x.to(recipe.device), y.to(recipe.device))
            self._end_epoch(to_validate)
        plain.train_mode(self.model, self.frozen)
        trace.looks.pop(len(trace.losses), None)
        self._look(always=True)
        return trace

    def _step(self, x: torch.Tensor, y: Any) -> None:
        trace, step = self.trace, len(self.trace.losses)
        modes = self.stays.at(step)
        self._meet(layout_of(modes), step)
        self.model.zero_grad()
        for parameter in self.of_loss:
            parameter.grad = None
        precision = precision_of(modes)
        everything = [*self.model.parameters(), *self.of_loss]
        rounded = self.noise.around(everything, precision) if self.noise else nullcontext()
        too_large = (
            self._too_large_in_parts(x, y) if layout_of(modes) and precision == "fp16" else []
        )
        with rounded:
            with _precision(precision, self.recipe.device):
                loss = self.function(self._outputs(x, layout_of(modes)), y)
            (self.scaler.scale(loss) if precision == "fp16" else loss).backward()
        for parameter in too_large:
            if parameter.grad is not None:
                parameter.grad.fill_(torch.inf)
        trace.rates[step + 1] = float(self.optimizer.param_groups[0]["lr"])
        applied = self._update(precision)
        if applied and self.schedule is not None and self.schedule.every == "step":
            self.scheduler.step()
        trace.losses.append(loss.item())

    def _too_large_in_parts(self, x: torch.Tensor, y: Any) -> list[nn.Parameter]:
        """Parameters whose gradient a rank rounds to infinity in float16.

        The rows of the other may have cancelled what its own add up to.
        """
        with torch.random.fork_rng([]):
            models = [copy.deepcopy(self.model) for _ in range(self.recipe.ranks)]
            with _precision("fp16", self.recipe.device):
                parts = [
                    x[first:last]
                    for first, last in bounds(len(x), self.recipe.size, self.recipe.ranks)
                ]
                outputs = [m(part) for m, part in zip(models, parts, strict=True) if len(part)]
                loss = copy.deepcopy(self.function)(torch.cat(outputs), y)
            self.scaler.scale(loss).backward()
        found: list[nn.Parameter] = []
        for parameter, *of_ranks in zip(
            self.model.parameters(), *(m.parameters() for m in models), strict=True
        ):
            if any(p.grad is not None and not p.grad.isfinite().all() for p in of_ranks):
                found.append(parameter)
        return found

    def _outputs(self, x: torch.Tensor, layout: str) -> torch.Tensor:
        if not self.others:
            return self.model(x)
        if layout.startswith("ddp"):  # which sends rank 0's buffers before every forward
            _same_buffers(self.model, self.others)
        parts = [
            x[first:last] for first, last in bounds(len(x), self.recipe.size, self.recipe.ranks)
        ]
        outputs: list[torch.Tensor] = []
        for model, part in zip([self.model, *self.others], parts, strict=True):
            if len(part):
                outputs.append(model(part))
            else:  # a rank without a row takes part all the same, and counts what it counts
                model(x[:_STAND_IN])
        return torch.cat(outputs)

    def _meet(self, layout: str, step: int) -> None:
        """Copies of the model for the other ranks; new ones where they start anew."""
        if not layout or MODELS[self.recipe.model].seen != "part":
            self.others = []
        elif not self.others or step in self.stays.begun:
            shared = {id(p): p for p in self.model.parameters()}
            self.others = [
                copy.deepcopy(self.model, dict(shared)) for _ in range(self.recipe.ranks - 1)
            ]

    def _update(self, precision: str) -> bool:
        step = len(self.trace.losses) + 1
        if precision != "fp16":
            self._clip(step)
            self.optimizer.step()
            return True
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        if all(p.grad is None for p in held):  # torch's scaler raises
            self.optimizer.step()
            return True
        scaler = self.scaler
        scaler.unscale_(self.optimizer)
        known = {id(p) for p in held}
        for parameter in chain(self.model.parameters(), self.of_loss):
            if id(parameter) not in known and parameter.grad is not None:
                parameter.grad /= scaler.get_scale()
        self._clip(step)
        before = scaler.get_scale()
        scaler.step(self.optimizer)
        scaler.update()
        return scaler.get_scale() >= before

    def _clip(self, step: int) -> None:
        if self.recipe.clip is not None:
            parameters = chain(self.model.parameters(), self.of_loss)
            norm = nn.utils.clip_grad_norm_(parameters, self.recipe.clip)
            self.trace.norms[step] = float(norm)

    def _end_epoch(self, to_validate: Any) -> None:
        recipe, trace, step = self.recipe, self.trace, len(self.trace.losses)
        _same_buffers(self.model, self.others)
        if recipe.validates:
            # where only the next batch tells that an epoch is over, a switch may come first
            last = max(0, step - 1) if recipe.source in SHARED else step
            precision = _precision(precision_of(self.stays.at(last)), recipe.device)
            found = plain.validated(recipe, self.model, self.function, to_validate, precision)
            trace.validations.append((step, *found))
            plain.train_mode(self.model, self.frozen)
        if self.schedule is not None and self.schedule.every == "epoch":
            at = 1 + (self.schedule.fed == "accuracy")
            self.scheduler.step(*([trace.validations[-1][at]] if self.schedule.fed else []))

    def _look(self, *, always: bool = False) -> None:
        step = len(self.trace.losses)
        if step in self.trace.looks or not (always or step in self.stays.looks):
            return
        arguments = self.model, self.loss_of, self.optimizer, self.held()
        self.trace.looks[step] = look(*arguments, torch.get_rng_state())


def planned_steps(recipe: RankRecipe) -> int:
    """Steps of the whole run, if none is refused."""
    source, data = SOURCES[recipe.source], arrays(recipe)
    given = source.make(data, recipe.size, recipe.seed)
    batches = source.by_hand(given, data, recipe.size, recipe.seed, 0)
    return recipe.epochs * len(list(batches))


def bounds(rows: int, size: int, ranks: int) -> list[tuple[int, int]]:
    """Which rows of a batch are whose (docs/parallel.md): equally many, the first have one more.

    A short batch goes to as many ranks as can have two rows of it.
    """
    sharing = ranks if rows == size else min(ranks, max(1, rows // 2))
    ends = [math.ceil(rows * rank / sharing) for rank in range(sharing + 1)]
    found = [(ends[rank], ends[rank + 1]) for rank in range(sharing)]
    return found + [(rows, rows)] * (ranks - sharing)


def _same_buffers(model: nn.Module, others: list[nn.Module]) -> None:
    for other in others:
        for own, sent in zip(other.buffers(), model.buffers(), strict=True):
            own.copy_(sent)


def _precision(name: str, device: str) -> AbstractContextManager[Any]:
    if not name:
        return nullcontext()
    return torch.autocast(device, {"bf16": torch.bfloat16, "fp16": torch.float16}[name])
