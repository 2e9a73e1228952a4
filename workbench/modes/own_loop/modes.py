"""`Modes`: compile, precision, attention and checkpoint in a loop of one's own, in five lines.

    modes = wb.Modes("compile+bf16")
    model = modes.prepare(model)
    for x, y in loader:
        with modes.forward():
            loss = F.cross_entropy(model(x), y)
        with modes.update(loss, optimizer):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.zero_grad()

It is the mode set of an experiment (`workbench.modes.modeset`) with a face for a loop that somebody
else writes: the numbers are an experiment's to the last bit.
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
    """The modes of a training loop that is yours: one object beside model and optimizer.

    A model that is prepared keeps its class, its parameters and the names in its ``state_dict``; it
    is given back as it was by `remove`, and when this object is gone. Nothing here keeps a model,
    an optimizer or a loss alive. Use it on one thread.

    Args:
        modes: a mode string such as ``"compile+bf16"``; ``""`` changes nothing.

    Raises:
        TypeError: ``modes`` is no string.
        ValueError: a mode or a value is unknown; the valid ones are listed.
    """

    def __init__(self, modes: str = "") -> None:
        self._loop = Loop(modes)
        self._forward = ForwardBlock(self._loop)
        weakref.finalize(self, self._loop.give_back).atexit = False

    def prepare(self, model: M) -> M:
        """Run ``model`` under the modes from now on; the very same object is returned.

        Its device is the modes' device: move it first. Several models, on one device, may be
        prepared one after the other. Compiling happens at the first forward.

        Raises:
            TypeError: it is no `torch.nn.Module`.
            ValueError: this machine or the model cannot run the modes (why, and what to do), or it
                lies on several devices, on the meta device, or on another than those before it.
            RuntimeError: it, or a part of it, is prepared already, or an experiment trains it.
        """
        self._loop.prepare(model)
        self._warn_of_no_effect(model)
        return model

    def forward(self) -> AbstractContextManager[None]:
        """Enter it around forward and loss, and nothing else; with ``no_grad`` to evaluate.

        Raises:
            RuntimeError: no model is prepared, or an update was made and not entered.
        """
        if self._loop.stage > READY:
            self._loop.refuse("forward")
        return self._forward

    def update(
        self, loss: torch.Tensor, *optimizers: torch.optim.Optimizer
    ) -> AbstractContextManager[None]:
        """Backward from ``loss`` on entering, the update on leaving; gradients are true inside.

        Clip, log or change gradients in the block. If it raises, nothing is applied; clear the
        gradients then. With several optimizers one backward serves all of them, and an fp16
        overflow in any skips all. ``zero_grad`` stays yours.

        True inside are the gradients that the optimizers hold, and all of the prepared models.
        Those that none of the optimizers holds carry the scale of fp16 again after the block; an
        overflow in them skips the update only if its gradients were changed in the block, as by
        clipping to a norm that is not finite.

        Raises:
            TypeError: what was given is no loss, or no optimizer.
            RuntimeError: the loss has no graph, gradients were gathered under different scales of
                fp16, or the call is out of its place (which is said).
        """
        return UpdateBlock(self._loop, "update", loss, optimizers)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of ``loss``, to be applied by `step`: gradient accumulation.

        Under fp16 they are multiplied by the scale until `unscale` or `step` divides them; until
        then no optimizer may step on them, and its ``step()`` raises RuntimeError.

        Raises:
            TypeError: it is no tensor.
            RuntimeError: it has no graph, its gradients were added to divided ones, or the call is
                out of its place.
        """
        self._loop.backward(loss)

    def step(self, *optimizers: torch.optim.Optimizer) -> AbstractContextManager[None]:
        """`update` with the gradients that `backward` has gathered since the last one.

        Raises:
            TypeError: what was given is no optimizer.
            RuntimeError: nothing was gathered, or the call is out of its place.
        """
        return UpdateBlock(self._loop, "step", None, optimizers)

    def unscale(self, *optimizers: torch.optim.Optimizer) -> None:
        """Make gradients true before `step`: to clip or log them there, or to move weights by them.

        Under fp16 the gradients that `backward` has gathered are divided by the scale, in place,
        and looked at: `overflowed` says what was found, and a `step` that follows does not divide
        them again. Of the prepared models those that no optimizer here holds are true as well,
        until the `step` or the next `backward`. Under other modes they are true already and nothing
        is done. Gather all gradients first; after ``optimizer.zero_grad()`` others may be gathered,
        and `step` (or another `unscale`) divides these.

        Raises:
            TypeError: what was given is no optimizer.
            ValueError: an optimizer twice, or gradients in float16.
            RuntimeError: nothing was gathered, it was divided already, it carries different scales,
                or the call is out of its place.
        """
        check_optimizers(optimizers, "unscale")
        self._loop.unscale(optimizers)

    def set(self, modes: str) -> None:
        """Go on under other modes, between two steps; the scale of an fp16 scaler is carried.

        Raises:
            TypeError, ValueError: as in the constructor and in `prepare`; nothing has changed.
            RuntimeError: in the middle of a step, or while gathered gradients wait for `step`.
        """
        self._loop.switch(modes)
        self._warn_of_no_effect(*self.models)

    def remove(self) -> None:
        """Leave every model as it was given; others, or the same, may be prepared after it.

        Raises:
            RuntimeError: in the middle of a step.
        """
        self._loop.remove()

    @property
    def text(self) -> str:
        """The modes as printed, such as ``"compile+bf16"``; ``"fp32"`` changes nothing."""
        return str(self._loop)

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """The models that are prepared, as far as they are alive."""
        return tuple(self._loop.models())

    @property
    def skipped(self) -> bool:
        """Whether the last update was skipped: gradients had overflowed in fp16."""
        return self._loop.skipped

    @property
    def overflowed(self) -> bool:
        """Whether divided gradients are not finite in fp16: `step` will skip them.

        Of those that `unscale`, or the block that is open, has divided; reads the device where a
        fused optimizer decides there.
        """
        scaled = self._loop.scaled
        return scaled is not None and scaled.overflowed()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must not lose: the scale of an fp16 scaler. Read it between steps."""
        return dict(self._loop.modeset.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a `state_dict`, written under any modes; the modes stay as they are.

        Raises:
            TypeError: it is no mapping.
            RuntimeError: gradients wait that carry the scale of now.
        """
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - who calls may not type-check
            raise TypeError(f"state is a {type(state).__name__}; give what state_dict() returned")
        self._loop.load_state_dict(state)

    def _warn_of_no_effect(self, *models: nn.Module) -> None:
        for note in dict.fromkeys(n for model in models for n in self._loop.modeset.notes(model)):
            warnings.warn(f"{note}; it can be left out", RuntimeWarning, stacklevel=3)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        names = ", ".join(type(model).__name__ for model in self._loop.models())
        return f"<wb.Modes {self.text!r}: {names or 'no model prepared'}>"
