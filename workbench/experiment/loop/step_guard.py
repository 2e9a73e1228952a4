"""The guard of a step: a step that goes wrong leaves no trace.

Before every step it records what a forward changes in addition to gradients: the random states
(`host_random` has Python's and NumPy's), what modules keep (batch norm's running statistics;
`module_state` says what else, and what cannot be kept), and the parameters that the forward itself
writes (`parameter_writes`). After a non-finite loss, non-finite gradients or an exception these are
restored, the update has not been applied, and so the whole state is that of the last good step.
Replaying the batch then computes what it would have computed the first time. (`StepState` describes
the one exception: a training that begins to draw random numbers late.)

*Non-finite values* are looked for in the loss and in the gradients, because a finite loss can have
gradients that are not (``sqrt`` at 0), and one such update would destroy the weights. The gradients
of a step are checked by one fused kernel (`torch._amp_foreach_non_finite_check_and_unscale_` with a
scale of 1, which changes no bit of them). On the CPU the result is simply read: there is no queue
to wait for. On an accelerator, loss and gradients end in *one* device flag, read once, right before
the update. Alternatives were considered: skipping on the device (``found_inf``) exists only for
fused optimizers; selecting between old and new values would copy every parameter and every moment
in every step; reading later would need a second copy of both. The read lets the host run ahead
through forward and backward, and exposes only the launch of the optimizer; a `GradScaler` step does
the same. No logged scalar is ever read here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from workbench.experiment.state.host_random import HostRandom
from workbench.experiment.state.module_state import ModuleState
from workbench.experiment.state.parameter_writes import ParameterWrites
from workbench.experiment.state.rng import StepState
from workbench.torch_private.kernels import flag_non_finite


class NonFiniteError(ArithmeticError):
    """The loss or the gradients of a step are NaN or infinite; its update was not applied."""

    def __init__(self, what: str, value: float) -> None:
        self.what = what
        """``loss`` or ``gradients``"""
        self.word = "infinite" if math.isinf(value) else "NaN"
        super().__init__(f"{what} {'is' if what == 'loss' else 'are'} {self.word}")


class Guard:
    """Records, checks and restores the state of a step; one per model and device.

    Args:
        model: the model that is trained.
        device: the device that it is trained on.
        parameters: those whose gradients are checked; the model's if None.
        loss: the loss if it is a module, as its forward may also change what it keeps.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        parameters: Sequence[nn.Parameter] | None = None,
        loss: nn.Module | None = None,
    ) -> None:
        self._on_cpu = device.type == "cpu"
        self._random = StepState(device)
        self._host_random = HostRandom()
        self._model = model
        self._modules = ModuleState(model) if loss is None else ModuleState(model, loss)
        self._parameters = list(model.parameters()) if parameters is None else parameters
        self._writes = ParameterWrites(self._parameters)
        self._plain: bool | None = None
        """Whether one kernel can check all gradients; known after the first backward."""
        with torch.inference_mode(mode=False):  # a cell may be in that mode, and steps write them
            self._flag, self._one = _flag_and_one(device)
        self._loss: torch.Tensor | None = None

    def remember(self, *, exactly: bool = True) -> None:
        """Record the state before a step; on ``exactly`` for the random state see `StepState`."""
        self._random.save_step(exactly=exactly)
        self._host_random.save()
        self._modules.remember(exactly=exactly)
        self._writes.remember(exactly=exactly)

    def refresh(self) -> None:
        """Find parameters, modules and generators again: from the next step on they may differ."""
        self._host_random.find()
        self._modules.refresh()
        self._writes.refresh()

    def written_by_others(self) -> AbstractContextManager[None]:
        """Context in which written parameters do not count as written by the forward of a step."""
        return self._writes.written_by_others()

    def before_update(self) -> None:
        """Find out, right before the update, which parameters the forward has written."""
        self._writes.before_update()

    def updated(self) -> tuple[int, int]:
        """Number of parameters written since `before_update`, and number of all with a gradient."""
        return self._writes.updated()

    def release(self) -> None:
        """Release what was recorded before a step that went through."""
        self._modules.release()
        if self._writes.copies:
            self._writes.copies = []

    def drew_random_numbers(self) -> bool:
        """Whether anything since `remember` drew from torch's generators (dropout, say)."""
        return self._random.moved()

    def restore(self) -> tuple[str, ...]:
        """Restore the state after a step that did not go through.

        Returns:
            Names of the tensors that it wrote and whose former values were not kept.
        """
        self._random.restore()
        self._host_random.restore()
        self._loss = None
        lost = self._modules.restore()
        if written := self._writes.restore():
            names = {id(p): name for name, p in self._model.named_parameters()}
            lost += tuple(names.get(id(p), "a parameter") for p in written)
        return lost

    def check_loss(self, loss: torch.Tensor) -> float | torch.Tensor:
        """Return what to log of ``loss``: its value on the CPU, else the detached tensor.

        Raises:
            NonFiniteError: it is not finite (on an accelerator `check_gradients` raises this).
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
            scaled: whether a gradient scaler is in use, which checks the gradients and skips by
                itself.

        Raises:
            NonFiniteError: a value is not finite; nothing was applied.
        """
        if self._on_cpu:
            if not scaled:
                self._flag_gradients()
                if self._flag.item():
                    self._flag.zero_()
                    raise NonFiniteError("gradients", self._worst())
            return
        loss, self._loss = self._loss, None
        if not scaled:
            self._flag_gradients()
        if loss is not None:
            self._flag += ~loss.isfinite()
        if self._flag.item():
            self._flag.zero_()
            value = math.nan if loss is None else loss.item()
            good = math.isfinite(value)
            raise NonFiniteError("gradients" if good else "loss", self._worst() if good else value)

    def _flag_gradients(self) -> None:
        """Set the flag, which is zero between steps, if a gradient is not finite."""
        gradients = [g for p in self._parameters if (g := p.grad) is not None]
        if self._plain is None:
            self._plain = _alike(gradients)
        if self._plain and self._flag_by_one_kernel(gradients):
            return
        self._plain = False
        groups: dict[Any, list[torch.Tensor]] = {}
        for gradient in gradients:
            dense = gradient.coalesce().values() if gradient.is_sparse else gradient
            if dense.is_complex():
                dense = torch.view_as_real(dense.resolve_conj())
            groups.setdefault((dense.dtype, dense.device), []).append(dense)
        for (_, device), group in groups.items():
            flag, one = _flag_and_one(device)
            flag_non_finite(group, flag, one)
            self._flag += flag.to(self._flag.device)

    def _worst(self) -> float:
        """NaN if a gradient has one, else infinity; reads every gradient, once for all."""
        dense = (g.coalesce().values() if g.is_sparse else g for g in self._gradients())
        return math.nan if any(bool(g.isnan().any()) for g in dense) else math.inf

    def _gradients(self) -> list[torch.Tensor]:
        return [g for p in self._parameters if (g := p.grad) is not None]

    def _flag_by_one_kernel(self, gradients: list[torch.Tensor]) -> bool:
        """Check with one kernel; return False if a new branch gave gradients of another kind."""
        try:
            if gradients:
                flag_non_finite(gradients, self._flag, self._one)
        except RuntimeError:
            return False
        return True


def _alike(gradients: list[torch.Tensor]) -> bool:
    """Whether one kernel can check all of them: dense, real, of one type, on one device."""
    kinds = {(g.dtype, g.device, g.layout) for g in gradients}
    return len(kinds) <= 1 and all(
        g.layout == torch.strided and not g.is_complex() for g in gradients
    )


def _flag_and_one(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The flag that the kernel sets, and a scale that changes nothing; it takes only float32."""
    flag = torch.zeros(1, device=device, dtype=torch.float32)
    return flag, torch.ones((), device=device, dtype=torch.float32)
