"""The gradient scaler of fp16, with what it does made readable.

fp16 has 5 exponent bits, and small gradients underflow to zero; `torch.amp.GradScaler` multiplies
the loss before backward, divides the gradients after it, and skips the update when they overflowed.
What it keeps to itself is counted here: the scale, how many updates were skipped, and for the first
and the last of those the step and the parameter whose gradient was not finite.

*What it costs.* Whether gradients overflowed is a number on the device, which torch's scaler reads
once per step, in its ``step``. It is read once per step here too, but before clipping, because a
norm that is NaN makes every gradient NaN and the culprit cannot be told any more. Gradients are
looked at only after that number said that one of them is not finite.

A fused optimizer on an accelerator decides on the device and nothing is read at all; then skipped
updates are counted on the device, and no parameter is named.

*Undoing.* A step may be given up between unscaling and updating (an error, a non-finite loss).
Nothing is counted before the update, and what the scaler had noted of that step is dropped, so the
scale goes on as if the step had not been tried.

Source of the rules: ``torch/amp/grad_scaler.py``. Its private notes of a step are touched in this
file alone (`_noted`, `GradientScaler.give_up`); a test fails loudly when they move.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Overflow:
    """An update that was skipped."""

    step: int
    """Of the run, from 1; where nobody said (`GradientScaler.happened_at`), of those scaled."""
    parameter: str
    """``head.weight``: nearest to the loss of those with a non-finite gradient; ``""``: unknown."""

    def __str__(self) -> str:
        return f"step {self.step:,}" + (f" ({self.parameter})" if self.parameter else "")


class GradientScaler:
    """A `torch.amp.GradScaler` for one optimizer that counts what it skips, and knows where."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._torch = torch.amp.GradScaler(device.type)
        self._model: weakref.ref[nn.Module] | None = None
        self._unscaled = False
        self._overflowed = False
        self._where = ""
        self._skipped: int | torch.Tensor = 0
        self._scale: float | None = self._torch.get_scale()
        """As this process knows it without reading the device; None: a device decided."""
        self._good_steps = 0
        """Since the scale last changed."""
        self.num_steps = 0
        """Updates asked for under this scaler, applied or skipped."""
        self.first: Overflow | None = None
        self.last: Overflow | None = None

    @property
    def num_skipped(self) -> int:
        """Updates that were skipped; reads the device after a fused optimizer on an accelerator."""
        return int(self._skipped)

    @property
    def scale(self) -> float:
        """What the next loss is multiplied with; reads the device where that decides."""
        return float(self._torch.get_scale()) if self._scale is None else self._scale

    def follow(self, model: nn.Module) -> None:
        """Name parameters after ``model`` from now on; it is not kept alive."""
        self._model = weakref.ref(model)

    def backward(self, loss: torch.Tensor) -> None:
        """Backward from the scaled ``loss``."""
        if self._unscaled:
            self.give_up()
        self._torch.scale(loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide gradients by the scale, in place, and see whether they are finite.

        Raises:
            ValueError: gradients are float16, which happens where parameters are.
        """
        self._torch.unscale_(optimizer)
        self._unscaled = True
        self._overflowed, self._where = False, ""
        if not self._decides_on_device(optimizer):
            self._overflowed = any(bool(found) for found in _noted(self._torch, optimizer))
            if self._overflowed:
                self._where = self._first_non_finite()

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update, unless gradients overflowed, and adapt the scale; False when it was skipped.

        A fused optimizer on an accelerator decides by itself; its update is reported as applied.
        """
        if not self._unscaled:
            self.unscale(optimizer)
        on_device = self._decides_on_device(optimizer)
        if on_device:
            self._torch.step(optimizer)
            self._scale = None
            for found in _noted(self._torch, optimizer):
                self._skipped = self._skipped + found
        elif not self._overflowed:
            optimizer.step()
        self._torch.update()
        self._follow_scale()
        self._unscaled = False
        self.num_steps += 1
        if self._overflowed:
            self._skipped = self._skipped + 1
            self._remember(Overflow(self.num_steps, self._where))
        return not self._overflowed

    def happened_at(self, step: int) -> None:
        """The update that was skipped last belongs to ``step`` of the run."""
        if self.last is None:
            return
        if self.first is self.last:
            self.first = None
        self._remember(Overflow(step, self.last.parameter))

    def give_up(self) -> None:
        """Forget a step that got no further than its gradients; the scale stays as it is."""
        self._torch._per_optimizer_states.clear()  # pyright: ignore[reportPrivateUsage] - GradScaler has no public way to drop a step
        self._unscaled = self._overflowed = False

    def scalars(self) -> dict[str, float | torch.Tensor]:
        """Name -> value of what is logged; on an accelerator on the device, and not read."""
        skipped = self._skipped
        if self._device.type == "cpu":
            return {"precision/scale": self.scale, "precision/skipped": float(skipped)}
        scale = self._torch.scale(torch.ones((), device=self._device))
        return {
            "precision/scale": scale,
            "precision/skipped": skipped if isinstance(skipped, torch.Tensor) else float(skipped),
        }

    def __str__(self) -> str:
        """``32,768; 2 of 410 steps skipped, first at step 3 (head.weight)``."""
        value = self.scale
        scale = f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"
        if not self.num_steps:
            return f"{scale}; no step yet"
        text = f"{scale}; {self.num_skipped:,} of {self.num_steps:,} steps skipped"
        if self.first is None:
            return text
        again = f", last at {self.last}" if self.last not in (None, self.first) else ""
        return f"{text}, first at {self.first}{again}"

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and strings: torch's own state, and what was counted; reads the device."""
        return {
            "scaler": self._torch.state_dict(),
            "skips": {
                "steps": self.num_steps,
                "skipped": self.num_skipped,
                "first": list(astuple(self.first)) if self.first else [],
                "last": list(astuple(self.last)) if self.last else [],
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; of one without counts (an older checkpoint) the scale alone."""
        self.give_up()
        self._torch.load_state_dict(state["scaler"])
        self._scale, self._good_steps = self._torch.get_scale(), state["scaler"]["_growth_tracker"]
        counts = state.get("skips", {})
        self.num_steps = int(counts.get("steps", 0))
        self._skipped = int(counts.get("skipped", 0))
        first, last = counts.get("first"), counts.get("last")
        self.first = Overflow(*first) if first else None
        self.last = Overflow(*last) if last else None

    def _follow_scale(self) -> None:
        """What ``GradScaler.update`` has just done on the device, by the same rule."""
        if self._scale is None:
            return
        if self._overflowed:
            self._scale *= self._torch.get_backoff_factor()
            self._good_steps = 0
            return
        self._good_steps += 1
        if self._good_steps == self._torch.get_growth_interval():
            grown = self._scale * self._torch.get_growth_factor()
            self._scale = grown if grown <= torch.finfo(torch.float32).max else self._scale
            self._good_steps = 0

    def _remember(self, overflow: Overflow) -> None:
        self.last = overflow
        if self.first is None:
            self.first = overflow

    def _decides_on_device(self, optimizer: torch.optim.Optimizer) -> bool:
        return self._device.type != "cpu" and bool(
            getattr(optimizer, "_step_supports_amp_scaling", False)
        )

    def _first_non_finite(self) -> str:
        """Backward goes from the loss to the input, so modules are looked at from the last on."""
        model = self._model() if self._model is not None else None
        for path, module in reversed(list(model.named_modules()) if model is not None else []):
            for name, parameter in module.named_parameters(prefix=path, recurse=False):
                if parameter.grad is not None and not _is_finite(parameter.grad):
                    return name
        return ""


def _noted(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """One scalar per device, 1 where a gradient on it is not finite; not read here."""
    found = scaler._found_inf_per_device(optimizer)  # pyright: ignore[reportPrivateUsage] - what GradScaler.step itself goes by
    return list(found.values())


def _is_finite(gradient: torch.Tensor) -> bool:
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(dense.isfinite().all())
