"""What a `workbench.Modes` consists of: a mode set, the models it runs, and where the loop is.

A mode is only right in its place: autocast around forward and nothing else, gradients unscaled
once, before anything reads them. An experiment puts every hook in its place itself; a user's own
loop can get it wrong, and would silently train wrongly. So the position of the loop is tracked
here, and every call out of place is refused with a message that says where it belongs.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from workbench.modes.core.model_lock import device_of, leave, take
from workbench.modes.mode_spec import check_modes, read_modes
from workbench.modes.modeset import ModeSet
from workbench.modes.precision.mode import Precision
from workbench.modes.precision.scaled_gradients import ScaledGradients
from workbench.torch_private.self_check import notes_of

EMPTY, GIVEN, READY, UPDATING = 2, 1, 0, -1
"""Position of a loop: no model yet; an update was created and not entered; between two blocks,
or in forward; in the block of an update."""


class Loop:
    """The state of one `workbench.Modes`; it holds no model, no optimizer and no loss."""

    def __init__(self, text: Any) -> None:
        self.modeset = _read(text, torch.device("cpu"))
        self.stage = EMPTY
        self.open: list[AbstractContextManager[Any] | None] = []
        """The contexts of the open forward blocks, the outermost first."""
        self.pending = 0
        """Number of backward passes since the last update."""
        self.skipped = False
        self.scaled: ScaledGradients | None = None
        """Scaled gradients of fp16; None if nothing is scaled."""
        self._unscaled: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = (
            weakref.WeakKeyDictionary()
        )
        """Optimizers that `unscale` was called with -> how many backward passes there had been."""
        self._num_passes = 0
        self._models: list[tuple[weakref.ref[nn.Module], weakref.ref[nn.Module], str]] = []
        """Each with the module and the name of one tensor in it, which shows the device that it
        is on."""

    def __str__(self) -> str:
        return str(self.modeset)

    def runs(self, modeset: object) -> bool:
        """Whether ``modeset`` is the one of this loop."""
        return modeset is self.modeset

    def models(self) -> list[nn.Module]:
        """Models that are prepared and still alive."""
        return [model for reference, *_ in self._models if (model := reference()) is not None]

    def notes(self, models: Sequence[nn.Module]) -> tuple[str, ...]:
        """What this torch lacks, and which modes have no effect on ``models``."""
        of_models = [note for model in models for note in self.modeset.notes(model)]
        without = [f"{note}; it can be left out" for note in of_models]
        return tuple(dict.fromkeys([*_notes_on_torch(self.modeset), *without]))

    # -- changing models and modes ----------------------------------------------------------

    def prepare(self, model: nn.Module) -> None:
        """Run ``model`` under the modes from now on."""
        self.refuse_inside("prepare")
        device, others = device_of(model), self.models()
        if others and device != self.modeset.device:
            raise ValueError(
                f"{type(model).__name__} is on {device}, and {type(others[0]).__name__}, which "
                f"is prepared, on {self.modeset.device}; give each device a wb.Modes of its own"
            )
        modeset = self.modeset
        if device != modeset.device:
            modeset = _moved(modeset, device)
        check_modes(modeset, model)
        _notes_on_torch(modeset)
        take(model, self)
        self.modeset = modeset
        try:
            modeset.attach(model)
        except BaseException:
            modeset.detach(model)
            leave(model)
            raise
        self._models = [kept for kept in self._models if kept[0]() is not None]
        self._models.append((weakref.ref(model), *_first_tensor(model)))
        self.stage = READY
        self._watch_gradients()

    def switch(self, text: Any) -> None:
        """Continue under the modes of ``text``; a scaler's scale is carried over."""
        self.refuse_inside("set")
        models = self.models()
        modeset = _read(text, self.modeset.device)
        for model in models:
            check_modes(modeset, model)
        _notes_on_torch(modeset)
        if modeset == self.modeset:
            return
        self._refuse_waiting(models, "switch")
        self.pending = 0
        modeset.load_state_dict(self.modeset.state_dict())
        self._detach(models)
        before, self.modeset = self.modeset, modeset
        try:
            self._attach(models)
        except BaseException:
            self._detach(models)
            self.modeset = before
            self._attach(models)
            raise
        self._watch_gradients()

    def remove(self) -> None:
        """Detach the modes from every model, which is then as it was passed."""
        self.refuse_inside("remove")
        self.give_back()

    def give_back(self) -> None:
        """`remove`, wherever the loop is."""
        models = self.models()
        self._detach(models)
        for model in models:
            leave(model)
        self._models.clear()
        self.stage, self.pending = EMPTY, 0
        if self.scaled is not None:
            self.scaled.stop()
            self.scaled = None

    def _attach(self, models: list[nn.Module]) -> None:
        for model in models:
            self.modeset.attach(model)

    def _detach(self, models: list[nn.Module]) -> None:
        for model in reversed(models):
            self.modeset.detach(model)

    # -- a step -----------------------------------------------------------------------------

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of ``loss``, scaled if a scaler is in use."""
        if self.stage or self.open:
            self.refuse("backward")
        if not isinstance(loss, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not type-check
            raise TypeError(f"a loss is a tensor, got {type(loss).__name__}; it comes first")
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss has no graph to go backward through: it was computed under no_grad() or "
                "from detached values, or nothing in it is trainable"
            )
        if self.modeset.changes:
            self._refuse_moved()
        self._num_passes += 1
        if self.scaled is None:
            self.modeset.backward(loss)
        else:
            self.scaled.backward(loss)
        self.pending += 1

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Unscale the gradients of ``optimizers`` before their update."""
        if self.stage == UPDATING:
            raise RuntimeError(
                "gradients are divided already inside modes.update(...) and modes.step(...); "
                "modes.unscale(optimizer) comes between modes.backward(loss) and modes.step(...)"
            )
        if self.stage or self.open:
            self.refuse("unscale")
        if not self.pending:
            raise RuntimeError(
                "modes.unscale(...) has no gradients to divide: modes.backward(loss) runs backward "
                "first"
            )
        for optimizer in optimizers:
            if self._unscaled.get(optimizer) == self._num_passes:
                raise RuntimeError(
                    f"modes.unscale(...) was given a {type(optimizer).__name__} whose gradients "
                    "it has divided already; once is enough until the next modes.backward(loss): "
                    "go on with `with modes.step(optimizer): ...`"
                )
        if self.scaled is not None:
            self.scaled.divide(optimizers, block=False)
        self._unscaled.update(dict.fromkeys(optimizers, self._num_passes))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the modes; not while gradients carry another scale."""
        if self.scaled is not None:
            self._refuse_waiting(self.models(), "load a state")
        self.modeset.load_state_dict(state)

    def _watch_gradients(self) -> None:
        """Have the gradients of a scaler tracked, for the current modes and models."""
        precision = self.modeset[Precision.name]
        scaler = precision.scaler if isinstance(precision, Precision) else None
        if self.scaled is not None and self.scaled.scaler is not scaler:
            self.scaled.stop()
            self.scaled = None
        if scaler is not None:
            self.scaled = self.scaled or ScaledGradients(scaler)
            self.scaled.start(self.models())

    def refuse(self, what: str) -> None:
        """Raise for a call of ``what`` at the current position of the loop.

        Raises:
            RuntimeError: always; the message says what comes first.
        """
        if self.stage == EMPTY:
            raise RuntimeError(
                f"modes.{what}(...) needs a model; before the loop: model = modes.prepare(model)"
            )
        if self.stage == GIVEN:
            self.stage = READY  # reported once: the corrected cell finds a loop that works
            raise RuntimeError(
                "modes.update(...) or modes.step(...) was called and not entered, so nothing was "
                "updated; write `with modes.update(loss, optimizer): pass` where nothing is clipped"
            )
        where = "modes.forward()" if self.open else "modes.update(...) or modes.step(...)"
        raise RuntimeError(f"modes.{what}(...) comes after the block of {where}, not inside it")

    def refuse_inside(self, what: str) -> None:
        """Refuse ``what`` in the middle of a step."""
        if self.open or self.stage == UPDATING:
            self.refuse(what)
        if self.stage == GIVEN:
            self.stage = READY  # an update that was given up

    def _refuse_moved(self) -> None:
        """Refuse a moved model: modes are bound to a device, and would do nothing on another."""
        for reference, holder, name in self._models:
            tensor = getattr(holder(), name, None)
            if tensor is not None and tensor.device != self.modeset.device:
                model = type(reference()).__name__
                raise RuntimeError(
                    f"{model} was prepared on {self.modeset.device} and is on {tensor.device} now; "
                    "call modes.remove(), then modes.prepare(model) again"
                )

    def _refuse_waiting(self, models: list[nn.Module], what: str) -> None:
        """Refuse if scaled gradients would be applied as they are, or divided by another scale."""
        if self.pending and any(p.grad is not None for m in models for p in m.parameters()):
            raise RuntimeError(
                f"the gradients of {self.pending} backward passes wait to be applied; {what} after "
                "`with modes.step(optimizer)`, or after optimizer.zero_grad()"
            )


def _first_tensor(model: nn.Module) -> tuple[weakref.ref[nn.Module], str]:
    """Module and name of the first tensor, which `nn.Module.to` may replace by another one."""
    return next(
        (weakref.ref(module), name)
        for module in model.modules()
        for name, _ in (
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        )
    )


def _moved(modeset: ModeSet, device: torch.device) -> ModeSet:
    """The same modes on ``device``, with their state."""
    moved = ModeSet.parse(str(modeset), device)
    moved.load_state_dict(modeset.state_dict())
    return moved


def _notes_on_torch(modeset: ModeSet) -> tuple[str, ...]:
    """Return what this torch lacks for a step under ``modeset``; raise if that is vital."""
    return (*notes_of("training"), *(notes_of("compile") if modeset.compiled else ()))


def _read(text: Any, device: torch.device) -> ModeSet:
    """Return the modes of ``text``, which a loop in this process can have.

    Raises:
        TypeError, ValueError: as `read_modes`; or if ranks are requested.
    """
    modeset = read_modes(text, device)
    if modeset.is_remote:
        layout = modeset["parallel"].value
        raise ValueError(
            f"{layout} starts worker processes, which an Experiment does (exp.modes = {layout!r}); "
            "a loop of your own starts its ranks with torchrun and wraps the model in "
            "DistributedDataParallel or fully_shard itself"
        )
    return modeset
