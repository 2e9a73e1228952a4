"""Which gradients of a loop of one's own carry the scale of fp16, and who may apply them.

Between ``modes.backward(loss)`` and the division by the scale, gradients are some 65,536 times too
large. An experiment has nobody who could apply them in between; a loop of one's own has, and
``optimizer.step()`` in the place of ``modes.step(optimizer)`` would destroy the weights without a
word. So while a scaler is in use, every step of an optimizer is looked at before it is taken
(torch's own hook for all optimizers), and one that would apply such gradients is refused.

What is known of a gradient is bound to the tensor in ``parameter.grad``: ``zero_grad()`` puts
another in its place, and with it goes what was known. Which parameters a backward has reached is
not looked for while a loop runs as it should. It is found out, from the graphs of the losses, when
an optimizer that was not handed to the modes takes a step while scaled gradients wait. Where that
cannot be found out (the loss is gone, or its graph has functions of the user's own), those of the
models count as reached, for what such a step would do to them cannot be undone.

Nothing here keeps a model, an optimizer, a loss or a gradient alive.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from workbench.modes.leaves import leaf_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from workbench.modes.scaler import GradientScaler

_MOST_NODES = 4_000
"""Of a graph that is walked: one that is deeper could not be freed in a loop any more, once Python
has looked at its nodes (torch 2.12 and newer)."""
_STEP_CODE = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__
"""Of the frame that every ``optimizer.step`` runs in."""


class _Mark(NamedTuple):
    """Something known of one gradient."""

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int
    """How often the gradient had been written when this became known."""

    @classmethod
    def of(cls, parameter: torch.Tensor, gradient: torch.Tensor) -> _Mark:
        return cls(weakref.ref(parameter), weakref.ref(gradient), _version(gradient))

    def found(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Parameter and gradient, while this is the parameter's gradient."""
        parameter, gradient = self.parameter(), self.gradient()
        if parameter is None or gradient is None or parameter.grad is not gradient:
            return None
        return parameter, gradient


