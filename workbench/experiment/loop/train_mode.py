"""Train and eval mode of a model that an experiment trains.

A step is computed in train mode, except for the modules that the user keeps in eval mode: those
that were in eval mode when the experiment took the model, and those that a cell sets to eval mode
while the experiment is paused. A model that a cell set to eval mode as a whole
(``exp.model.eval()``, to look at a prediction) is set back: that was for the prediction. What a
cell changes while steps are computed is set back too: the step in progress is computed again if the
change comes in the middle of one, so that no step is computed partly in eval mode. What the model's
own forward sets is a different case: it stays, and no step is computed twice for it
(`workbench.experiment.state.module_watch` distinguishes the two).

Modes are set by `torch.nn.Module.train` and ``eval``, never by writing flags: a layer may do more
there (LoRA merges its weights). An optimizer that has ``train`` and ``eval`` of its own
(schedule-free ones) is switched as well.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from workbench.experiment.state.module_watch import ModuleWatch

_MODE = operator.attrgetter("training")
_MOST_NAMED = 4
_WAYS = "exp.predict(x) and exp.evaluate(data) set eval mode and train mode by themselves"


class ChangedInStepError(Exception):
    """Another thread changed a module's mode during a step, which was not applied."""


class TrainMode:
    """Tracks which modules of one model train in train mode.

    Args:
        model: the model as it was passed. If it is in eval mode as a whole, all of it is to train.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules = list(model.modules())
        self.watch = ModuleWatch()
        self._kept = _exceptions(model) if model.training else {}
        """Modes that the user has chosen, in the order of `torch.nn.Module.modules`."""
        self._flags = [module.training for module in self._modules]
        """Modes as the last step, or `set`, left them."""
        self._has_begun = False

    @property
    def kept_in_eval(self) -> list[nn.Module]:
        """Modules that train in eval mode, as the user has chosen."""
        return [module for module, mode in self._kept.items() if not mode]

    def begin(self, optimizer: torch.optim.Optimizer) -> str:
        """Set train mode before the first step of a series; return a note on what that changed.

        In the middle of an epoch, modules are in the modes in which the previous step left them: a
        plain loop calls ``train`` where an epoch begins.
        """
        if [*map(id, self._modules)] != [id(module) for module in self._model.modules()]:
            self.find_modules()
        self.watch.begin(self._modules)
        note = ""
        if not self._model.training and (self._flags[0] or not self._has_begun):
            note = "the model was in eval mode and was switched to train mode"
            if self._flags[0]:
                note = f"{note}: {_WAYS}"
        elif changed := self._changed():
            note = self._follow(changed)
        if self._has_begun:
            self.restore()
            _call(optimizer, "train")
        else:
            self._has_begun = True
            self.set(optimizer)
        return note

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Set train mode, as before an epoch."""
        self._model.train()
        for module, mode in self._kept.items():
            if module.training is not mode:
                module.train(mode)
        self.watch.set_by_another = False
        self._flags = [module.training for module in self._modules]
        _call(optimizer, "train")

    def is_changed(self) -> bool:
        """Whether any module is in another mode than `set` left it in; about 25 ns per module."""
        return [*map(_MODE, self._modules)] != self._flags

    def put_back(self, optimizer: torch.optim.Optimizer) -> str:
        """Undo what was changed while steps were computed; return a note that says so."""
        whole = not self._model.training
        names = self._names(self._changed())
        self.restore()
        _call(optimizer, "train")
        if whole:
            return f"the model was put into eval mode while it trained, and back: {_WAYS}"
        return (
            f"{names} changed between train and eval mode while the model trained, and back: pause "
            "it first to keep such a change"
        )

    def restore(self) -> None:
        """Set each module to the mode in which the previous step, or `set`, left it."""
        for module, mode in zip(self._modules, self._flags, strict=True):  # holders come first
            if module.training is not mode:
                module.train(mode)

    def hold(self) -> None:
        """Refuse a step during which another thread changed modes; a forward may change its own.

        Raises:
            ChangedInStepError: modes were changed; nothing has been updated.
        """
        if self.watch.set_by_another:
            raise ChangedInStepError
        self._flags = [*map(_MODE, self._modules)]

    def state(self) -> dict[str, Any]:
        """Return the modes of all modules, and those chosen, by name: for a copy of the model."""
        named = {module: name for name, module in self._model.named_modules()}
        return {
            "modes": {name: module.training for module, name in named.items()},
            "kept": {named[module]: mode for module, mode in self._kept.items() if module in named},
            "has_begun": self._has_begun,
        }

    def load_state(self, state: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
        """Restore the `state` of another model; modules that it did not have are left alone."""
        self._modules = list(self._model.modules())
        modules = dict(self._model.named_modules())
        kept: dict[str, bool] = state["kept"]
        self._kept = {modules[name]: mode for name, mode in kept.items() if name in modules}
        for name, module in modules.items():  # holders come first
            mode = state["modes"].get(name, module.training)
            if module.training is not mode:
                module.train(mode)
        self._has_begun = state["has_begun"]
        self._flags = [module.training for module in self._modules]
        self.watch.set_by_another = False
        if self._model.training:
            _call(optimizer, "train")

    @contextmanager
    def evaluating(self, optimizer: torch.optim.Optimizer) -> Generator[None]:
        """Context in eval mode, for the model and an optimizer that has one; then train mode."""
        try:
            self._model.eval()
            _call(optimizer, "eval")
            yield
        finally:
            self.set(optimizer)

    @contextmanager
    def inspecting(self, optimizer: torch.optim.Optimizer) -> Generator[None]:
        """`evaluating` for a cell; afterwards each module is in the mode in which it was found.

        What a cell has set before still stands, to be adopted, or set back and reported.
        """
        found = [(module, module.training) for module in self._model.modules()]
        try:
            self._model.eval()
            _call(optimizer, "eval")
            yield
        finally:
            for module, mode in found:
                if module.training is not mode:
                    module.train(mode)
            _call(optimizer, "train")

    # -- inside -----------------------------------------------------------------------------

    def _changed(self) -> list[nn.Module]:
        return [
            module
            for module, flag in zip(self._modules, self._flags, strict=True)
            if module.training is not flag
        ]

    def _follow(self, changed: list[nn.Module]) -> str:
        """Adopt what a cell has changed while nothing was computed: the user chose it.

        But not if ``train`` was called on the whole model, as after a look at it in eval mode: what
        was kept in eval mode before is still kept so.
        """
        if all(module.training for module in self._modules):
            return (
                f"{self._names(changed)}: kept in eval mode, though train() was called on the "
                "whole model; exp.model = exp.model takes all modes as they are"
            )
        self._keep({module: module.training for module in changed})
        self._flags = [module.training for module in self._modules]
        said = [
            f"{self._names(modules)} {'are' if len(modules) > 1 else 'is'} kept in {mode} mode"
            for modules, mode in (
                ([module for module in changed if not module.training], "eval"),
                ([module for module in changed if module.training], "train"),
            )
            if modules
        ]
        return f"{' and '.join(said)} from now on, as a cell has set it"

    def find_modules(self) -> None:
        """Find modules that were exchanged or added: new ones come with the modes they have."""
        known = dict(zip(map(id, self._modules), self._flags, strict=True))
        self._modules = list(self._model.modules())
        if self._model.training:
            found = _exceptions(self._model)
            self._keep({one: mode for one, mode in found.items() if id(one) not in known})
        self._flags = [known.get(id(module), module.training) for module in self._modules]
        self.watch.modules = frozenset(map(id, self._modules))
        self.watch.has_grown = False

    def _keep(self, modes: dict[nn.Module, bool]) -> None:
        """Keep these modes too; a module comes after those that hold it."""
        both = {**self._kept, **modes}
        self._kept = {module: both[module] for module in self._modules if module in both}

    def _names(self, modules: Iterable[nn.Module]) -> str:
        wanted = set(modules)
        names = [name or "the model" for name, one in self._model.named_modules() if one in wanted]
        if len(names) > _MOST_NAMED:
            return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
        return (
            " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "modules"
        )


def _exceptions(model: nn.Module) -> dict[nn.Module, bool]:
    """Modules in another mode than the module that holds them, each with its mode."""
    found: dict[nn.Module, bool] = {}
    _find_below(model, {model}, found)
    return found


def _find_below(holder: nn.Module, seen: set[nn.Module], found: dict[nn.Module, bool]) -> None:
    # not a nested function: one that calls itself is a cycle, which keeps the model alive
    for child in holder.children():
        if child in seen:
            continue
        seen.add(child)
        if child.training is not holder.training:
            found[child] = child.training
        _find_below(child, seen, found)


def _call(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Call a method that few optimizers have."""
    method: Any = getattr(optimizer, name, None)
    if callable(method):
        method()
