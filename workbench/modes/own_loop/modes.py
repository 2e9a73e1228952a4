"""`Modes`: compile, precision, attention and checkpoint in a loop of your own, in five lines.

    modes = wb.Modes("compile+bf16")
    model = modes.prepare(model)
    for x, y in loader:
        with modes.forward():
            loss = F.cross_entropy(model(x), y)
        with modes.update(loss, optimizer):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.zero_grad()

It is the mode set of an experiment (`workbench.modes.modeset`) with an interface for a loop that
the user writes: the numbers are those of an experiment to the last bit.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import nn

from workbench.modes.own_loop.blocks import ForwardBlock, UpdateBlock, check_optimizers
from workbench.modes.own_loop.state import READY, Loop

M = TypeVar("M", bound=nn.Module)


class Modes:
    """Modes for a training loop of your own: one object alongside model and optimizer.

    A prepared model keeps its class, its parameters and the names in its ``state_dict``; `remove`
    undoes the preparation, and so does the deletion of this object. The object does not keep a
    model, an optimizer or a loss alive. Use it on one thread.

    Args:
        modes: a mode string such as ``"compile+bf16"``; ``""`` changes nothing.

    Raises:
        TypeError: ``modes`` is not a string.
        ValueError: a mode or a value is unknown; the message lists the valid ones.
    """

    def __init__(self, modes: str = "") -> None:
        self._loop = Loop(modes)
        self._forward = ForwardBlock(self._loop)
        weakref.finalize(self, self._loop.give_back).atexit = False

    def prepare(self, model: M) -> M:
        """Run ``model`` under the modes from now on; returns the same object.

        Its device becomes the device of the modes: move it first. Several models, on one device,
        may be prepared one after the other. Compilation happens at the first forward.

        Raises:
            TypeError: it is not a `torch.nn.Module`.
            ValueError: this machine or the model cannot run the modes (the message says why, and
                what to do), or the model is on several devices, on the meta device, or on another
                device than the models before it.
            RuntimeError: it, or a part of it, is already prepared, or an experiment trains it.
        """
        self._loop.prepare(model)
        self._warn(model)
        return model

    def forward(self) -> AbstractContextManager[None]:
        """Return a context for forward and loss, and nothing else; add ``no_grad`` to evaluate.

        Raises:
            RuntimeError: no model is prepared, or an update was created and not entered.
        """
        if self._loop.stage > READY:
            self._loop.refuse("forward")
        return self._forward

    def update(
        self, loss: torch.Tensor, *optimizers: torch.optim.Optimizer
    ) -> AbstractContextManager[None]:
        """Return a context that runs backward from ``loss`` on entering and updates on leaving.

        Inside the block gradients are unscaled: clip, log or change them there. If the block
        raises, nothing is applied; clear the gradients then. With several optimizers, one backward
        serves all of them, and an fp16 overflow in any of them skips all. Calling ``zero_grad`` is
        left to you.

        The gradients that are unscaled inside are those that the optimizers hold, and all of the
        prepared models. Those that none of the optimizers holds carry the scale of fp16 again after
        the block; an overflow in them skips the update only if its gradients were changed in the
        block, for example by clipping to a norm that is not finite.

        Raises:
            TypeError: an argument is not a loss, or not an optimizer.
            RuntimeError: the loss has no graph, gradients were accumulated under different scales
                of fp16, or the call is out of place (the message says where it belongs).
        """
        return UpdateBlock(self._loop, "update", loss, optimizers)

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate the gradients of ``loss``, which `step` applies later: gradient accumulation.

        Under fp16 they are multiplied by the scale until `unscale` or `step` divides them; until
        then no optimizer may step on them, and its ``step()`` raises RuntimeError.

        Raises:
            TypeError: the loss is not a tensor.
            RuntimeError: it has no graph, its gradients were added to divided ones, or the call is
                out of place.
        """
        self._loop.backward(loss)

    def step(self, *optimizers: torch.optim.Optimizer) -> AbstractContextManager[None]:
        """Like `update`, with the gradients that `backward` has accumulated since the last one.

        Raises:
            TypeError: an argument is not an optimizer.
            RuntimeError: no gradients were accumulated, or the call is out of place.
        """
        return UpdateBlock(self._loop, "step", None, optimizers)

    def unscale(self, *optimizers: torch.optim.Optimizer) -> None:
        """Unscale the gradients before `step`: to clip or log them, or to move weights by them.

        Under fp16 the gradients that `backward` has accumulated are divided by the scale, in place,
        and checked: `overflowed` reports the result, and a `step` that follows does not divide them
        again. Gradients of the prepared models that none of these optimizers holds are unscaled as
        well, until the `step` or the next `backward`. Under other modes gradients are never scaled
        and nothing is done. Accumulate all gradients first; after ``optimizer.zero_grad()`` others
        may be accumulated, and `step` (or another `unscale`) divides these.

        Raises:
            TypeError: an argument is not an optimizer.
            ValueError: an optimizer is given twice, or gradients are in float16.
            RuntimeError: no gradients were accumulated, they were already divided, they carry
                different scales, or the call is out of place.
        """
        check_optimizers(optimizers, "unscale")
        self._loop.unscale(optimizers)

    def set(self, modes: str) -> None:
        """Continue under other modes, between two steps; an fp16 scaler's scale is carried over.

        Raises:
            TypeError, ValueError: as in the constructor and in `prepare`; nothing has changed.
            RuntimeError: called in the middle of a step, or while accumulated gradients wait for
                `step`.
        """
        self._loop.switch(modes)
        self._warn(*self.models)

    def remove(self) -> None:
        """Detach the modes from every model; the same or other models may be prepared afterwards.

        Raises:
            RuntimeError: called in the middle of a step.
        """
        self._loop.remove()

    @property
    def text(self) -> str:
        """The mode string as printed, such as ``"compile+bf16"``; ``"fp32"`` changes nothing."""
        return str(self._loop)

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """The prepared models that are still alive."""
        return tuple(self._loop.models())

    @property
    def skipped(self) -> bool:
        """Whether the last update was skipped, because gradients had overflowed in fp16."""
        return self._loop.skipped

    @property
    def overflowed(self) -> bool:
        """Whether divided gradients are not finite in fp16, so that `step` will skip them.

        This is about gradients that `unscale`, or the block that is open, has divided; reads the
        device if a fused optimizer decides there.
        """
        scaled = self._loop.scaled
        return scaled is not None and scaled.overflowed()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must have: the scale of an fp16 scaler. Call between steps."""
        return dict(self._loop.modeset.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a `state_dict` that was saved under any modes; the modes stay as they are.

        Raises:
            TypeError: it is not a mapping.
            RuntimeError: gradients that carry the current scale wait to be applied.
        """
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not type-check
            raise TypeError(f"state is a {type(state).__name__}; give what state_dict() returned")
        self._loop.load_state_dict(state)

    def _warn(self, *models: nn.Module) -> None:
        for note in self._loop.notes(models):
            warnings.warn(note, RuntimeWarning, stacklevel=3)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        names = ", ".join(type(model).__name__ for model in self._loop.models())
        return f"<wb.Modes {self.text!r}: {names or 'no model prepared'}>"
