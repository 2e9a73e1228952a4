"""The origin of an allocation: the module, and the line of the user's code.

No hooks are installed. Forward hooks would make Dynamo recompile a compiled model and would be
visible to code that lists a module's hooks, so the call stack is read instead, at the moment of the
allocation: the innermost frame of ``nn.Module.__call__`` names the module, the innermost frame of a
user file names the line, and a frame of ``Optimizer.step`` shows that an optimizer is running. All
user frames together are the *call*: outside the innermost frames, only user frames are still read.
A stack seen before is identified by the addresses of its instructions, at the cost of one lookup.

During backward the stack contains no module. There the running node
(``torch._C._current_autograd_node``) has a sequence number; the module whose forward made that
number, and its call, were stored when it was made. A node whose number was never stored has no
module, and its call is the one that started the backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from workbench.experiment.state.user_code import is_user_file
from workbench.memory.reading.call_tree import Calls, Line
from workbench.torch_private.autograd import current_sequence, node_number
from workbench.torch_private.memory import (
    BACKWARD_CALLS,
    GRAD_CALL,
    OPTIMIZER_STEP,
    generated_modules,
    original_module,
)
from workbench.torch_private.modules import MODULE_CALL

__all__ = ["LOSS", "Attribution", "Line", "Site", "root_name"]

LOSS = "loss"
"""The pseudo-module of forward code outside every module, as in `GraphRecord`."""

_OTHER, _USER, _OUTERMOST, _MODULE, _BACKWARD, _OPTIMIZER = range(6)
_MOST_NODES = 4096


class _Made(NamedTuple):
    """Where the forward that made an autograd node ran."""

    module: str | None = None
    line: Line | None = None
    call: int = -1


_UNKNOWN = _Made()


@dataclass(slots=True)
class Site:
    """Where an operation runs. ``module`` is None outside every known module."""

    module: str | None = None
    line: Line | None = None
    call: int = -1
    """Row of `Attribution.calls`; -1 if no user frame is on the stack."""
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
        self._kinds: dict[int, int] = {}
        self._codes: dict[int, CodeType] = {}
        """By id, which stays valid because the code objects are kept; hashing a code object reads
        all of it."""
        self.calls = Calls()
        self._call_of: dict[tuple[int, ...], tuple[int, Line]] = {}
        self._made_by: dict[int, _Made] = {}
        self._last_number = current_sequence()

    def add_root(self, module: nn.Module) -> str:
        """Store the paths of ``module`` and everything inside it; return the prefix of these paths.

        The first root's paths are bare (``head.fc``), and the root itself is named after its class.
        A later root keeps its class name as a prefix, and a loss module is `LOSS`, so that models
        of two classes share no path.
        """
        original = original_module(module)
        own = root_name(original)
        prefix = own if self._roots else ""
        self._roots.append(module)
        self._paths[id(module)] = own
        for path, child in original.named_modules():
            self._paths.setdefault(id(child), _join(prefix, path) or own)
        if self._on_root is not None:
            self._on_root(original, prefix)
        return prefix

    def path_of(self, module: nn.Module) -> str:
        """Return the path of ``module``, stored when the module is first seen."""
        if id(module) not in self._paths:
            self.add_root(module)
        return self._paths[id(module)]

    def site(self, frame: FrameType | None, node: Any) -> Site:
        """Return the site of the operation whose stack starts at ``frame``.

        ``node`` is the running autograd node, or None outside backward.
        """
        found = Site()
        inside, trail = self._walk(found, frame, node)
        if inside:
            self.path_of(inside[-1])
            found.module, found.in_module = self.path_of(inside[0]), True
        if trail:
            self._call(found, tuple(trail))
        if node is not None:
            self._from_forward(found, node)
        return found

    def _walk(
        self, found: Site, frame: FrameType | None, node: Any
    ) -> tuple[list[nn.Module], list[int]]:
        """Return running modules and, per user frame, instruction and code; innermost first.

        Ends early if the forward that made ``node`` is known: then that is the call.
        """
        kinds = self._kinds
        inside: list[nn.Module] = []
        trail: list[int] = []
        settled = False  # after an optimizer's or backward's own code, only user frames matter
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._learn(code)
            if _OTHER < kind <= _OUTERMOST:
                trail += (frame.f_lasti, id(code))
                if kind == _OUTERMOST:
                    break
                settled = settled or self._is_known(inside)
            elif kind == _MODULE and not settled:
                inside.append(frame.f_locals["self"])
                settled = bool(trail) and self._is_known(inside)
            elif kind != _OTHER and not settled:
                settled = True
                self._enter(found, frame, kind)
                if node is not None and not (inside or trail) and self._from_forward(found, node):
                    break
            frame = frame.f_back
        return inside, trail

    def _enter(self, found: Site, frame: FrameType, kind: int) -> None:
        """Store the information in a frame of an optimizer or of backward."""
        if kind == _OPTIMIZER:
            found.optimizer = _optimizer_of(frame)
            return
        found.in_backward = True
        caller = frame.f_back
        found.in_grad = GRAD_CALL in (frame.f_code, caller.f_code if caller else None)

    def _call(self, found: Site, trail: tuple[int, ...]) -> None:
        """Set the call and the line of a site whose user frames are at these instructions."""
        known = self._call_of.get(trail)
        if known is None:
            codes = map(self._codes.__getitem__, trail[::-2])
            stack = [_line_of(code, at) for code, at in zip(codes, trail[-2::-2], strict=True)]
            known = self._call_of[trail] = self.calls.row(stack), stack[-1]
        found.call, found.line = known

    def _learn(self, code: CodeType) -> int:
        self._codes[id(code)] = code
        kind = self._kinds[id(code)] = _kind_of(code)
        return kind

    def _is_known(self, inside: list[nn.Module]) -> bool:
        """Return whether the innermost module's path is known: the outermost is not needed then."""
        return bool(inside) and id(inside[0]) in self._paths

    def note_nodes(self, site: Site) -> None:
        """Record that the nodes made since the last call were made at ``site``."""
        number = current_sequence()
        made = _Made(site.module, site.line, site.call)
        for index in range(max(self._last_number, number - _MOST_NODES), number):
            self._made_by[index] = made
        self._last_number = number

    def has_new_nodes(self) -> bool:
        """Return whether autograd made nodes since the last `note_nodes`."""
        return current_sequence() != self._last_number

    def close(self) -> None:
        """Release every module."""
        self._on_root = None
        self._roots.clear()
        self._paths.clear()
        self._kinds.clear()
        self._codes.clear()
        self._call_of.clear()

    def _from_forward(self, found: Site, node: Any) -> bool:
        """Take what the stack did not show from the forward; return whether there is a call."""
        made = self._made_by.get(node_number(node), _UNKNOWN)
        # What the stack shows below the engine (a recomputed forward, a Function's own backward) is
        # more accurate than where the node was made.
        found.module = made.module if found.module is None else found.module
        if found.line is None:
            found.line, found.call = made.line, made.call
        return found.call >= 0


