"""Where an allocation came from: the module, and the line of the user's code.

Nothing is hooked. Forward hooks would make Dynamo recompile a compiled model and would be seen by
code that lists a module's hooks, so the call stack is read instead, at the moment of the
allocation: the innermost frame of ``nn.Module.__call__`` names the module, the innermost frame of a
user file names the line, a frame of ``Optimizer.step`` says that an optimizer is at work. A walk
ends as soon as module and line are known: what stands further out can only repeat itself.

During backward the stack holds no module. There the node that is running
(``torch._C._current_autograd_node``) carries a sequence number; the module whose forward made that
number was noted when it was made. A node whose number was never noted stays without a module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from workbench.experiment.source import is_user_file
from workbench.memory.torch_private import (
    BACKWARD_CALLS,
    GRAD_CALL,
    MODULE_CALL,
    OPTIMIZER_STEP,
    generated_modules,
    next_number,
    node_number,
    original_module,
)

LOSS = "loss"
"""The pseudo-module of forward code outside every module, as in `GraphRecord`."""

_OTHER, _USER, _OUTERMOST, _MODULE, _BACKWARD, _OPTIMIZER = range(6)
_MOST_NODES = 4096


class Line(NamedTuple):
    """A line of the user's code, not yet turned into a `SourceLine`."""

    filename: str
    line: int
    function: str


@dataclass(slots=True)
class Site:
    """Where an operation runs. ``module`` is None outside every known module."""

    module: str | None = None
    line: Line | None = None
    in_module: bool = False
    in_backward: bool = False
    in_grad: bool = False
    """Under ``torch.autograd.grad``, which returns what it computes."""
    optimizer: torch.optim.Optimizer | None = None


class Attribution:
    """Names the site of every operation of one recording."""

    def __init__(self, on_root: Callable[[nn.Module, str], None] | None = None) -> None:
        self._on_root = on_root
        self._paths: dict[int, str] = {}
        self._roots: list[nn.Module] = []
        self._kinds: dict[CodeType, int] = {}
        self._made_by: dict[int, tuple[str | None, Line | None]] = {}
        self._last_number = next_number()

    def add_root(self, module: nn.Module) -> str:
        """Learn the paths of ``module`` and everything inside it; returns its own path.

        The first root's paths are bare (``head.fc``). A later root keeps its class name in front,
        and a loss module is `LOSS`, so that two models never share a path.
        """
        original = original_module(module)
        prefix = "" if not self._roots else _root_name(original)
        self._roots.append(module)
        self._paths[id(module)] = prefix
        for path, child in original.named_modules():
            self._paths.setdefault(id(child), _join(prefix, path))
        if self._on_root is not None:
            self._on_root(original, prefix)
        return prefix

    def path_of(self, module: nn.Module) -> str:
        """The path of ``module``, learned on first sight."""
        path = self._paths.get(id(module))
        return path if path is not None else self.add_root(module)

    def site(self, frame: FrameType | None, node: Any) -> Site:
        """The site of the operation whose stack starts at ``frame``.

        ``node`` is the autograd node that runs, or None outside backward.
        """
        found = Site()
        kinds = self._kinds
        inside: list[nn.Module] = []
        settled = False  # of an optimizer's or backward's own code, only the line is still asked
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = _kind_of(code)
            if kind == _OTHER:
                pass
            elif kind <= _OUTERMOST:
                found.line = found.line or Line(code.co_filename, frame.f_lineno, code.co_name)
                settled = settled or self._is_known(inside)
            elif not settled:
                settled = self._enter(found, frame, kind, inside, node)
            if kind == _OUTERMOST or (settled and found.line is not None):
                break
            frame = frame.f_back
        if inside:
            self.path_of(inside[-1])
            found.module, found.in_module = self.path_of(inside[0]), True
        if node is not None:
            self._from_forward(found, node)
        return found

    def _enter(
        self, found: Site, frame: FrameType, kind: int, inside: list[nn.Module], node: Any
    ) -> bool:
        """Take note of a frame of PyTorch's own; whether nothing further out matters."""
        if kind == _MODULE:
            inside.append(frame.f_locals["self"])
            return found.line is not None and self._is_known(inside)
        if kind == _OPTIMIZER:
            found.optimizer = _optimizer_of(frame)
        else:
            found.in_backward = True
            caller = frame.f_back
            found.in_grad = GRAD_CALL in (frame.f_code, caller.f_code if caller else None)
            if node is not None and not inside:
                self._from_forward(found, node)
        return True

    def _is_known(self, inside: list[nn.Module]) -> bool:
        """Whether the innermost module's path is known, so that nobody asks for the outermost."""
        return bool(inside) and id(inside[0]) in self._paths

    def note_nodes(self, site: Site) -> None:
        """Remember that the nodes made since the last call were made at ``site``."""
        number = next_number()
        made = (site.module, site.line)
        for index in range(max(self._last_number, number - _MOST_NODES), number):
            self._made_by[index] = made
        self._last_number = number

    def has_new_nodes(self) -> bool:
        """Whether autograd made nodes since the last `note_nodes`."""
        return next_number() != self._last_number

    def close(self) -> None:
        """Let go of every module."""
        self._on_root = None
        self._roots.clear()
        self._paths.clear()
        self._kinds.clear()

    def _from_forward(self, found: Site, node: Any) -> None:
        module, line = self._made_by.get(node_number(node), (None, None))
        # What the stack shows below the engine (a recomputed forward, a Function's own backward)
        # is nearer to the truth than where the node was made.
        found.module = module if found.module is None else found.module
        found.line = found.line or line

    def _kind(self, code: CodeType) -> int:
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = _kind_of(code)
        return kind


def _kind_of(code: CodeType) -> int:
    if code is MODULE_CALL:
        return _MODULE
    if code in BACKWARD_CALLS:
        return _BACKWARD
    if (code.co_filename, code.co_name) == OPTIMIZER_STEP:
        return _OPTIMIZER
    if any(code.co_filename == module.__file__ for module in generated_modules()):
        return _OTHER  # written by Inductor, wherever its cache lies
    if not is_user_file(code.co_filename):
        return _OTHER
    # nothing above a cell, or a script, can be a module or an optimizer at work
    return _OUTERMOST if code.co_name == "<module>" else _USER


def _optimizer_of(frame: FrameType) -> torch.optim.Optimizer | None:
    arguments = frame.f_locals.get("args", ())
    first = arguments[0] if arguments else None
    return first if isinstance(first, torch.optim.Optimizer) else None


def _root_name(module: nn.Module) -> str:
    is_loss = type(module).__module__ == "torch.nn.modules.loss"
    return LOSS if is_loss else type(module).__name__


def _join(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path
