"""Watching a forward: which module ran when, and which line made which node.

Autograd numbers the nodes a thread makes. A `Trace` notes that number at three kinds of moments:
when a module starts and ends (hooks on each module), before and after each torch function (a
`TorchFunctionMode`), and around a compiled region. No tensor and no node is touched, so the trace
holds plain numbers and strings.

A compiled region must not learn of any of this, or Dynamo would compile it again: modules inside
get no hooks, and the mode is taken off the thread's stack while compiled code runs.
"""

from __future__ import annotations

import inspect
import sysconfig
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.graph import torch_private
from workbench.graph.names import ModelNames, plain_tensors
from workbench.graph.owners import OUTSIDE

if TYPE_CHECKING:
    from types import FrameType

    from torch import nn

Place = tuple[str, int, str]
"""(file name, line from 1, function) of a line of code."""


@dataclass(frozen=True)
class Call:
    """One Python call that made nodes numbered ``first`` to ``last - 1``."""

    first: int
    last: int
    op: str
    place: Place | None


@dataclass(frozen=True)
class TraceResult:
    """What one traced forward left behind: plain data."""

    thread: int
    first: int
    """Sequence number when it started."""
    last: int
    """Sequence number when it ended."""
    paths: tuple[str, ...]
    """Module paths that ``owner`` indexes."""
    owner_at: tuple[int, ...]
    owner: tuple[int, ...]
    """From number ``owner_at[i]`` on, the innermost module was ``owner[i]``."""
    calls: tuple[Call, ...]
    inputs: tuple[Any, ...]
    """Weak references to the storages of the arguments of the outermost calls."""
    ran_elsewhere: bool
    """Whether a module also ran on another thread, unseen."""


