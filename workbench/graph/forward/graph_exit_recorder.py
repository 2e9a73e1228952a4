"""Recording of graph exits while a forward runs.

Two things are recorded of a graph exit (see `workbench.graph.forward.graph_exits`) when it happens:
the nodes that made its inputs (held until `GraphExitRecorder.release`, which finds the parameters
behind them first), and the tensors it returned. These are marked, and so is whatever is computed
from them, so that at the end the nodes of the loss show which exits are on the path to it. A mark
is a weak reference to a tensor and a number.

Nothing is marked before the first exit, so a forward without one only pays for a look at each
call's arguments. An error in here is recorded and ends the watch; it never reaches the user.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from workbench.graph.core.source_lines import LineFinder, applied_function
from workbench.graph.core.topology import parameters_behind
from workbench.graph.forward.checkpoint_nodes import Checkpoints
from workbench.graph.forward.graph_exits import CHECKPOINT, GraphExit, GraphExitsSeen, Marks
from workbench.graph.forward.torch_call import (
    ESCAPES,
    Look,
    Made,
    TorchCall,
    exit_reason,
    gather,
    look_at,
)
from workbench.torch_private import autograd

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from workbench.graph.core.source_lines import Place
    from workbench.records.graph import UnreachedReason


class GraphExitRecorder:
    """Records the graph exits of one forward on one thread; receives every torch function.

    Args:
        parameters: ``id(parameter)`` -> name; the parameters outlive the recorder.
        module: returns the path of the module that runs now, None outside.
        lines: finds the line of the user's code.
    """

    def __init__(
        self, parameters: Mapping[int, str], module: Callable[[], str | None], lines: LineFinder
    ) -> None:
        self._parameters = parameters
        self._module = module
        self._lines = lines
        self._rows: dict[tuple[Any, ...], int] = {}
        self._exits: list[GraphExit] = []
        self._pending: list[tuple[Node, int]] = []
        """Nodes whose parameters are not looked up yet, and the graph exit that took their
        value."""
        self._behind: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._flows: list[tuple[int, int, int]] = []
        self._marks = Marks()
        self._is_off = not torch.is_grad_enabled()
        """Whether Python code turned gradients off, as opposed to torch inside a custom
        Function."""
        self.checkpoints = Checkpoints()
        self._fault = ""

    def seen(self) -> GraphExitsSeen:
        """The graph exits seen so far. Releases every node."""
        self.release()
        return GraphExitsSeen(
            exits=tuple(self._exits),
            behind=dict(self._behind),
            taken=dict(self._taken),
            used=dict(self._used),
            flows=tuple(self._flows),
            recomputed=self.checkpoints.seen(),
            fault=self._fault,
        )

    def release(self) -> None:
        """Find the parameters behind the held nodes, and release the nodes."""
        for name, exits in parameters_behind(self._pending, self._parameters).items():
            self._behind[name] = self._behind.get(name, 0) | exits
        self._pending.clear()

    def maker(self, tensor: torch.Tensor) -> Node | None:
        """The node whose value left the graph on the path to ``tensor``, while that is held."""
        mask = self._marks.of((tensor,)) if self._marks.any else 0
        return next((node for node, row in reversed(self._pending) if mask >> row & 1), None)

    def before(self, call: TorchCall) -> Node | None:
        """The node that ``detach_`` is about to remove from its tensor."""
        if getattr(call.func, "__name__", "") == "detach_" and call.args:
            return call.args[0].grad_fn
        return None

    def after(self, call: TorchCall, result: Any, made: Made | None, detached: Node | None) -> None:
        """Process a function that returned ``result``; ``detached`` is what `before` returned."""
        if self._fault:
            return
        try:
            if call.func is autograd.set_grad_enabled:
                self._is_off = not call.args[0]
                return
            taken = call.tensors()
            if taken:
                self._look(call.func, taken, result, made, detached)
        except Exception as error:  # noqa: BLE001 - the user's forward goes on
            self._fault = f"{type(error).__name__}: {error}"

    def after_region(
        self, module: torch.nn.Module, inputs: Any, outputs: Any, made: Made | None
    ) -> None:
        """Process the return of a compiled region: one operation that took its parameters too."""
        if self._fault:
            return
        try:
            from workbench.torch_private.pytree import tree_leaves

            taken: list[torch.Tensor] = []
            given: list[torch.Tensor] = []
            gather(tree_leaves(inputs), taken)
            gather(tree_leaves(outputs), given)
            taken += module.parameters()
            sources = [tensor for tensor in taken if tensor.requires_grad]
            look = Look("compiled region", sources, given, None, self._marks.of(taken))
            self._record_exit(look, [tensor for tensor in given if not tensor.requires_grad])
            self._flow(look, made)
        except Exception as error:  # noqa: BLE001 - the user's forward goes on
            self._fault = f"{type(error).__name__}: {error}"

    def _look(
        self,
        func: Any,
        taken: list[torch.Tensor],
        result: Any,
        made: Made | None,
        detached: Node | None,
    ) -> None:
        if made is not None:
            self._is_off = False  # torch itself may have turned gradients on again, unseen
            for tensor in taken:
                name = self._parameters.get(id(tensor))
                if name is not None:
                    self._used[name] = made.call
        mask = self._marks.of(taken) if self._marks.any else 0
        given: list[torch.Tensor] = []
        gather((result,), given)
        if made is not None and len(given) == 1 and given[0].requires_grad and not self._marks.any:
            return
        if mask or detached or any(tensor.requires_grad for tensor in taken):
            look = look_at(func, taken, given, mask)
            if detached is not None:
                row = self._row(look, "detached", look.op, "")
                self._pending.append((detached, row))
                self._marks.put(given, 1 << row)
                look.mask |= 1 << row
            elif look.op in ESCAPES and not given:
                self._escape(look)
            else:
                self._look_for_exit(func, look, made)
            self._flow(look, made)

    def _look_for_exit(self, func: Any, look: Look, made: Made | None) -> None:
        is_property = getattr(func, "__name__", "") == "__get__"
        if made is None and (not is_property or look.op == "data"):
            without_grad = [t for t in look.given if not t.requires_grad or t is look.written]
            sources = look.taken
            is_exit = self._record_exit(look, without_grad)
            if is_exit and look.op in {"detach", "data"} and look.written is None:
                self._marks.alias(without_grad[0], sources[0])
        elif made is not None:  # max returns indices too, isfinite computes with values inside
            self._record_exit(
                look, [t for t in look.given if not t.requires_grad and t is not look.written]
            )
        if made is not None and look.written is not None and look.taken:
            origin = self._marks.origin_of(look.written)
            if origin is not None:
                row = self._row(look, "detached", look.op, "through .data")
                self._hold(look.taken, row)
                self._marks.put((origin,), look.mask | 1 << row)

    def _record_exit(self, look: Look, without_grad: list[torch.Tensor]) -> bool:
        """Record that a call took tensors with gradient and returned ``without_grad`` without."""
        if not without_grad or not look.taken:
            return False
        why = exit_reason(look, without_grad[0], is_off=self._is_off)
        if why is None:
            return False
        row = self._row(look, *why)
        self._hold(look.taken, row)
        if why[2] == CHECKPOINT:
            names = {self._parameters.get(id(tensor), "") for tensor in look.taken}
            self.checkpoints.uses(names - {""})
        self._mark(look, without_grad, look.mask | 1 << row)
        return True

    def _mark(self, look: Look, tensors: Iterable[torch.Tensor], mask: int) -> None:
        self._marks.put(tensors, mask)
        if look.written is not None and any(tensor is look.written for tensor in tensors):
            self._marks.put_base(look.written, mask)

    def _row(self, look: Look, reason: UnreachedReason, op: str, how: str) -> int:
        place = self._place(in_function=how == "custom Function")
        module = self._module()
        key = (reason, op, how, module, place)
        row = self._rows.setdefault(key, len(self._exits))
        if row == len(self._exits):
            self._exits.append(GraphExit(reason, op, how, module, place, before=look.mask))
        elif look.mask & ~self._exits[row].before & ~(1 << row):
            before = (self._exits[row].before | look.mask) & ~(1 << row)
            self._exits[row] = replace(self._exits[row], before=before)
        return row

    def _place(self, *, in_function: bool) -> Place | None:
        here = sys._getframe().f_back  # pyright: ignore[reportPrivateUsage] - not kept: a cycle
        function = applied_function(here) if in_function else None
        return self._lines.place(here if function is None else function.caller)

    def _hold(self, sources: Iterable[torch.Tensor], row: int) -> None:
        for tensor in sources:
            name = self._parameters.get(id(tensor))
            if name is not None:
                self._behind[name] = self._behind.get(name, 0) | 1 << row
                self._taken[name] = self._taken.get(name, 0) | 1 << row
            elif not tensor.is_leaf:
                node = tensor.grad_fn
                if node is not None:
                    self._pending.append((node, row))

    def _escape(self, look: Look) -> None:
        """Record that a value goes on as something that is not a tensor and cannot be followed."""
        escaped = look.mask
        if look.taken:
            row = self._row(look, "detached", look.op, "")
            self._hold(look.taken, row)
            escaped |= 1 << row
        for row, graph_exit in enumerate(self._exits):
            if escaped >> row & 1 and not graph_exit.escapes_as:
                self._exits[row] = replace(graph_exit, escapes_as=ESCAPES[look.op])

    def _flow(self, look: Look, made: Made | None) -> None:
        """Propagate marks: what comes from a graph exit goes into everything computed from it."""
        if not look.mask:
            return
        self._mark(look, look.given, look.mask)
        if made is not None:
            last = self._flows[-1] if self._flows else (0, 0, 0)
            if last[1:] == (made.first, look.mask):
                self._flows[-1] = (last[0], made.last, look.mask)
            else:
                self._flows.append((made.first, made.last, look.mask))