class ScaledGradients:
    """What is known of the gradients of one `workbench.Modes` under a scaler."""

    def __init__(self, scaler: GradientScaler) -> None:
        self.scaler = scaler
        self._models: list[weakref.ref[nn.Module]] = []
        self._losses: list[weakref.ref[torch.Tensor]] = []
        """Of the backward passes since the last update."""
        self._others: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        """How many of these were found to have nothing to do with an optimizer."""
        self._divided: list[_Mark] = []
        self._left: list[_Mark] = []
        """Scaled, and not the business of any optimizer that was in an update since."""
        self._is_step = False
        """Whether an update is being made by the scaler itself."""
        self._applying: Sequence[Optimizer] = ()
        """Those of the block that is open: their gradients are divided."""
        self._outside: list[weakref.ref[torch.Tensor]] = []
        """Leaves that are in no model, as far as graphs were looked at."""
        self._has_outside = False
        """Whether losses of this loop reach leaves outside of its models: then every one is looked
        through, and a few otherwise."""
        self._num_passes = 0
        scaler.keeps_unscaled = True
        self._uncovered: tuple[Any, list[weakref.ref[torch.Tensor]]] = (None, [])
        self._thread = 0

    # -- who is looked after ------------------------------------------------------------------

    def start(self, models: Iterable[nn.Module]) -> None:
        """Look at every optimizer's step from now on."""
        self._models = [weakref.ref(model) for model in models]
        self._uncovered = (None, [])
        _ledgers.add(self)
        _Hook.hold()

    def stop(self) -> None:
        """Undo `start`; safe to call twice.

        Gradients that are scaled still are looked after as long as they are there.
        """
        _ledgers.discard(self)
        self._close(())
        if self.are_left:
            _ended.add(self)
        _Hook.hold()

    # -- what happens to gradients --------------------------------------------------------------

    def backward(self, loss: torch.Tensor) -> None:
        """Backward from ``loss``, scaled.

        Raises:
            RuntimeError: it is called inside the step of an optimizer, has added scaled gradients
                to divided ones, or the model is sharded in a way that overflows are not seen in.
        """
        _refuse_closure(sys._getframe())  # pyright: ignore[reportPrivateUsage] - as `inspect` does, without its cost
        self._thread = threading.get_ident()
        self._num_passes += 1
        if self._has_outside or self._num_passes & (self._num_passes - 1) == 0:  # 1, 2, 4, 8
            self._learn(loss)
        self._divided = [mark for mark in self._divided if _is_divided(mark)]
        waiting = [(*found, _version(found[1])) for found in self._true()]
        self._losses.append(weakref.ref(loss))
        try:
            self.scaler.backward(loss)
        finally:
            mixed = [p for p, g, version in waiting if p.grad is g and _version(g) != version]
            true = {id(parameter) for parameter, _ in self._true()}
            for optimizer in self.scaler.unscaled():
                if any(id(parameter) not in true for parameter, _ in _gradients([optimizer])):
                    self.scaler.forget(optimizer)
        if mixed:
            keys = {id(parameter) for parameter in mixed}
            self._divided = [mark for mark in self._divided if id(mark.parameter()) not in keys]
            raise RuntimeError(
                "modes.backward(loss) has added gradients that are multiplied by "
                f"{self.scaler.scale:,.6g} to ones that were divided already "
                f"({self._named(mixed)}): gather all gradients before modes.unscale(optimizer), or "
                "call optimizer.zero_grad() after it; these are of no use, call it now"
            )

    def divide(self, optimizers: Sequence[Optimizer], *, block: bool) -> None:
        """Divide what is scaled of the gradients of ``optimizers``.

        Args:
            optimizers: whose gradients are to be true.
            block: whether they are so in a block alone, which ends with `apply` or `give_up`.
        """
        rest = [one for one in optimizers if not self.scaler.has_unscaled(one)]
        if rest:
            done = {id(parameter) for parameter, _ in self._true()}
            self.scaler.unscale(*rest, done=done)
        if block:
            self._applying = optimizers
        else:
            self._mark(optimizers)
        self._left = _without(self._left, optimizers)

    def apply(self, optimizers: Sequence[Optimizer]) -> bool:
        """Update, unless gradients overflowed; False when it was skipped."""
        self._is_step = True
        try:
            applied = self.scaler.step(*optimizers)
        finally:
            self._is_step = False
            self._close(optimizers)
        self._divided = _without(self._divided, optimizers)
        return applied

    def give_up(self, optimizers: Sequence[Optimizer]) -> None:
        """No update is made of the block that was open; gradients stay divided."""
        self._mark(optimizers)
        self._close(optimizers)

    def pass_over(self, optimizers: Sequence[Optimizer]) -> None:
        """One step of each, which have no gradients to apply."""
        for optimizer in optimizers:
            optimizer.step()
        self._close(optimizers)

    def _close(self, optimizers: Sequence[Optimizer]) -> None:
        """What was gathered is none of the next update's business."""
        self._applying = ()
        if self._losses:
            true = {id(parameter) for parameter, _ in self._true()}
            others = [p for one in self._not_in(optimizers) if (p := one()) is not None]
            self._left = [
                _Mark.of(p, p.grad) for p in others if p.grad is not None and id(p) not in true
            ]
        self._losses.clear()
        self._others.clear()

    def _mark(self, optimizers: Sequence[Optimizer]) -> None:
        """Remember that the gradients of ``optimizers`` are divided."""
        marked = {id(parameter) for parameter, _ in self._true()}
        new = {id(p): _Mark.of(p, g) for p, g in _gradients(optimizers) if id(p) not in marked}
        self._divided += new.values()

    @property
    def are_left(self) -> bool:
        """Whether there are scaled gradients that no optimizer of an update held."""
        return any(mark.found() is not None for mark in self._left)

    # -- a step that was not asked for here -----------------------------------------------------

    def check(self, optimizer: Optimizer) -> None:
        """Refuse a step of ``optimizer`` that would apply scaled gradients.

        Raises:
            RuntimeError: with what is valid.
        """
        if self._is_step or not (self._losses or self._left or self._divided):
            return
        if threading.get_ident() != self._thread:  # another loop than this one's
            return
        with_gradient = [parameter for parameter, _ in _gradients([optimizer])]
        true = {id(parameter) for parameter, _ in self._true()}
        true |= {id(parameter) for parameter, _ in _gradients(self._applying)}
        name = type(optimizer).__name__
        if any(id(p) in true for p in with_gradient) and self.scaler.overflowed():
            raise RuntimeError(
                f"{name}.step() was given gradients that overflowed in fp16 and are not finite; "
                "nothing was updated: `with modes.step(optimizer): pass` skips such an update and "
                "lowers the scale"
            )
        rest = [parameter for parameter in with_gradient if id(parameter) not in true]
        left = {id(found[0]) for mark in self._left if (found := mark.found()) is not None}
        scaled, is_certain = [p for p in rest if id(p) in left], True
        if rest and not scaled and len(self._losses) > self._others.get(optimizer, 0):
            scaled, is_certain = self._reached(optimizer, rest)
        if scaled:
            remedy = _WAITING if self._losses else _LEFT
            raise RuntimeError(
                f"{name}.step() was given gradients that are multiplied by "
                f"{self.scaler.scale:,.6g}, the scale of fp16 ({self._named(scaled)}); nothing was "
                f"updated: {remedy}{'' if is_certain else _DOUBT}"
            )

    def _reached(
        self, optimizer: Optimizer, parameters: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], bool]:
        """Those of ``parameters`` that hold scaled gradients, and whether that is certain."""
        leaves, is_certain = set[int](), True
        for reference in self._losses[self._others.get(optimizer, 0) :]:
            loss = reference()
            found, is_all = ([], False) if loss is None else _leaves(loss)
            is_certain = is_certain and is_all
            leaves |= {id(leaf) for leaf in found}
        # a loss reaches what FSDP gathers; the shard gets its gradient afterwards
        leaves |= {id(one) for one in self._known() if not is_certain or _is_shard(one)}
        scaled = [parameter for parameter in parameters if id(parameter) in leaves]
        if not scaled:
            self._others[optimizer] = len(self._losses)
        return scaled, is_certain

    # -- what is known ----------------------------------------------------------------------------

    def _true(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Parameters whose gradients are divided."""
        return (found for mark in self._divided if (found := mark.found()) is not None)

    def _known(self) -> Iterator[torch.Tensor]:
        """Parameters of the models, and leaves that losses were seen to reach outside of them."""
        for model in self._alive():
            yield from model.parameters()
        yield from (leaf for one in self._outside if (leaf := one()) is not None)

    def _not_in(self, optimizers: Sequence[Optimizer]) -> list[weakref.ref[torch.Tensor]]:
        """What is known that no optimizer of these holds."""
        key = [
            (weakref.ref(one), sum(len(g["params"]) for g in one.param_groups))
            for one in optimizers
        ]
        if self._uncovered[0] != key:
            held = {id(p) for one in optimizers for g in one.param_groups for p in g["params"]}
            self._uncovered = key, [weakref.ref(p) for p in self._known() if id(p) not in held]
        return self._uncovered[1]

    def _learn(self, loss: torch.Tensor) -> None:
        """See which leaves ``loss`` reaches outside of the models."""
        self._outside = [one for one in self._outside if one() is not None]
        known = {id(parameter) for parameter in self._known()}
        leaves = _leaves(loss)[0]
        if any(map(_is_flat, leaves)):
            raise RuntimeError(
                "fp16 cannot be scaled under FullyShardedDataParallel: each rank sees an overflow "
                "in its own shard alone, and ranks would skip different updates; shard the model "
                "by torch.distributed.fsdp.fully_shard, or use bf16"
            )
        new = [weakref.ref(leaf) for leaf in leaves if id(leaf) not in known]
        self._outside += new
        self._has_outside = self._has_outside or bool(new)
        self._uncovered = (None, [])

    def _alive(self) -> Iterator[nn.Module]:
        return (model for one in self._models if (model := one()) is not None)

    def _named(self, parameters: Sequence[torch.Tensor]) -> str:
        """``0.weight and 3 more``."""
        names = {id(p): name for model in self._alive() for name, p in model.named_parameters()}
        first = names.get(id(parameters[0]), f"a {list(parameters[0].shape)} tensor")
        return first + (f" and {len(parameters) - 1} more" if len(parameters) > 1 else "")


_WAITING = (
    "apply them by `with modes.step(optimizer): pass`, or divide them first by "
    "modes.unscale(optimizer)"
)
_LEFT = (
    "hand every optimizer whose parameters a loss reaches to its update, as in "
    "modes.update(loss, first, second), or call optimizer.zero_grad() before its next backward"
)
_DOUBT = (
    "; if they have nothing to do with that loss, step before modes.backward(loss) or after "
    "`with modes.step(...)`"
)


def _gradients(optimizers: Iterable[Optimizer]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each parameter that has a gradient, with it."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    yield parameter, parameter.grad


def _without(marks: list[_Mark], optimizers: Sequence[Optimizer]) -> list[_Mark]:
    """``marks`` that hold still, of what none of ``optimizers`` holds."""
    if not marks:
        return marks
    held = {id(p) for one in optimizers for g in one.param_groups for p in g["params"]}
    return [m for m in marks if (found := m.found()) is not None and id(found[0]) not in held]


def _is_divided(mark: _Mark) -> bool:
    """Whether the gradient is still there and not zero, as ``zero_grad(set_to_none=False)`` has it.

    Values are read only where it was written since, by that or by clipping.
    """
    found = mark.found()
    if found is None:
        return False
    gradient = _local(found[1])
    return gradient._version == mark.version or bool((gradient != 0).any())


def _version(gradient: torch.Tensor) -> int:
    """How often it was written in place."""
    return _local(gradient)._version


def _local(gradient: torch.Tensor) -> torch.Tensor:
    """What a rank has of it: FSDP adds to the shard, of which the `DTensor` does not hear."""
    local: torch.Tensor = getattr(gradient, "_local_tensor", gradient)
    return local


def _leaves(loss: torch.Tensor) -> tuple[list[torch.Tensor], bool]:
    """The leaves that backward from ``loss`` reaches, and whether these are all.

    A function in Python may run a backward inside (a reentrant checkpoint does), or put gradients
    elsewhere than into the leaf (FSDP does).
    """
    if loss.grad_fn is None:
        return [loss], True
    seen: set[Node] = {loss.grad_fn}
    waiting: list[Node] = [loss.grad_fn]
    leaves: list[torch.Tensor] = []
    is_all = True
    while waiting:
        node: Any = waiting.pop()
        if len(seen) > _MOST_NODES:
            return leaves, False
        is_all = is_all and not hasattr(node, "_forward_cls")
        leaf = leaf_of(node)
        if leaf is not None:
            leaves.append(leaf)
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                waiting.append(other)
    return leaves, is_all


def _is_shard(parameter: torch.Tensor) -> bool:
    """Whether it is a `DTensor`, as ``fully_shard`` makes them."""
    return hasattr(parameter, "_local_tensor")


def _is_flat(leaf: torch.Tensor) -> bool:
    """Whether it is what the elder FSDP shards over several ranks."""
    return bool(getattr(leaf, "_is_flat_param", False)) and dist.get_world_size() > 1


def _refuse_closure(frame: Any) -> None:
    """Refuse a backward in the closure of an optimizer, which applies what it finds.

    Raises:
        RuntimeError: one of the callers is a step of an optimizer.
    """
    while frame is not None:
        if frame.f_code is _STEP_CODE:
            raise RuntimeError(
                "modes.backward(loss) was called inside optimizer.step(closure), which would apply "
                "gradients that fp16 has scaled; use bf16 with an optimizer that needs a closure, "
                "or call modes.backward(loss) before `with modes.step(optimizer): ...`"
            )
        frame = frame.f_back


_ledgers: weakref.WeakSet[ScaledGradients] = weakref.WeakSet()
_ended: set[ScaledGradients] = set()
"""Those of modes that are gone, whose scaled gradients are there still."""


class _Hook:
    """The one hook on the steps of all optimizers, there while a scaler is in use."""

    handle: RemovableHandle | None = None

    @classmethod
    def hold(cls) -> None:
        """Put it there, or take it away."""
        is_wanted = bool(_ledgers or _ended)
        if is_wanted and cls.handle is None:
            cls.handle = register_optimizer_step_pre_hook(_before_step)
        elif not is_wanted and cls.handle is not None:
            cls.handle.remove()
            cls.handle = None


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - torch's signature
    if torch.compiler.is_compiling():  # Dynamo would have to trace what follows
        return
    for ledger in [*_ledgers, *_ended]:
        ledger.check(optimizer)
    if _ended:
        _ended.intersection_update([ledger for ledger in _ended if ledger.are_left])
        _Hook.hold()
