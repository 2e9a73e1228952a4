"""Which gradients of a user's own loop carry the scale of fp16, and what may apply them.

Between ``modes.backward(loss)`` and the division by the scale, gradients are some 65,536 times too
large. In an experiment nothing could apply them in between; in a user's own loop,
``optimizer.step()`` in place of ``modes.step(optimizer)`` would silently destroy the weights. So
while a scaler is in use, every step of an optimizer is checked before it is taken (by torch's own
hook for all optimizers), and one that would apply such gradients is refused.

A gradient carries the scale if a scaled backward has written it. So gradients are inspected before
and after each backward: one that is another tensor afterwards, or was written, carries the scale
from then on, and that is recorded for the parameter (`_Note`). The same inspection shows whether
the backward has added to what was divided, which is refused at once, or to what carries another
scale, which is refused when it is to be divided. Notes are kept once for the process, as losses of
several `wb.Modes` may reach a parameter.

During an update, gradients of the models that its optimizers do not hold are divided too, so that a
norm over all parameters is a true one. After the update they carry the scale again, the one of that
moment: that is how gradients that wait for another update follow the scale.

What is inspected are the parameters of the models, those of the optimizers that the loop was seen
to use, and other leaves that a loss reaches, such as a learned temperature. The latter are only
known from the graph of a loss. Walking it takes a twentieth of a backward of tiny layers, so it is
done where it may show something new: in a few passes, where the number of nodes is one not seen
before, and for a while after a new leaf was found. For a loss whose graph was not walked, this is
done when an optimizer with unknown parameters takes its first step, as long as the loss is alive.
If it is not, such a step is refused before the update, and allowed after it: by far most such
optimizers train something else.

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

from workbench.torch_private.autograd import current_sequence
from workbench.torch_private.graph_leaves import leaves_of
from workbench.torch_private.tensors import version_of

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from workbench.modes.precision.scaler import GradientScaler

_STEP_CODE = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__
"""Code of the frame that every ``optimizer.step`` runs in."""
_WALKS = 8
"""Number of passes whose graphs are walked after one that reached a new leaf."""
_MOST_SIZES = 1_000
"""Maximum number of graphs that are distinguished by their number of nodes."""

DIVIDED, LENT, MIXED, UNKNOWN = "divided", "lent", "mixed", "unknown"
"""What is known about a gradient that does not simply carry a scale: it was divided; it was
divided until the update that does not apply it is over; it is a sum of gradients with different
scales; it may have been reached by a loss that no longer exists."""


class _Note(NamedTuple):
    """What is known about one gradient."""

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int
    """How often the gradient had been written when this was recorded."""
    scale: float | GradientScaler | str
    """The scale that it carries (`GradientScaler.carried`), or one of `DIVIDED`, `LENT`,
    `MIXED`, `UNKNOWN`."""
    ledger: ScaledGradients

    @property
    def is_of_now(self) -> bool:
        """Whether the parameter still has this very gradient."""
        parameter, gradient = self.parameter(), self.gradient()
        return parameter is not None and gradient is not None and parameter.grad is gradient


class _Pass(NamedTuple):
    """A backward pass from a loss whose graph was not walked."""

    loss: weakref.ref[torch.Tensor]
    scale: float | GradientScaler


_Before = dict[int, tuple[torch.Tensor, torch.Tensor, int]]
"""``id`` of each parameter with a gradient -> both, and how often the gradient was written."""


class ScaledGradients:
    """What is known about the gradients of one `workbench.Modes` under a scaler."""

    def __init__(self, scaler: GradientScaler) -> None:
        self.scaler = scaler
        scaler.keeps_unscaled = True
        self._models: list[weakref.ref[nn.Module]] = []
        self._of_models: set[int] = set()
        """``id`` of the parameters of the models."""
        self._watched: list[weakref.ref[torch.Tensor]] = []
        """Parameters and leaves whose gradients are inspected."""
        self._watched_ids: set[int] = set()
        self._met: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        """Optimizers that stepped by themselves, whose parameters are watched -> how many they
        have."""
        self.is_open = False
        """Whether there were backward passes since the last update."""
        self._not_walked: list[_Pass] = []
        """Of these, the passes whose graphs were not walked."""
        self._not_walked_before: list[_Pass] = []
        """The same for the passes that the last update closed."""
        self._num_passes = 0
        self._last_node = 0
        """Number of the autograd node that was next at the end of the last pass."""
        self._sizes: set[int] = set()
        """Numbers of nodes, from one pass to the next, of graphs that were walked."""
        self._walks_left = 0
        self.before: _Before | None = None
        """Gradients as they were, while a pass is running."""
        self.applying: Sequence[Optimizer] = ()
        """Optimizers of the open block: their gradients are divided."""
        self._lent: list[_Note] = []
        """Gradients of the models that no optimizer of the update holds: divided until the
        update is over, so that a norm over all parameters is a true one."""
        self._as_divided: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """Gradients of the update and how often they were written, if some of `_lent` are not
        finite: writing one of them then, as clipping to a norm that is not finite does, spoils
        the update."""
        self.is_stepping = False
        """Whether the scaler itself is making an update."""
        self.thread = 0

    # -- what is tracked ----------------------------------------------------------------------

    def start(self, models: Iterable[nn.Module]) -> None:
        """Check every optimizer's step from now on."""
        self._models = [weakref.ref(model) for model in models]
        self._watch_models()
        with _lock:
            _ledgers.add(self)
        _Hook.hold()

    def stop(self) -> None:
        """Undo `start`; idempotent.

        Gradients that are still scaled are tracked as long as they exist.
        """
        with _lock:
            _ledgers.discard(self)
        for key, note in list(_notes.items()):
            if note.ledger is self and note.scale in (DIVIDED, LENT):
                del _notes[key]
        self._lent = []
        self._close()
        _Hook.hold()

    # -- what happens to gradients --------------------------------------------------------------

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward from ``loss``, scaled.

        Raises:
            RuntimeError: it is called inside the step of an optimizer, has added scaled gradients
                to divided ones, or the model is sharded in a way in which overflows are not seen.
        """
        _refuse_closure(sys._getframe())  # pyright: ignore[reportPrivateUsage] - as `inspect` does, without its cost
        self.thread = threading.get_ident()
        self._take_back()
        scale = self.scaler.carried
        self._walk_if_new(loss, scale)
        before: _Before = {id(p): (p, g, _version(g)) for p, g in self._gradients()}
        complete = self._complete(before, scale) if before or self.scaler.has_any_unscaled else {}
        self.before, self.is_open = before, True
        try:
            self.scaler.backward(loss)
        finally:
            self.before = None
            mixed = self._note_written(before, complete, scale)
            self._last_node = _next_node()
        if mixed:
            raise RuntimeError(
                "modes.backward(loss) has added gradients that are multiplied by "
                f"{self.scaler.scale:,.6g} to ones that were divided already "
                f"({self._named(mixed)}): gather all gradients before modes.unscale(optimizer), or "
                "call optimizer.zero_grad() after it; these cannot be used, call it now"
            )

    def divide(self, optimizers: Sequence[Optimizer], *, block: bool) -> None:
        """Divide scaled gradients of ``optimizers``, and those of other parameters of the models.

        Args:
            optimizers: those whose gradients are to be unscaled.
            block: whether they are unscaled only in a block, which ends with `apply` or `give_up`.

        Raises:
            RuntimeError: some carry a scale other than the current one.
        """
        parameters = _parameters(optimizers)
        held = set(map(id, parameters))
        if not held <= self._watched_ids:
            self._watch(parameters)
        rest = [one for one in optimizers if not self.scaler.has_unscaled(one)]
        if rest:
            self._take_back()
        done, others = self._known_of(held)
        if rest:
            self.scaler.unscale(*rest, done=done)
        for key in held:
            _notes.pop(key, None)
        if block:
            self.applying = optimizers
        else:
            self._note_divided(optimizers)
        if others:
            self._lend(others, optimizers)

    def _known_of(self, held: set[int]) -> tuple[set[int], list[torch.Tensor]]:
        """Find, in ``held``, the ``id`` of divided ones; in the rest of the models, scaled ones.

        Raises:
            RuntimeError: what is held carries a scale other than the current one.
        """
        scale, done, others = self.scaler.carried, set[int](), list[torch.Tensor]()
        for key, note in list(_notes.items()):
            if note.scale == scale and key in held:  # as nearly all are
                continue
            parameter = note.parameter()
            if parameter is None or parameter.grad is None:
                continue
            if note.scale == DIVIDED:
                done |= held & {key}
            elif not (note.is_of_now or self._may_carry(note)):
                continue
            elif key not in held:
                if note.scale == scale and key in self._of_models:
                    others.append(parameter)
            elif note.scale != UNKNOWN and _has_values(parameter.grad):
                raise RuntimeError(
                    f"the optimizer has gradients that {self._named([parameter])} got under "
                    "another scale, or under several: by losses of different wb.Modes, before a "
                    "state was loaded, or after an error that was ignored; call "
                    "optimizer.zero_grad() in between, and now, since these cannot be used"
                )
        return done, others

    def apply(self, optimizers: Sequence[Optimizer]) -> bool:
        """Update, unless gradients overflowed; return False if it was skipped."""
        if self._is_spoilt(optimizers):
            self.scaler.skip(*optimizers)
        self.is_stepping = True
        try:
            applied = self.scaler.step(*optimizers)
        except BaseException:
            self._note_divided(optimizers)
            raise
        else:
            for parameter in _parameters(optimizers):
                _notes.pop(id(parameter), None)
        finally:
            self.is_stepping = False
            self._close()
        return applied

    def give_up(self, optimizers: Sequence[Optimizer]) -> None:
        """Make no update of the block that was open; gradients stay divided."""
        self._note_divided(optimizers)
        self._close()

    def pass_over(self, optimizers: Sequence[Optimizer]) -> None:
        """Do one step of each optimizer; they have no gradients to apply."""
        for optimizer in optimizers:
            optimizer.step()
        self._close()

    def has_divided(self, optimizers: Iterable[Optimizer]) -> bool:
        """Whether the gradients of any were divided since the last update."""
        return any(map(self.scaler.has_unscaled, optimizers))

    def overflowed(self) -> bool:
        """Whether divided gradients that still wait for an update are not finite."""
        waiting = [
            one
            for one in self.scaler.unscaled()
            if self.is_open or next(_gradients_of([one]), None) is not None
        ]
        return bool(waiting) and self.scaler.overflowed(*waiting)

    def _close(self) -> None:
        """Close the period of an update: what was accumulated does not concern the next one."""
        self.applying, self._as_divided = (), {}
        self._take_back()
        self.is_open = False
        self._not_walked_before, self._not_walked = self._not_walked, []
        for key, note in list(_notes.items()):
            if note.ledger is self and not note.is_of_now:
                del _notes[key]

    def _complete(self, before: _Before, scale: float | GradientScaler) -> dict[int, Any]:
        """What must not be added to: ``id`` of a parameter -> `DIVIDED`, or the scale it carries.

        Optimizers that no longer have such gradients no longer count as divided.
        """
        unscaled, found = self.scaler.unscaled(), dict[int, Any]()
        held = {id(parameter) for parameter, _ in _gradients_of(unscaled)}
        for key, (parameter, gradient, version) in before.items():
            note, known_version = _notes.get(key), -1
            if note is not None and note.gradient() is gradient:
                kind, known_version = note.scale, note.version
            elif key in held:  # another tensor was put in the place of one that was divided
                kind = DIVIDED
                self._note(parameter, gradient, kind)
            else:
                continue
            if kind in (scale, UNKNOWN):
                continue
            if known_version == version or _has_values(gradient):
                found[key] = kind
        for optimizer in unscaled:
            if not any(id(parameter) in found for parameter, _ in _gradients_of([optimizer])):
                self.scaler.forget(optimizer)
        return found

    def _note_written(
        self, before: _Before, complete: dict[int, Any], scale: float | GradientScaler
    ) -> list[torch.Tensor]:
        """Record what a pass has written; return the divided ones that it has added to.

        A sum under several scales does no harm if nothing applies it; `divide` refuses it.
        """
        mixed: list[torch.Tensor] = []
        written: set[int] = set()
        for parameter, gradient in self._gradients():
            key, version, kind = id(parameter), _version(gradient), scale
            if before:
                old = before.get(key)
                if old is not None and old[1] is gradient and old[2] == version:
                    continue
                if key in complete:
                    kind = MIXED
                    if complete[key] == DIVIDED:
                        mixed.append(parameter)
                written.add(key)
            _notes[key] = _Note(weakref.ref(parameter), weakref.ref(gradient), version, kind, self)
        for optimizer in self.scaler.unscaled() if before else ():
            if any(id(parameter) in written for parameter, _ in _gradients_of([optimizer])):
                self.scaler.forget(optimizer)
        return mixed

    def _note_divided(self, optimizers: Sequence[Optimizer]) -> None:
        """Record that the gradients of ``optimizers`` are divided."""
        for parameter, gradient in _gradients_of(optimizers):
            self._note(parameter, gradient, DIVIDED)

    def _note(
        self, parameter: torch.Tensor, gradient: torch.Tensor, scale: float | GradientScaler | str
    ) -> _Note:
        note = _Note(weakref.ref(parameter), weakref.ref(gradient), _version(gradient), scale, self)
        _notes[id(parameter)] = note
        return note

    # -- what is true during an update and scaled after it ---------------------------------------

    def _lend(self, parameters: list[torch.Tensor], optimizers: Sequence[Optimizer]) -> None:
        """Divide the gradients of ``parameters``, which no optimizer of the update holds."""
        is_finite = self.scaler.unscale_others(parameters)
        for parameter in parameters:
            if parameter.grad is not None:
                self._lent.append(self._note(parameter, parameter.grad, LENT))
        if not is_finite:
            for parameter, gradient in _gradients_of(optimizers):
                version = _version(gradient)
                self._as_divided.setdefault(id(parameter), (weakref.ref(gradient), version))

    def _take_back(self) -> None:
        """Multiply what was lent by the current scale."""
        if not self._lent:
            return
        lent, self._lent = self._lent, []
        there: list[torch.Tensor] = []
        for note in lent:
            parameter = note.parameter()
            if parameter is None or _notes.get(id(parameter)) is not note:
                continue
            del _notes[id(parameter)]
            there.append(parameter)
        self.scaler.scale_again(there)
        for parameter in there:
            if parameter.grad is not None:
                self._note(parameter, parameter.grad, self.scaler.carried)

    def _is_spoilt(self, optimizers: Sequence[Optimizer]) -> bool:
        """Whether gradients of the update were written while others were not finite."""
        if not self._as_divided:
            return False
        nothing = (None, 0)
        return any(
            (old := self._as_divided.get(id(p), nothing))[0] is None
            or old[0]() is not g
            or old[1] != _version(g)
            for p, g in _gradients_of(optimizers)
        )

    # -- a step that was not requested here -----------------------------------------------------

    def check_overflow(self, optimizer: Optimizer, gradients: _Gradients) -> None:
        """Refuse a step of ``optimizer`` on gradients that were divided and are not finite."""
        if not self.scaler.unscaled():
            return
        in_block = {id(parameter) for parameter, _ in _gradients_of(self.applying)}
        divided = {
            key
            for key in gradients
            if key in in_block
            or ((note := _notes.get(key)) is not None and note.scale == DIVIDED and note.is_of_now)
        }
        sharing = [
            one
            for one in (self.scaler.unscaled() if divided else ())
            if any(id(parameter) in divided for parameter, _ in _gradients_of([one]))
        ]
        if sharing and (self.scaler.overflowed(*sharing) or self._is_spoilt(sharing)):
            raise RuntimeError(
                f"{type(optimizer).__name__}.step() was given gradients that overflowed in fp16 "
                "and are not finite; nothing was updated: `with modes.step(optimizer): pass` skips "
                "such an update and lowers the scale"
            )

    def check_scaled(self, optimizer: Optimizer, gradients: _Gradients) -> None:
        """Refuse a step of ``optimizer`` on gradients that carry a scale."""
        is_certain, scaled = True, list[torch.Tensor]()
        for key, (parameter, gradient) in gradients.items():
            note = _notes.get(key)
            if note is not None and note.ledger is self and note.parameter() is parameter:
                if note.scale == DIVIDED or not (note.is_of_now or self._may_carry(note)):
                    continue
                is_certain = is_certain and note.is_of_now and note.scale != UNKNOWN
                scaled.append(parameter)
            elif self.before is not None and key in self._watched_ids:  # in a hook of a backward
                _, old, version = self.before.get(key, (None, None, 0))
                if old is not gradient or version != _version(gradient):
                    scaled.append(parameter)
        if scaled:
            raise RuntimeError(
                f"{type(optimizer).__name__}.step() was given gradients that are multiplied by "
                f"{self.scaler.scale:,.6g}, the scale of fp16 ({self._named(scaled)}); nothing was "
                f"updated: {_WAITING if self.is_open else _LEFT}{'' if is_certain else _DOUBT}"
            )

    def has_nothing_for(self, optimizer: Optimizer) -> bool:
        """Whether, without any note, there is nothing against a step of ``optimizer``."""
        if self.before is not None or self.applying:
            return False
        if threading.get_ident() != self.thread:
            return True
        return self._met.get(optimizer) == _num_parameters(optimizer)

    def meet(self, optimizer: Optimizer, gradients: _Gradients) -> None:
        """Find out what passes have written of unknown parameters, which are watched afterwards."""
        parameters = _parameters([optimizer])
        self._met[optimizer] = _num_parameters(optimizer)
        if {id(parameter) for parameter in parameters} <= self._watched_ids:
            return
        unknown = {
            key: found
            for key, found in gradients.items()
            if key not in self._watched_ids and key not in _notes
        }
        if unknown:
            gone: list[_Pass] = []
            for one in (*self._not_walked_before, *self._not_walked):
                loss = one.loss()
                for leaf in [] if loss is None else leaves_of(loss):
                    if id(leaf) not in self._watched_ids and leaf.grad is not None:
                        self._note(leaf, leaf.grad, one.scale)
                if loss is None and one in self._not_walked:
                    gone.append(one)
            for key, (parameter, gradient) in unknown.items() if gone else ():
                if key not in _notes:
                    self._note(parameter, gradient, UNKNOWN)
        self._watch(parameters)

    def _may_carry(self, note: _Note) -> bool:
        """Whether what has replaced a gradient may have been computed from it."""
        return self.is_open and note.ledger is self and note.scale != UNKNOWN

    # -- what is inspected --------------------------------------------------------------------

    def _gradients(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What is watched and has a gradient, together with the gradient."""
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        is_any_dead = False
        for reference in self._watched:
            parameter = reference()
            if parameter is None:
                is_any_dead = True
            elif (gradient := parameter.grad) is not None:
                found.append((parameter, gradient))
        if is_any_dead:
            self._drop_dead()
        return found

    def _watch(self, parameters: Iterable[torch.Tensor]) -> None:
        """Watch ``parameters`` too from now on."""
        self._drop_dead()
        for parameter in parameters:
            if id(parameter) not in self._watched_ids:
                self._watched_ids.add(id(parameter))
                self._watched.append(weakref.ref(parameter))

    def _watch_models(self) -> None:
        own = [parameter for model in self._alive() for parameter in model.parameters()]
        self._of_models = set(map(id, own))
        self._watch(own)

    def _drop_dead(self) -> None:
        """Forget what was deleted: another tensor may have its ``id`` by now."""
        alive = [(one, parameter) for one in self._watched if (parameter := one()) is not None]
        self._watched = [one for one, _ in alive]
        self._watched_ids = {id(parameter) for _, parameter in alive}

    def _walk_if_new(self, loss: torch.Tensor, scale: float | GradientScaler) -> None:
        """Find leaves that ``loss`` reaches and that are not known, if there may be any."""
        self._num_passes += 1
        node: Any = loss.grad_fn
        size = -1 if node is None else node._sequence_nr() - self._last_node
        is_new = size not in self._sizes and len(self._sizes) < _MOST_SIZES
        if is_new:
            self._sizes.add(size)
        is_power_of_two = self._num_passes & (self._num_passes - 1) == 0
        if is_new or self._walks_left or is_power_of_two:
            self._walk(loss)
        else:
            self._not_walked.append(_Pass(weakref.ref(loss), scale))

    def _walk(self, loss: torch.Tensor) -> None:
        self._drop_dead()
        leaves = leaves_of(loss)
        if any(map(_is_flat, leaves)):
            raise RuntimeError(
                "fp16 cannot be scaled under FullyShardedDataParallel: each rank sees an overflow "
                "in its own shard alone, and ranks would skip different updates; shard the model "
                "by torch.distributed.fsdp.fully_shard, or use bf16"
            )
        new = [leaf for leaf in leaves if id(leaf) not in self._watched_ids]
        self._walks_left = _WALKS if new else max(0, self._walks_left - 1)
        if any(isinstance(leaf, nn.Parameter) for leaf in new):
            self._watch_models()  # they may have gained it since
        self._watch(new)

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


