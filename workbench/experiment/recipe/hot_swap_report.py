"""Report in sentences what a hot swap leaves with the old model: nothing changes silently.

A new model has the hooks, the parametrizations, the ``requires_grad`` flags and the modes that its
author gave it. Those of the old model were often set by cells, and a class that is defined again
does not include them. Hooks of the optimizer stay active, but what else they reach may not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel

from workbench.experiment.recipe.optimizers import optimizers_in
from workbench.experiment.state.function_reach import reached

if TYPE_CHECKING:
    from workbench.experiment.recipe.losses import Loss

_MOST_NAMED = 3
_HOOKS_OF_MODULES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_HOOKS_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def left_behind(
    old: nn.Module,
    new: nn.Module,
    optimizer: torch.optim.Optimizer,
    kept_in_eval: Iterable[nn.Module],
) -> tuple[str, ...]:
    """Return sentences on what the old model had and the new one does not have.

    Args:
        old: the old model, without modes attached.
        new: the model that has taken over.
        optimizer: optimizer of both.
        kept_in_eval: modules of ``old`` that trained in eval mode.
    """
    return tuple(
        filter(
            None,
            (
                f"the {type(old).__name__} before the swap keeps the state of its last step, and "
                "is no longer trained: exp.model is the one that trains, whatever their names in "
                "the notebook",
                _hooks(old, new),
                _parametrizations(old, new),
                *_flags(old, new),
                _modes(old, new, set(kept_in_eval)),
                *_reached_by_hooks(old, new, optimizer),
            ),
        )
    )


def read_by_loss(old: nn.Module, loss: Loss) -> str:
    """Return a sentence on a loss that reads the old model, or its parameters; else ``""``."""
    state = loss.state()
    name = "" if state is None else state.reaches(old, *old.parameters())
    if not name:
        return ""
    return (
        f"the loss {loss.name} still reads {name} of the model before the swap, which no "
        "longer changes: let it read exp.model"
    )


def _hooks(old: nn.Module, new: nn.Module) -> str:
    modules, parameters = dict(new.named_modules()), dict(new.named_parameters())
    names = [
        name or "the model itself"
        for name, module in old.named_modules()
        if module is not modules.get(name)
        and _count(module, _HOOKS_OF_MODULES) > _count(modules.get(name), _HOOKS_OF_MODULES)
    ]
    names += [
        name
        for name, p in old.named_parameters()
        if p is not parameters.get(name)
        and _count(p, _HOOKS_OF_PARAMETERS) > _count(parameters.get(name), _HOOKS_OF_PARAMETERS)
    ]
    if not names:
        return ""
    return (
        f"hooks that were registered on the previous model ({_listed(names)}) stay with it: "
        "register them on exp.model if they are needed there"
    )


def _count(of: nn.Module | torch.Tensor | None, tables: tuple[str, ...]) -> int:
    return sum(len(getattr(of, table, None) or ()) for table in tables)


def _parametrizations(old: nn.Module, new: nn.Module) -> str:
    after = set(_parametrized(new))
    names = [name for name in _parametrized(old) if name not in after]
    if not names:
        return ""
    return (
        f"{_listed(names)}: parametrized in the previous model and not in the new one, so nothing "
        "of it carries over; register the parametrization before exp.model = new"
    )


def _parametrized(model: nn.Module) -> Iterator[str]:
    """Yield the paths of the parametrized parameters."""
    for path, module in model.named_modules():
        if parametrize.is_parametrized(module):
            for name in cast("nn.ModuleDict", module.parametrizations):
                yield f"{path}.{name}".lstrip(".")


def _flags(old: nn.Module, new: nn.Module) -> Iterator[str]:
    before = dict(old.named_parameters(remove_duplicate=False))
    changed = [
        (name, p.requires_grad)
        for name, p in new.named_parameters()
        if name in before and before[name].requires_grad is not p.requires_grad
    ]
    for trains in (True, False):
        names = [name for name, now in changed if now is trains]
        if names:
            was, now = ("frozen", "trained") if trains else ("trained", "frozen")
            yield (
                f"{_listed(names)}: {was} in the previous model and {now} in the new one, whose "
                f"requires_grad says so: exp.model.get_parameter(name).requires_grad_({not trains})"
                " changes it"
            )


def _modes(old: nn.Module, new: nn.Module, kept: set[nn.Module]) -> str:
    after = dict(new.named_modules())
    names = [
        name or "the model itself"
        for name, module in old.named_modules()
        if module in kept
        and name in after
        # a model in eval mode as a whole is to be trained entirely
        and (after[name].training or not new.training)
    ]
    if not names:
        return ""
    return (
        f"{_listed(names)}: kept in eval mode in the previous model, and trained in train mode in "
        "the new one; pause and call .eval() on it to keep it there"
    )


def _reached_by_hooks(
    old: nn.Module, new: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[str]:
    shapes = [p.shape for p in new.parameters()]
    for hook in _step_hooks(optimizer):
        name = getattr(hook, "__name__", type(hook).__name__)
        for variable, value in reached(hook):
            if isinstance(value, AveragedModel):
                if [p.shape for p in value.module.parameters()] != shapes:
                    yield (
                        f"the optimizer's hook {name} averages into {variable}, whose parameters "
                        "are not those of the new model: create it again, AveragedModel(exp.model)"
                    )
            elif value is old:
                yield (
                    f"the optimizer's hook {name} still reads {variable}, the model before the "
                    "swap, which no longer changes: let it read exp.model"
                )


def _step_hooks(optimizer: torch.optim.Optimizer) -> list[Callable[..., Any]]:
    return [
        hook
        for one in optimizers_in(optimizer)
        for table in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
        for hook in getattr(one, table, {}).values()
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