def _kind_of(code: CodeType) -> int:
    if code is MODULE_CALL:
        return _MODULE
    if code in BACKWARD_CALLS:
        return _BACKWARD
    if (code.co_filename, code.co_name) == OPTIMIZER_STEP:
        return _OPTIMIZER
    if any(code.co_filename == module.__file__ for module in generated_modules()):
        return _OTHER  # written by Inductor, wherever its cache is
    if not is_user_file(code.co_filename):
        return _OTHER
    # no module and no optimizer can be running above a cell or a script
    return _OUTERMOST if code.co_name == "<module>" else _USER


def _line_of(code: CodeType, instruction: int) -> Line:
    """Return the line of the instruction at that offset; the code's first line if it has none."""
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return Line(code.co_filename, next(lines, None) or code.co_firstlineno, code.co_name)


def _optimizer_of(frame: FrameType) -> torch.optim.Optimizer | None:
    arguments = frame.f_locals.get("args", ())
    first = arguments[0] if arguments else None
    return first if isinstance(first, torch.optim.Optimizer) else None


def root_name(module: nn.Module) -> str:
    """Return the name of an outermost module itself."""
    is_loss = type(module).__module__ == "torch.nn.modules.loss"
    return LOSS if is_loss else type(module).__name__


def _join(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path