_Gradients = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""``id`` of each parameter with a gradient -> both."""


def _parameters(optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    return [p for one in optimizers for group in one.param_groups for p in group["params"]]


def _num_parameters(optimizer: Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _gradients_of(optimizers: Iterable[Optimizer]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each parameter that has a gradient, with the gradient."""
    for parameter in _parameters(optimizers):
        if parameter.grad is not None:
            yield parameter, parameter.grad


def _has_values(gradient: torch.Tensor) -> bool:
    """Whether it is not all zero, as ``zero_grad(set_to_none=False)`` makes it; reads it."""
    local = _local(gradient)
    values = local.coalesce().values() if local.is_sparse else local
    return bool((values != 0).any())


def _version(gradient: torch.Tensor) -> int:
    """How often it was written in place."""
    # looking up an attribute that a plain tensor lacks takes ten times as long as the rest
    return version_of(gradient if type(gradient) is torch.Tensor else _local(gradient))


def _local(gradient: torch.Tensor) -> torch.Tensor:
    """The local part on a rank: FSDP adds to the shard, which the `DTensor` does not notice."""
    local: torch.Tensor = getattr(gradient, "_local_tensor", gradient)
    return local


def _is_flat(leaf: torch.Tensor) -> bool:
    """Whether it is what the older FSDP shards over several ranks."""
    return bool(getattr(leaf, "_is_flat_param", False)) and dist.get_world_size() > 1


