"""Events on the modules of a model that a comparison of before and after cannot detect.

*Who changed a module's mode.* A forward may call ``self.teacher.eval()``, and a cell may call
``net.eval()`` while that forward runs; the flags look the same afterwards. The first is part of the
model and the second spoils a step. `torch.nn.Module.train` is therefore replaced, once, when the
first run of a process begins, by a function that calls it and records on which thread it was
called.

*Whether a module was given a parameter or another module*, which a forward may do (a head that is
created when the number of features is known). Torch has hooks for that, which cost a step nothing.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module


class ModuleWatch:
    """Events on the modules of one model."""

    def __init__(self) -> None:
        self.set_by_another = False
        """Whether a thread that does not train has called ``train`` or ``eval`` on one of the
        modules."""
        self.has_grown = False
        """Whether one of the modules was given a parameter or a module."""
        self.modules: frozenset[int] = frozenset()
        self.thread = 0

    def begin(self, modules: Iterable[nn.Module]) -> None:
        """Watch ``modules``, which the calling thread trains from now on."""
        self.modules = frozenset(map(id, modules))
        self.thread = threading.get_ident()
        self.set_by_another = self.has_grown = False
        _watch(self)


_watches: weakref.WeakSet[ModuleWatch] = weakref.WeakSet()
_begun = False


def _watch(watch: ModuleWatch) -> None:
    global _begun  # noqa: PLW0603 - torch's own class and hooks are global
    _watches.add(watch)
    if not _begun:
        _begun = True
        nn.Module.train = _noting(nn.Module.train)  # type: ignore[method-assign]
        torch_module.register_module_parameter_registration_hook(_on_growth)
        torch_module.register_module_module_registration_hook(_on_growth)


def _noting(train: Any) -> Any:
    @functools.wraps(train)
    def noting(self: nn.Module, mode: bool = True) -> nn.Module:
        if torch.compiler.is_compiling():
            return train(self, mode)
        if self.training is mode:
            return train(self, mode)
        _on_mode(self)
        try:
            return train(self, mode)
        finally:
            _on_mode(self)  # once more: a step may have ended before the flag was written

    return noting


def _on_mode(module: nn.Module) -> None:
    thread = threading.get_ident()
    for watch in tuple(_watches):
        if watch.thread != thread and id(module) in watch.modules:
            watch.set_by_another = True


def _on_growth(module: nn.Module, _name: str, _part: Any) -> None:
    for watch in tuple(_watches):
        if id(module) in watch.modules:
            watch.has_grown = True
