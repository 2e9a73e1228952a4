"""Recording of which torch function, called from which line, made which nodes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode, handle_torch_function

from workbench.graph.core.source_lines import LineFinder, Place, applied_function, op_name
from workbench.graph.forward.branches import BranchRecorder
from workbench.graph.forward.graph_exit_recorder import GraphExitRecorder
from workbench.graph.forward.loss_scale import ScaledProduct, scaled_product
from workbench.graph.forward.torch_call import Made, TorchCall
from workbench.torch_private import autograd, contexts

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType


# A torch function is called as if from the line that called it, although a mode is in between.
#
# Python attributes a warning to a frame: the innermost one for a warning of torch's C++, or one
# further out given by ``stacklevel=``. Inside a `TorchFunctionMode` that frame is the mode's, so a
# warning would name our file, and be shown once for all lines of the user's (`warnings.warn`,
# ``__warningregistry__``). So the call is made by a function that carries the file, the line and
# the globals of the user's own: the frame that Python finds reports what it would report without a
# mode. No filter of the user's is touched, and a call costs one look-up more.

Caller = Callable[[Callable[..., Any], Any, Any], Any]
"""``caller(func, args, kwargs)`` is ``func(*args, **kwargs)``."""


def _call(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


class CallSites:
    """One caller for each place in the code that a call came from."""

    def __init__(self) -> None:
        self._callers: dict[tuple[int, int], tuple[CodeType, Caller]] = {}
        """Code (kept here, so that its ``id`` is not reused) and instruction -> its caller."""

    def caller(self, frame: FrameType) -> Caller:
        """A function that calls another function as ``frame`` would.

        Args:
            frame: the frame that called ``__torch_function__``.
        """
        if frame.f_code is handle_torch_function.__code__:  # called by a function written in Python
            frame = _outer(_outer(frame))
        code = frame.f_code
        key = id(code), frame.f_lasti
        found = self._callers.get(key)
        if found is None:
            found = self._callers[key] = code, _caller_at(frame)
        return found[1]


def below_caller(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that a called function added: without our frame and the caller's."""
    for _ in range(2):
        traceback = None if traceback is None else traceback.tb_next
    return traceback


def _outer(frame: FrameType) -> FrameType:
    return frame.f_back or frame


def _caller_at(frame: FrameType) -> Caller:
    code = _call.__code__.replace(
        co_filename=frame.f_code.co_filename,
        co_firstlineno=frame.f_lineno - 1,  # its body is one line further down
        co_name=frame.f_code.co_name,
        co_qualname=frame.f_code.co_qualname,
    )
    return FunctionType(code, frame.f_globals)


@dataclass(frozen=True)
class Call:
    """One Python call that made nodes numbered ``first`` to ``last - 1``."""

    first: int
    last: int
    op: str
    place: Place | None


@dataclass(frozen=True)
class Region:
    """Inputs and outputs of a compiled region; held only while they are inspected."""

    module: torch.nn.Module
    inputs: Any
    outputs: Any


@dataclass(frozen=True)
class BackwardCall:
    """A backward that is about to begin; held only while it is inspected."""

    roots: tuple[torch.Tensor, ...]
    """What it starts from: one loss, or the tensors given to `torch.autograd.backward`."""
    is_grad: bool
    """Whether it is `torch.autograd.grad`, whose result may be part of a loss (a penalty) that is
    still to be computed."""
    num_edges: int = 0
    """Number of `torch.autograd.graph.GradientEdge`, which stand for a tensor and have no value."""

    @classmethod
    def of(cls, func: Any, args: Any) -> BackwardCall | None:
        """The backward that the torch function ``func`` starts; None if it starts none."""
        if not any(func is one for one in _STARTS_BACKWARD):
            return None
        is_one = isinstance(args[0], GradientEdge) or not isinstance(args[0], (tuple, list))
        given = (args[0],) if is_one else args[0]
        roots = tuple(root for root in given if isinstance(root, torch.Tensor))
        num_edges = sum(isinstance(root, GradientEdge) for root in given)
        return cls(roots, func is torch.autograd.grad, num_edges)


_STARTS_BACKWARD = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)


