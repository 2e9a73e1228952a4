"""The guard of a step: a step that goes wrong leaves no trace.

Before every step it remembers the two things a forward changes besides gradients: the random state
and the buffers (batch norm's running statistics). After a non-finite loss, non-finite gradients or
an exception they are put back, the update has not been applied, and so the whole state is that of
the last good step. Replaying the batch then computes what it would have computed the first time.
(`StepState` names the one exception: a training that begins to draw random numbers late.)

*Non-finite values* are looked for in the loss and in the gradients, because a finite loss can have
gradients that are not (``sqrt`` at 0), and one such update would destroy the weights. The gradients
of a step are checked by one fused kernel (`torch._amp_foreach_non_finite_check_and_unscale_` with a
scale of 1, which changes no bit of them). On the CPU the answer is simply read: there is no queue
to wait for. On an accelerator, loss and gradients end in *one* device flag, read once, right before
the update. Alternatives were weighed: skipping on the device (``found_inf``) exists for fused
optimizers only; selecting between old and new values would copy every parameter and every moment
in every step; reading later would need a second copy of both. The read lets the host run ahead
through forward and backward, and exposes the launch of the optimizer alone; a `GradScaler` step
does the same. No logged scalar is ever read here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from workbench.experiment.rng import StepState

MAX_BUFFER_BYTES = 4 * 2**20
"""Larger buffers are tables and masks, not running statistics, and are not remembered."""


class NonFiniteError(ArithmeticError):
    """The loss or the gradients of a step are NaN or infinite; its update was not applied."""

    def __init__(self, what: str, value: float) -> None:
        self.what = what
        """``loss`` or ``gradients``"""
        self.word = "infinite" if math.isinf(value) else "NaN"
        super().__init__(f"{what} {'is' if what == 'loss' else 'are'} {self.word}")


class Guard:
    """Remembers, checks and restores; one per model and device."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._on_cpu = device.type == "cpu"
        self._random = StepState(device)
        self._buffers = [b for b in model.buffers() if b.nbytes <= MAX_BUFFER_BYTES]
        self._kept = [b.detach().clone() for b in self._buffers]
        self._parameters = list(model.parameters())  # frozen ones too: they may be thawed
        self._plain: bool | None = None
        """Whether one kernel can look at all gradients; known after the first backward."""
        self._flag = torch.zeros(1, device=device)
        self._one = torch.ones((), device=device)
        self._loss: torch.Tensor | None = None

    def remember(self, *, exactly: bool = True) -> None:
        """Before a step; without ``exactly`` the random state is known as `StepState` says."""
        self._random.save_step(exactly=exactly)
        if self._buffers:
            torch._foreach_copy_(self._kept, self._buffers)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - one kernel for all of them; torch.optim uses the same

    def drew_random_numbers(self) -> bool:
        """Whether anything since `remember` drew from torch's generators (dropout, say)."""
        return self._random.moved()

    @torch.no_grad()
    def restore(self) -> None:
        """After a step that did not go through."""
        self._random.restore()
        for buffer, kept in zip(self._buffers, self._kept, strict=True):
            buffer.copy_(kept)
        self._loss = None

    def check_loss(self, loss: torch.Tensor) -> float | torch.Tensor:
        """What to log of ``loss``: its value on the CPU, the detached tensor elsewhere.

        Raises:
            NonFiniteError: it is not finite (on an accelerator `check_gradients` says so).
        """
        if not self._on_cpu:
            self._loss = detached = loss.detach()
            return detached
        value = loss.item()
        if not math.isfinite(value):
            raise NonFiniteError("loss", value)
        return value

    def check_gradients(self, *, scaled: bool) -> None:
        """Refuse the update if a gradient, or on an accelerator the loss, is not finite.

        Args:
            scaled: a gradient scaler is at work: it looks at the gradients and skips by itself.

        Raises:
            NonFiniteError: nothing was applied.
        """
        if self._on_cpu:
            if not scaled:
                self._look_at_gradients()
                if self._flag.item():
                    self._flag.zero_()
                    raise NonFiniteError("gradients", math.nan)
            return
        loss, self._loss = self._loss, None
        if not scaled:
            self._look_at_gradients()
        if loss is not None:
            self._flag += ~loss.isfinite()
        if self._flag.item():
            self._flag.zero_()
            value = math.nan if loss is None else loss.item()
            good = math.isfinite(value)
            raise NonFiniteError("gradients" if good else "loss", math.nan if good else value)

    def _look_at_gradients(self) -> None:
        """Raise the flag, which is down between steps, if a gradient is not finite."""
        gradients = [g for p in self._parameters if (g := p.grad) is not None]
        if self._plain is None:
            self._plain = _alike(gradients)
        if self._plain and self._looked_at_once(gradients):
            return
        self._plain = False
        groups: dict[Any, list[torch.Tensor]] = {}
        for gradient in gradients:
            dense = gradient.coalesce().values() if gradient.is_sparse else gradient
            groups.setdefault((dense.dtype, dense.device), []).append(dense)
        for (_, device), group in groups.items():
            flag = torch.zeros(1, device=device)
            _flag_non_finite(group, flag, torch.ones((), device=device))
            self._flag += flag.to(self._flag.device)

    def _looked_at_once(self, gradients: list[torch.Tensor]) -> bool:
        """Look with one kernel; False if a new branch gave gradients of another kind."""
        try:
            if gradients:
                _flag_non_finite(gradients, self._flag, self._one)
        except RuntimeError:
            return False
        return True


def _alike(gradients: list[torch.Tensor]) -> bool:
    """Whether one kernel can look at all of them: dense, of one type, on one device."""
    kinds = {(g.dtype, g.device, g.layout) for g in gradients}
    return len(kinds) <= 1 and all(g.layout == torch.strided for g in gradients)


def _flag_non_finite(gradients: list[torch.Tensor], flag: torch.Tensor, one: torch.Tensor) -> None:
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, flag, one)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - GradScaler's own kernel, wrapped here only
