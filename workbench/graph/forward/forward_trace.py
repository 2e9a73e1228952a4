"""Tracing of a forward: which module ran when, and which line made which node.

Autograd numbers the nodes that a thread makes. A `Trace` records that number at three kinds of
moments: when a module starts and ends (hooks on each module), before and after each torch function
(a `TorchFunctionMode`), and around a compiled region. No tensor and no node is touched, so the
trace holds plain numbers and strings.

A compiled region must not see any of this, or Dynamo would compile it again: modules inside get no
hooks, and the mode is removed from the thread's stack while compiled code runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from workbench.graph.core.model_names import ModelNames, weak_storages
from workbench.graph.core.module_owners import OUTSIDE
from workbench.graph.core.source_lines import LineFinder
from workbench.graph.forward.branches import BranchesSeen, BranchRecorder
from workbench.graph.forward.function_mode import BackwardCall, CallRecorder, Region
from workbench.graph.forward.graph_exit_recorder import GraphExitRecorder
from workbench.graph.forward.graph_exits import GraphExitsSeen
from workbench.graph.forward.module_hooks import ModuleHooks
from workbench.graph.forward.trace_result import TraceResult
from workbench.torch_private import autograd
from workbench.torch_private.modules import plain_call

if TYPE_CHECKING:
    from torch import nn

    from workbench.graph.forward.loss_scale import ScaledProduct


class Trace:
    """Hooks and mode around one forward; call `start` and `stop` on the thread that runs it.

    Args:
        models: prefix -> model.
        on_backward: called when a backward begins while tracing.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        *,
        on_backward: Callable[[BackwardCall], None] | None = None,
    ) -> None:
        self.models = dict(models)
        self.on_backward = on_backward
        self.active = False
        self._thread = 0
        self._first = 0
        self._stack: list[tuple[int, bool, float]] = []
        """Modules that are running: row, whether as compiled code, and the start time."""
        self._forward_s: list[float] = []
        self._owner_at: list[int] = []
        self._owner: list[int] = []
        self._inputs: list[Any] = []
        self._paths: tuple[str, ...] = ()
        self._elsewhere: dict[int, tuple[int, int]] = {}
        """Another thread that ran modules -> the first and the last number seen on it."""
        self._parents: list[int] = []
        self._hooks = ModuleHooks()
        self._compiled: set[int] = set()
        self._graph_exits: GraphExitRecorder | None = None
        self._branches: BranchRecorder | None = None
        self._calls: CallRecorder | None = None

    def start(self) -> None:
        """Install hooks and mode; if one of them cannot be installed, none stays."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        names = ModelNames.of(self.models)
        self._paths = tuple(module.path for module in names.modules)
        self._parents = [module.parent for module in names.modules]
        self._forward_s = [0.0] * len(self._paths)
        self._thread = threading.get_ident()
        self._first = autograd.current_sequence()
        self._note(OUTSIDE)
        opaque: set[int] = set()
        for row, (module, entry) in enumerate(zip(names.live, names.modules, strict=True)):
            if entry.parent in opaque or self._watch(row, module):
                opaque.add(row)
        lines = LineFinder()
        parameters = {key: name for key, (name, _) in names.parameters.items()}
        self._graph_exits = GraphExitRecorder(parameters, self._running_module, lines)
        self._branches = BranchRecorder(self._running_module, self._graph_exits.maker)
        self._calls = CallRecorder(self._on_backward, self._graph_exits, self._branches, lines)
        self.active = True
        self._calls.__enter__()

    def release(self) -> None:
        """Release all nodes; the trace continues."""
        if self._graph_exits is not None:
            self._graph_exits.release()

    def stop(self) -> TraceResult:
        """Remove everything again; idempotent."""
        if self.active and self._calls is not None:
            self.active = False
            self._calls.leave()
        self._hooks.remove()
        self.models, self.on_backward = {}, None
        return self.result()

    def result(self) -> TraceResult:
        """The result so far."""
        return TraceResult(
            thread=self._thread,
            first=self._first,
            last=autograd.current_sequence(),
            paths=self._paths,
            owner_at=tuple(self._owner_at),
            owner=tuple(self._owner),
            calls=tuple(self._calls.calls) if self._calls is not None else (),
            inputs=tuple(self._inputs),
            elsewhere=tuple(self._elsewhere.values()),
            forward_s=tuple(self._forward_s),
            graph_exits=self._graph_exits.seen()
            if self._graph_exits is not None
            else GraphExitsSeen(),
            branches=self._branches.seen() if self._branches is not None else BranchesSeen(),
            compiled=frozenset(self._paths[row] for row in self._compiled),
        )

    def products(self) -> Sequence[ScaledProduct]:
        """The multiplications by gradient scalers that were seen so far."""
        return self._calls.products if self._calls is not None else ()

    def _running_module(self) -> str | None:
        return self._paths[self._stack[-1][0]] if self._stack else None

    def _on_backward(self, backward: BackwardCall) -> None:
        if self.on_backward is not None:
            self.on_backward(backward)

    def _watch(self, row: int, module: nn.Module) -> bool:
        """Hook one module; returns True if the modules inside must be left alone."""
        compiled = autograd.compiled_call(module)
        is_script = isinstance(module, torch.jit.ScriptModule)  # this class takes no hooks
        if compiled is not None or is_script:
            self._wrap_compiled(row, module, compiled)
            return True
        is_opaque = autograd.has_compiled_forward(module)

        def enter(_: nn.Module, args: Any, kwargs: Any, *, under_dynamo: bool) -> None:
            self._enter(row, (args, kwargs), is_compiled=is_opaque, under_dynamo=under_dynamo)

        def leave(
            module: nn.Module,
            args: Any,
            kwargs: Any,
            output: Any,
            *,
            under_dynamo: bool,  # noqa: ARG001 - both hooks receive it
        ) -> None:
            self._exit(row, Region(module, (args, kwargs), output))

        # the user's own hooks run eagerly: inside the interval, outside the compiled part
        self._hooks.add(
            row,
            module,
            autograd.unseen_by_dynamo(enter),
            autograd.unseen_by_dynamo(leave),
            inside=is_opaque,
        )
        return is_opaque

    def _wrap_compiled(
        self, row: int, module: nn.Module, installed: Callable[..., Any] | None
    ) -> None:
        call = installed or plain_call(module)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._enter(row, (args, kwargs), is_compiled=True)
            region = None
            try:
                result = call(*args, **kwargs)
                region = Region(module, (args, kwargs), result)
            finally:
                self._exit(row, region)
            return result

        self._hooks.replace_call(row, module, installed, watched)

    def _unwatch_below(self, row: int) -> None:
        """Remove the hooks of everything inside a module that turned out to be compiled."""
        below = {row}
        for inner, parent in enumerate(self._parents):
            if parent in below:
                below.add(inner)
        self._hooks.remove(below - {row})

    def _enter(
        self, row: int, inputs: Any, *, is_compiled: bool, under_dynamo: bool = False
    ) -> None:
        if not self._is_here():
            return
        if not self._stack:
            self._inputs += weak_storages(inputs)
            if self._branches is not None:
                self._branches.new_forward()
        if under_dynamo:  # compiled from outside, as by torch.compile(model)
            self._unwatch_below(row)
        self._stack.append((row, is_compiled or under_dynamo, time.perf_counter()))
        self._note(row)
        if is_compiled or under_dynamo:
            self._compiled.add(row)
            self._recorder.enter_compiled()

    def _exit(self, row: int, region: Region | None) -> None:
        if not self._is_here() or all(row != entered for entered, *_ in self._stack):
            return
        entered = -1
        while entered != row:  # also leaves modules whose hook an exception skipped
            entered, is_compiled, since = self._stack.pop()
            self._forward_s[entered] += time.perf_counter() - since
            if is_compiled:
                self._recorder.exit_compiled(region if entered == row else None)
        self._note(self._stack[-1][0] if self._stack else OUTSIDE)

    @property
    def _recorder(self) -> CallRecorder:
        if self._calls is None:
            raise RuntimeError("the trace has not been started: call start() first")
        return self._calls

    def _is_here(self) -> bool:
        if not self.active:  # a class may copy itself (`__deepcopy__`), and our hooks with it
            return False
        thread = threading.get_ident()
        if thread != self._thread:
            number = autograd.current_sequence()
            first, last = self._elsewhere.get(thread, (number, number))
            self._elsewhere[thread] = min(first, number), max(last, number)
        return thread == self._thread

    def _note(self, owner: int) -> None:
        self._owner_at.append(autograd.current_sequence())
        self._owner.append(owner)