class CallRecorder(TorchFunctionMode):
    """Records, for each torch function that made nodes, their numbers, its name and its line.

    Args:
        on_backward: called when a backward begins.
        graph_exits: recorder of graph exits, which receives every torch function as well.
        branches: recorder of tests, which does so too.
        lines: finds the line of the user's code.
    """

    def __init__(
        self,
        on_backward: Callable[[BackwardCall], None],
        graph_exits: GraphExitRecorder,
        branches: BranchRecorder,
        lines: LineFinder,
    ) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.products: list[ScaledProduct] = []
        """Multiplications by gradient scalers."""
        self._on_backward = on_backward
        self._graph_exits = graph_exits
        self._branches = branches
        self._lines = lines
        self._sites = CallSites()
        self._last = autograd.current_sequence()
        self._suspended: list[Sequence[Any]] = []
        self._compiled_from: list[int] = []
        self._has_left = False

    def __enter__(self) -> CallRecorder:
        self._clear_up()
        self._last = autograd.current_sequence()
        super().__enter__()
        return self

    def leave(self) -> None:
        """Remove the mode from the stack, wherever it is.

        A block may end on another thread (a generator that is closed there): the mode then stays on
        the stack of the thread that entered it, does nothing, and is removed with the next block.
        """
        self._has_left = True
        contexts.without_mode(self)

    def _clear_up(self) -> None:
        """Remove modes from this thread's stack that were left on it by another thread."""
        for mode in contexts.without_mode(self):
            if isinstance(mode, CallRecorder) and mode._has_left:
                contexts.without_mode(mode)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():  # a compiled step: Dynamo traces this, no further
            return func(*args, **(kwargs or {}))
        if self._has_left:
            return func(*args, **(kwargs or {}))
        before = autograd.current_sequence()
        if before > self._last:
            self._record_custom_function(before)
        backward = BackwardCall.of(func, args)
        if backward is not None:
            self._on_backward(backward)
        call = TorchCall(func, args, kwargs or {})
        detached = self._graph_exits.before(call)
        self._branches.before(func)
        result = self._called(func, args, kwargs or {})
        product = scaled_product(func, args, result)
        if product is not None:
            self.products.append(product)
        after = autograd.current_sequence()
        made = None
        if after > before:
            place = self._lines.place(inspect.currentframe())
            made = Made(before, after, len(self.calls))
            self.calls.append(Call(before, after, op_name(func), place))
        self._graph_exits.after(call, result, made, detached)
        self._branches.after(call, result)
        self._last = self._numbers_taken(after)
        return result

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call ``func`` as from the place where `__torch_function__` was called."""
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        caller = self._sites.caller(frame)
        try:
            return caller(func, args, kwargs)
        except BaseException as error:
            error.__traceback__ = below_caller(error.__traceback__)
            raise

    def enter_compiled(self) -> None:
        """Prepare for compiled code, which runs next on this thread."""
        self._suspended.append(contexts.without_mode(self))
        self._compiled_from.append(autograd.current_sequence())

    def exit_compiled(self, region: Region | None) -> None:
        """Resume after compiled code has returned; without a ``region`` it raised."""
        contexts.restore_modes(self._suspended.pop())
        before, after = self._compiled_from.pop(), autograd.current_sequence()
        made = None
        if after > before:
            place = self._lines.place(inspect.currentframe())
            made = Made(before, after, len(self.calls))
            self.calls.append(Call(before, after, "compiled", place))
        if region is not None:
            self._graph_exits.after_region(region.module, region.inputs, region.outputs, made)
        self._last = self._numbers_taken(after)

    def _numbers_taken(self, after: int) -> int:
        """Record the new node that torch makes when a view written in place needs its node."""
        now = autograd.current_sequence()
        if now > after:
            place = self._lines.place(inspect.currentframe())
            self.calls.append(Call(after, now, "as_strided", place))
        return now

    def _record_custom_function(self, before: int) -> None:
        """Record numbers used outside every torch function, seen from inside a custom Function.

        ``Function.apply`` takes its number and then runs the user's ``forward``, whose first torch
        function arrives here.
        """
        function = applied_function(inspect.currentframe())
        if function is not None:
            first = max(self._last, before - function.depth)
            if function.is_checkpoint and first == before - function.depth:
                self._graph_exits.checkpoints.enter(first)
            place = self._lines.place(function.caller)
            self.calls.append(Call(first, before, function.name, place))