class Trace:
    """Hooks and mode around one forward; `start` and `stop` on the thread that runs it.

    Args:
        models: prefix -> model.
        on_backward: called with the loss when ``loss.backward()`` begins while tracing.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        *,
        on_backward: Callable[[torch.Tensor], None] | None = None,
    ) -> None:
        self.models = dict(models)
        self.on_backward = on_backward
        self.active = False
        self._thread = 0
        self._first = 0
        self._stack: list[int] = []
        self._owner_at: list[int] = []
        self._owner: list[int] = []
        self._inputs: list[Any] = []
        self._paths: tuple[str, ...] = ()
        self._ran_elsewhere = False
        self._undo: list[Callable[[], None]] = []
        self._calls = CallRecorder(self._on_backward)

    def start(self) -> None:
        """Put hooks and mode in place."""
        names = ModelNames.of(self.models)
        self._paths = tuple(module.path for module in names.modules)
        self._thread = threading.get_ident()
        self._first = torch_private.current_sequence()
        self._note(OUTSIDE)
        opaque: set[int] = set()
        for row, (module, entry) in enumerate(zip(names.live, names.modules, strict=True)):
            if entry.parent in opaque or self._watch(row, module):
                opaque.add(row)
        self._calls.__enter__()
        self.active = True

    def stop(self) -> TraceResult:
        """Take everything off again; safe to call twice."""
        if self.active:
            self.active = False
            self._calls.leave()
        while self._undo:
            self._undo.pop()()
        self.models, self.on_backward = {}, None
        return self.result()

    def result(self) -> TraceResult:
        """What was seen so far."""
        return TraceResult(
            thread=self._thread,
            first=self._first,
            last=torch_private.current_sequence(),
            paths=self._paths,
            owner_at=tuple(self._owner_at),
            owner=tuple(self._owner),
            calls=tuple(self._calls.calls),
            inputs=tuple(self._inputs),
            ran_elsewhere=self._ran_elsewhere,
        )

    def _on_backward(self, loss: torch.Tensor) -> None:
        if self.on_backward is not None:
            self.on_backward(loss)

    def _watch(self, row: int, module: nn.Module) -> bool:
        """Hook one module; True when what lies inside must be left alone."""
        compiled = torch_private.compiled_call(module)
        if compiled is not None:
            self._wrap_compiled(row, module, compiled)
            return True
        is_compiled = torch_private.has_compiled_forward(module)
        if isinstance(module, torch.jit.ScriptModule):
            is_compiled = True
        before = module.register_forward_pre_hook(
            lambda _, args, kwargs: self._enter(row, (args, kwargs), is_compiled=is_compiled),
            prepend=not is_compiled,  # the user's own hooks run eagerly, inside the interval
            with_kwargs=True,
        )
        after = module.register_forward_hook(
            lambda _module, _args, _output: self._exit(row, is_compiled=is_compiled),
            prepend=is_compiled,
            always_call=True,
        )
        self._undo += [before.remove, after.remove]
        return is_compiled

    def _wrap_compiled(self, row: int, module: nn.Module, call: Callable[..., Any]) -> None:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._enter(row, (args, kwargs), is_compiled=True)
            try:
                return call(*args, **kwargs)
            finally:
                self._exit(row, is_compiled=True)

        torch_private.set_compiled_call(module, watched)
        self._undo.append(lambda: torch_private.set_compiled_call(module, call))

    def _enter(self, row: int, inputs: Any, *, is_compiled: bool) -> None:
        if not self._is_here():
            return
        if not self._stack:
            self._inputs += weak_storages(inputs)
        self._stack.append(row)
        self._note(row)
        if is_compiled:
            self._calls.enter_compiled()

    def _exit(self, row: int, *, is_compiled: bool) -> None:
        if not self._is_here() or row not in self._stack:
            return
        if is_compiled:
            self._calls.exit_compiled()
        while self._stack.pop() != row:  # a hook that an exception skipped
            pass
        self._note(self._stack[-1] if self._stack else OUTSIDE)

    def _is_here(self) -> bool:
        if threading.get_ident() == self._thread:
            return True
        self._ran_elsewhere = True
        return False

    def _note(self, owner: int) -> None:
        self._owner_at.append(torch_private.current_sequence())
        self._owner.append(owner)


class CallRecorder(TorchFunctionMode):
    """Notes, for each torch function that made nodes, their numbers, its name and its line."""

    def __init__(self, on_backward: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._on_backward = on_backward
        self._last = torch_private.current_sequence()
        self._is_shown: dict[str, bool] = {}
        self._suspended: list[list[TorchFunctionMode]] = []
        self._compiled_from: list[int] = []

    def __enter__(self) -> CallRecorder:
        self._last = torch_private.current_sequence()
        super().__enter__()
        return self

    def leave(self) -> None:
        """Take the mode off the stack, wherever it lies."""
        torch_private.without_mode(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch_private.current_sequence()
        if before > self._last:
            self._record_custom_function(before)
        if func is torch.Tensor.backward:
            self._on_backward(args[0])
        result = func(*args, **(kwargs or {}))
        after = torch_private.current_sequence()
        if after > before:
            place = self._place(inspect.currentframe())
            self.calls.append(Call(before, after, op_name(func), place))
        self._last = after
        return result

    def enter_compiled(self) -> None:
        """Compiled code runs next on this thread."""
        self._suspended.append(torch_private.without_mode(self))
        self._compiled_from.append(torch_private.current_sequence())

    def exit_compiled(self) -> None:
        """Compiled code has returned."""
        torch_private.restore_modes(self._suspended.pop())
        before, after = self._compiled_from.pop(), torch_private.current_sequence()
        if after > before:
            place = self._place(inspect.currentframe())
            self.calls.append(Call(before, after, "compiled", place))
        self._last = after

    def _record_custom_function(self, before: int) -> None:
        """Numbers used up outside every torch function, seen from inside a custom Function.

        ``Function.apply`` takes its number and then runs the user's ``forward``, whose first torch
        function lands here.
        """
        frame: FrameType | None = inspect.currentframe()
        found: FrameType | None = None
        depth = 0  # one Function may apply another: each takes a number
        while frame is not None:
            if frame.f_code is _APPLY_CODE:
                found = frame
                depth += 1
            frame = frame.f_back
        if found is not None:
            name = getattr(found.f_locals.get("cls"), "__name__", "apply")
            first = max(self._last, before - depth)
            self.calls.append(Call(first, before, name, self._place(found.f_back)))

    def _place(self, frame: FrameType | None) -> Place | None:
        """The innermost line that is neither torch's, ours nor the standard library's."""
        while frame is not None:
            filename = frame.f_code.co_filename
            shown = self._is_shown.get(filename)
            if shown is None:
                shown = self._is_shown[filename] = shows_model_code(filename)
            if shown:
                return filename, frame.f_lineno, frame.f_code.co_name
            frame = frame.f_back
        return None


_APPLY_CODE = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_STDLIB = sysconfig.get_paths()["stdlib"]


def shows_model_code(filename: str) -> bool:
    """Whether a line of this file tells a person where an operation comes from.

    The user's cells and files do, and so do libraries that define models; torch, this package, the
    standard library and code without a file do not.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython-input", "<stdin>"))
    if filename.startswith((_TORCH, _OURS)):
        return False
    return not filename.startswith(_STDLIB) or "site-packages" in filename


def op_name(func: Any) -> str:
    """The user-facing name of a torch function: ``conv2d``, ``add`` for ``+``, ``T`` for ``.T``."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name in {"__get__", "__set__"}:
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return name


def weak_storages(values: Any) -> list[Any]:
    """Weak references to the storages of every tensor in a tree of arguments.

    While such a reference lives, its storage's identity is not given to another.
    """
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils import _pytree

    tensors = [leaf for leaf in _pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return [
        StorageWeakRef(part.untyped_storage())
        for tensor in tensors
        if not tensor.requires_grad
        for part in plain_tensors(tensor)
    ]