def _next_node() -> int:
    """Number that the next autograd node of this thread gets."""
    return current_sequence()


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


_notes: dict[int, _Note] = {}
"""``id`` of a parameter -> what is known of its gradient."""
_ledgers: weakref.WeakSet[ScaledGradients] = weakref.WeakSet()
_lock = threading.RLock()
"""Protects `_ledgers`: a step on another thread iterates over them."""


def _are_left() -> bool:
    """Whether there are still scaled gradients; forgets those that no longer are."""
    for key, note in list(_notes.items()):
        if not note.is_of_now:
            _notes.pop(key, None)
    return bool(_notes)


class _Hook:
    """The one hook on the steps of all optimizers, installed while a scaler is in use."""

    handle: RemovableHandle | None = None

    @classmethod
    def hold(cls) -> None:
        """Install it, or remove it."""
        is_wanted = bool(_ledgers) or _are_left()
        if is_wanted and cls.handle is None:
            cls.handle = register_optimizer_step_pre_hook(_before_step)
        elif not is_wanted and cls.handle is not None:
            cls.handle.remove()
            cls.handle = None


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - torch's signature
    if torch.compiler.is_compiling():  # Dynamo would have to trace what follows
        return
    with _lock:
        ledgers = list(_ledgers)
    thread = threading.get_ident()
    here = [one for one in ledgers if one.thread == thread]
    if any(one.is_stepping for one in here):
        return
    if not _notes and all(one.has_nothing_for(optimizer) for one in ledgers):
        return
    gradients = {id(p): (p, g) for p, g in _gradients_of([optimizer])}
    for ledger in here:
        ledger.meet(optimizer, gradients)
        ledger.check_overflow(optimizer, gradients)
    ended = {note.ledger for note in list(_notes.values())}.difference(ledgers)
    for ledger in (*ledgers, *ended):
        ledger.check_scaled(optimizer, gradients)
    if not ledgers:
        _Hook.hold()
