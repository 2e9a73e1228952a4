"""A recipe by hand: the loop of PyTorch's documentation, in the order of samples that is asked."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.equivalence.losses import LOSSES
from tests.equivalence.optimizers import SCHEDULES, make_optimizer
from tests.equivalence.recipes import Recipe, arrays, make_loss, make_model
from tests.equivalence.sources import SOURCES, VALIDATIONS
from tests.equivalence.trace import Trace

NEW_RATE = 0.02
"""What a person types in the course of a run."""


def run(recipe: Recipe) -> Trace:
    """Train ``recipe``."""
    trace, model, loss_of = Trace(), make_model(recipe).to(recipe.device), make_loss(recipe)
    if isinstance(loss_of, nn.Module):
        loss_of.to(recipe.device)
    function = F.cross_entropy if loss_of is None else loss_of
    of_loss = list(loss_of.parameters()) if isinstance(loss_of, nn.Module) else []
    optimizer = make_optimizer(recipe.optimizer, recipe.over, model, of_loss)
    source, data = SOURCES[recipe.source], arrays(recipe)
    given = source.make(data, recipe.size, recipe.seed)
    schedule = SCHEDULES.get(recipe.schedule)
    scheduler: Any = schedule and schedule.make(optimizer, planned_steps(recipe))
    scaler = torch.amp.GradScaler(recipe.device) if recipe.precision == "fp16" else None
    doing = dict(recipe.actions)
    held_out = arrays(recipe, validation=True)
    to_validate = VALIDATIONS[recipe.validation](held_out, recipe.size, recipe.seed)
    frozen = [module for module in model.modules() if not module.training]
    torch.manual_seed(recipe.seed)
    for epoch in range(recipe.epochs):
        train_mode(model, frozen)
        for x, y in pairs(source.by_hand(given, data, recipe.size, recipe.seed, epoch)):
            if x.is_floating_point() and bool(x.isnan().any()):
                continue
            act(doing.pop(len(trace.losses), ""), model, frozen, optimizer)
            model.zero_grad()
            for parameter in of_loss:
                parameter.grad = None
            with _precision(recipe):
                loss = function(model(x.to(recipe.device)), y.to(recipe.device))
            if scaler is None:
                loss.backward()
                _clip(recipe, model, of_loss)
                optimizer.step()
                applied = True
            else:
                applied = _scaled_step(recipe, scaler, loss, optimizer, model, of_loss)
            if applied and schedule is not None and schedule.every == "step":
                scheduler.step()
            trace.took(loss.item(), model, loss_of, optimizer)
        if recipe.validates:
            trace.validations.append(validated(recipe, model, function, to_validate))
        if schedule is not None and schedule.every == "epoch":
            fed = trace.validations[-1][schedule.fed == "accuracy"] if schedule.fed else None
            scheduler.step(*([fed] if schedule.fed else []))
    trace.ended(optimizer)
    return trace


def act(
    action: str, model: nn.Module, frozen: list[nn.Module], optimizer: torch.optim.Optimizer
) -> None:
    """What a person does between two steps, as far as it matters in a plain loop too."""
    if action == "rate":
        _set_rate(optimizer)
    elif action in ("eval and a look", "own backward"):
        model.eval()  # in which a layer may merge weights, and round them
        train_mode(model, frozen)


def planned_steps(recipe: Recipe) -> int:
    """Steps of the whole run, if none is refused."""
    source, data = SOURCES[recipe.source], arrays(recipe)
    given = source.make(data, recipe.size, recipe.seed)
    batches = source.by_hand(given, data, recipe.size, recipe.seed, 0)
    return recipe.epochs * len(list(batches))


def train_mode(model: nn.Module, frozen: list[nn.Module]) -> None:
    """Train mode, but for what was in eval mode when the model was made."""
    model.train()
    for module in frozen:
        module.eval()


def pairs(batches: Any) -> Any:
    """Mappings as pairs."""
    for batch in batches:
        yield (batch["input"], batch["labels"]) if isinstance(batch, dict) else batch


def _precision(recipe: Recipe) -> AbstractContextManager[Any]:
    if not recipe.precision:
        return nullcontext()
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[recipe.precision]
    return torch.autocast(recipe.device, dtype)


def _clip(recipe: Recipe, model: nn.Module, of_loss: list[nn.Parameter]) -> None:
    if recipe.clip is not None:
        nn.utils.clip_grad_norm_(chain(model.parameters(), of_loss), recipe.clip)


def _scaled_step(
    recipe: Recipe,
    scaler: torch.amp.GradScaler,
    loss: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    of_loss: list[nn.Parameter],
) -> bool:
    scaler.scale(loss).backward()
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if all(p.grad is None for p in held):  # torch's scaler raises
        optimizer.step()
        return True
    scaler.unscale_(optimizer)
    if recipe.clip is not None:
        known = {id(p) for p in held}
        for parameter in chain(model.parameters(), of_loss):
            if id(parameter) not in known and parameter.grad is not None:
                parameter.grad /= scaler.get_scale()
    _clip(recipe, model, of_loss)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() >= before


def _set_rate(optimizer: torch.optim.Optimizer) -> None:
    factor = NEW_RATE / float(optimizer.param_groups[0]["lr"])
    for group in optimizer.param_groups:
        rate = float(group["lr"]) * factor
        if group is optimizer.param_groups[0]:
            rate = NEW_RATE
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@torch.no_grad()
def validated(
    recipe: Recipe,
    model: nn.Module,
    function: Any,
    given: Any,
    precision: AbstractContextManager[Any] | None = None,
) -> tuple[float, float | None]:
    """Loss and accuracy of the whole set; a model that norms by its batch sees the same batches."""
    if recipe.validation == "arrays":
        given = zip(*(part.split(recipe.size) for part in given), strict=True)
    model.eval()
    with _precision(recipe) if precision is None else precision:
        pairs = [(model(x.to(recipe.device)), y.to(recipe.device)) for x, y in given]
        outputs, y = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        loss = function(outputs, y).item()
    model.train()
    return loss, _accuracy(recipe, outputs, y)


def _accuracy(recipe: Recipe, outputs: torch.Tensor, labels: torch.Tensor) -> float | None:
    if not LOSSES[recipe.loss].has_accuracy or recipe.loss == "with parameters":
        return None
    if recipe.loss in ("labels", "multi-label soft margin"):
        return ((outputs > 0) == (labels > 0.5)).double().mean().item()
    if recipe.loss == "probabilities":
        return ((outputs > 0.5) == (labels > 0.5)).double().mean().item()
    if labels.is_floating_point():
        labels = labels.argmax(1)
    counts = labels != -100
    return (outputs.argmax(1) == labels)[counts].double().mean().item()
