"""The two blocks of a user's own loop: around forward and loss, and around what reads gradients.

They call the hooks of the mode set that an experiment's step calls
(`workbench.experiment.loop.step`), in the same order, except that the caller's code runs in
between. Their own cost is what `tests/benchmarks/test_modes_loop.py` measures, which is why they
are written out as classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import torch

from workbench.modes.own_loop.state import GIVEN, READY, UPDATING, Loop


class ForwardBlock:
    """Context around forward and loss, and nothing else; it may be nested, and used under no_grad.

    One object serves a whole loop: what it has entered is stored in `Loop.open`.
    """

    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        loop = self._loop
        if not loop.modeset.changes:
            loop.open.append(None)
            return
        context = loop.modeset.forward_context()
        context.__enter__()
        loop.open.append(context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        context = self._loop.open.pop()
        return None if context is None else context.__exit__(kind, error, traceback)


class UpdateBlock:
    """Runs backward and unscales on entering; applies the update on leaving, unless it raised."""

    __slots__ = ("_loop", "_loss", "_optimizers", "_untouched")

    def __init__(
        self,
        loop: Loop,
        what: str,
        loss: torch.Tensor | None,
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        if loop.stage or loop.open:
            loop.refuse(what)
        check_optimizers(optimizers, what)
        self._optimizers = optimizers
        self._loop, self._loss = loop, loss
        if loss is None and not loop.pending:
            raise RuntimeError(
                "modes.step(...) has no gradients to apply: modes.backward(loss) runs backward "
                "first; optimizers that share it go into one modes.step(first, second)"
            )
        loop.stage = GIVEN

    def __enter__(self) -> None:
        loop, loss = self._loop, self._loss
        if loop.stage != GIVEN:
            raise RuntimeError("a block of modes.update(...) is entered once; make a new one")
        loop.stage, self._loss = READY, None
        if loss is not None:
            loop.backward(loss)
        self._untouched = False
        if loop.scaled is not None:
            # torch's scaler raises for an optimizer that got no gradient; one whose gradients were
            # cleared after they had overflowed has to lower the scale
            self._untouched = not (
                any(map(_has_gradients, self._optimizers))
                or loop.scaled.has_divided(self._optimizers)
            )
            if not self._untouched:
                loop.scaled.divide(self._optimizers, block=True)
        loop.stage = UPDATING

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop = self._loop
        loop.stage, loop.pending = READY, 0
        if kind is not None:
            if loop.scaled is not None:
                loop.scaled.give_up(self._optimizers)
            return
        if loop.scaled is None:
            loop.skipped = not loop.modeset.optimizer_step(*self._optimizers)
        elif self._untouched:
            loop.skipped = False
            loop.scaled.pass_over(self._optimizers)
        else:
            loop.skipped = not loop.scaled.apply(self._optimizers)


def check_optimizers(optimizers: Sequence[torch.optim.Optimizer], what: str) -> None:
    """Refuse what ``modes.what(...)`` cannot be given as its optimizers.

    Raises:
        TypeError: there is none, or one is not an optimizer.
        ValueError: one of them is given twice.
    """
    if len(optimizers) == 1 and isinstance(optimizers[0], torch.optim.Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not type-check
        return
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not type-check
            raise TypeError(
                f"modes.{what}(...) was given a {type(optimizer).__name__} as an optimizer; valid: "
                f"{'loss, ' if what == 'update' else ''}optimizer, and further ones after it"
            )
    if not optimizers:
        raise TypeError(f"modes.{what}(...) needs the optimizer that applies the gradients")
    if len({id(optimizer) for optimizer in optimizers}) < len(optimizers):
        raise ValueError(f"modes.{what}(...) was given an optimizer twice; name each once")


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    return any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
