"""The gradient scaler of fp16, with a readable record of what it does.

fp16 has 5 exponent bits, and small gradients underflow to zero; `torch.amp.GradScaler` multiplies
the loss before backward, divides the gradients after it, and skips the update if they overflowed.
What it does not report is counted here: the scale, how many updates were skipped, and for the first
and the last of those the step and the parameter whose gradient was not finite.

*What it costs.* Whether gradients overflowed is a number on the device, which torch's scaler reads
once per step, in its ``step``. It is read once per step here too, but before clipping, because a
norm that is NaN makes every gradient NaN and the culprit can no longer be determined. Gradients are
inspected only after that number has shown that one of them is not finite.

A fused optimizer on an accelerator decides on the device and nothing is read at all; then skipped
updates are counted on the device, and no parameter is named. An experiment, which reads a flag
right before every update anyway, has it `decide` at the same time: what depends on updates (a
schedule) then depends on those that were applied, on every device.

*Undoing.* A step may be given up between unscaling and updating (an error, a non-finite loss).
Nothing is counted before the update, and what the scaler had recorded for that step is dropped, so
the scale continues as if the step had not been tried.

*Several optimizers* that step together are one to the scaler: an overflow in any of them skips all,
because one that stepped on a loss on which another overflowed would leave a state that no step of
either has. They may be unscaled one by one, and wait for each other.

Source of the rules: ``torch/amp/grad_scaler.py``. Its private record of a step is used in this file
alone (`_noted`, `GradientScaler.unscale`, `forget`, `give_up`, `_drop_dead`); a test fails loudly
if it moves.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from workbench.modes.precision.scaled_backward import backward
from workbench.torch_private import grad_scaler

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class Overflow:
    """An update that was skipped."""

    step: int
    """Step of the run, from 1; if it was not reported (`GradientScaler.happened_at`), of those
    that were scaled."""
    parameter: str
    """``head.weight``: of those with a non-finite gradient, the parameter nearest to the loss;
    ``""``: unknown."""

    def __str__(self) -> str:
        return f"step {self.step:,}" + (f" ({self.parameter})" if self.parameter else "")


class GradientScaler:
    """A `torch.amp.GradScaler` that counts what it skips, and records where."""

    keeps_unscaled: bool = False
    """Whether divided gradients may wait while another loss runs backward; otherwise such a
    backward begins a new step, and the previous one is given up."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._torch = torch.amp.GradScaler(device.type)
        self._model: weakref.ref[nn.Module] | None = None
        self._overflowed: weakref.WeakKeyDictionary[torch.optim.Optimizer, bool] = (
            weakref.WeakKeyDictionary()
        )
        """Optimizers whose gradients are divided -> whether these overflowed."""
        self._undecided: weakref.WeakKeyDictionary[torch.optim.Optimizer, list[torch.Tensor]] = (
            weakref.WeakKeyDictionary()
        )
        """Optimizers whose gradients are divided and which decide on the device -> one scalar
        per device, which is not read here."""
        self._where = ""
        self._skipped: int | torch.Tensor = 0
        self._scale: float | None = self._torch.get_scale()
        """The scale as far as this process knows it without reading the device; None: a device
        decided."""
        self._good_steps = 0
        """Number of steps since the scale last changed."""
        self.num_steps = 0
        """Number of updates requested under this scaler, applied or skipped."""
        self.first: Overflow | None = None
        self.last: Overflow | None = None

    @property
    def num_skipped(self) -> int:
        """Number of skipped updates; reads the device after a fused optimizer on an accelerator."""
        return int(self._skipped)

    @property
    def scale(self) -> float:
        """Factor by which the next loss is multiplied; reads the device if that decides it."""
        return float(self._torch.get_scale()) if self._scale is None else self._scale

    @property
    def carried(self) -> float | GradientScaler:
        """Distinguishes current gradients from those under another scale, without a device read.

        The scale if it is known; otherwise this scaler, whose scale a device decides.
        """
        return self if self._scale is None else self._scale

    def follow(self, model: nn.Module) -> None:
        """Use the parameter names of ``model`` from now on; it is not kept alive."""
        self._model = weakref.ref(model)

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward from the scaled ``loss``."""
        if not self.keeps_unscaled and self.has_any_unscaled:
            self.give_up()
        backward(self._torch.scale(loss), lambda: self.scale)

    def unscale(self, *optimizers: torch.optim.Optimizer, done: Collection[int] = ()) -> None:
        """Divide gradients by the scale, in place, and check whether they are finite.

        Args:
            optimizers: those whose gradients are divided; a parameter that several of them hold is
                divided once.
            done: ``id`` of parameters whose gradients are divided already.

        Raises:
            ValueError: gradients are float16, which is the case if parameters are.
        """
        self._drop_dead()
        if len(optimizers) == 1 and not done and not _has_shards(optimizers[0]):
            self._torch.unscale_(optimizers[0])
            found = _noted(self._torch, optimizers[0])
        else:
            found = self._unscale_together(optimizers, done)
        if len(optimizers) == 1 and self._decides_on_device(optimizers[0]):
            self._undecided[optimizers[0]] = found
        else:
            self._decide(optimizers, found)

    def decide(self) -> None:
        """Read what a fused optimizer would have decided on the device, and follow that."""
        for optimizer, found in list(self._undecided.items()):
            del self._undecided[optimizer]
            self._decide((optimizer,), found)

    def _decide(
        self, optimizers: tuple[torch.optim.Optimizer, ...], found: list[torch.Tensor]
    ) -> None:
        overflowed = any(map(bool, found))
        self._overflowed.update(dict.fromkeys(optimizers, overflowed))
        if overflowed:
            self._where = self._first_non_finite()

    def _unscale_together(
        self, optimizers: tuple[torch.optim.Optimizer, ...], done: Collection[int]
    ) -> list[torch.Tensor]:
        """Unscale as one; the result is recorded for each, with what is to be found in ``done``."""
        own = {id(p): p for one in optimizers for g in one.param_groups for p in g["params"]}
        sharing = [
            other
            for other in self.unscaled()
            if done and any(id(p) in own for g in other.param_groups for p in g["params"])
        ]
        before = [one for other in sharing for one in _noted(self._torch, other)]
        for key, parameter in own.items():
            if key in done and parameter.grad is not None and not _is_finite(parameter.grad):
                before.append(_one(parameter.grad.device))
        by_device, state = self._divide([p for key, p in own.items() if key not in done], before)
        states = grad_scaler.states(self._torch)
        for optimizer in optimizers:
            states[id(optimizer)] = {**state, "found_inf_per_device": dict(by_device)}
        return list(by_device.values())

    def _divide(
        self, parameters: list[torch.Tensor], found: list[torch.Tensor]
    ) -> tuple[dict[torch.device, torch.Tensor], dict[str, Any]]:
        """Unscale ``parameters``; return what was ``found`` in all per device, and torch's record.

        Gradients that are distributed over ranks in different ways are unscaled separately: torch
        inspects only the first of a list to see which ranks must agree on what was found, and
        accepts no list in which one is distributed over ranks and another is not.
        """
        alike: dict[Any, list[torch.Tensor]] = {}
        for parameter in parameters:
            alike.setdefault(_layout(parameter), []).append(parameter)
        state: dict[str, Any] = {}
        for group in alike.values() or ([],):
            held: Any = _Held(group)
            self._torch.unscale_(held)
            found += _noted(self._torch, held)
            state = grad_scaler.states(self._torch).pop(id(held))
        by_device: dict[torch.device, torch.Tensor] = {}
        for one in found:
            by_device[one.device] = by_device.get(one.device, 0) + one
        if len(alike) > 1:
            _agree(by_device.values(), {layout[0] for layout in alike if layout is not None})
        return by_device, state

    def has_unscaled(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the gradients of ``optimizer`` are divided."""
        return optimizer in self._overflowed or optimizer in self._undecided

    @property
    def has_any_unscaled(self) -> bool:
        """Whether there are optimizers whose gradients are divided."""
        return bool(self._overflowed or self._undecided)

    def unscaled(self) -> list[torch.optim.Optimizer]:
        """Optimizers whose gradients are divided and wait for their step."""
        return [*self._overflowed, *self._undecided]

    def overflowed(self, *optimizers: torch.optim.Optimizer) -> bool:
        """Whether divided gradients of these (if none are given, of any at all) are not finite.

        Reads the device if a fused optimizer decides there.
        """
        return any(
            self._overflowed.get(one, False) or any(map(bool, self._undecided.get(one, ())))
            for one in optimizers or self.unscaled()
        )

    def unscale_more(self, parameters: Iterable[torch.Tensor]) -> None:
        """Divide the gradients of parameters that no optimizer holds, which `unscale` left out."""
        scale = self.scale
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(scale)

    def unscale_others(self, parameters: list[torch.Tensor]) -> bool:
        """Divide gradients that no optimizer of the update holds; False if some are not finite."""
        usual = [p for p in parameters if p.dtype in (torch.float32, torch.float64)]
        found, _ = self._divide(usual, [])
        is_finite = not any(map(bool, found.values()))
        if len(usual) < len(parameters):  # float16, which torch refuses to unscale, or complex
            rest = [p for p in parameters if p.dtype not in (torch.float32, torch.float64)]
            self.unscale_more(rest)
            is_finite = is_finite and all(map(_is_finite, _gradients_of(rest)))
        return is_finite

    def scale_again(self, parameters: Iterable[torch.Tensor]) -> None:
        """Multiply divided gradients by the current scale."""
        scale = self._scale
        if scale is None:
            scale = self._torch.scale(_one(self._device))
        with torch.no_grad():
            for gradient in _gradients_of(parameters):
                gradient.mul_(scale)

    def skip(self, *optimizers: torch.optim.Optimizer) -> None:
        """Count divided gradients as overflowed, whatever was found in them."""
        for optimizer in optimizers:
            self._undecided.pop(optimizer, None)
            self._overflowed[optimizer] = True
            for found in _noted(self._torch, optimizer):
                found.fill_(1)
        self._where = self._first_non_finite()

    def step(self, *optimizers: torch.optim.Optimizer) -> bool:
        """Update, unless gradients overflowed, and adapt the scale; return False if skipped.

        An overflow in any of ``optimizers`` skips all. A single fused optimizer on an accelerator
        decides by itself; its update is reported as applied.
        """
        if missing := [one for one in optimizers if not self.has_unscaled(one)]:
            self.unscale(*missing)
        self._drop_dead()
        first = optimizers[0]
        overflowed = False
        if len(optimizers) == 1 and first in self._undecided:
            self._torch.step(first)
            for found in _noted(self._torch, first):
                self._skipped = self._skipped + found
        else:
            overflowed = self.overflowed(*optimizers)
            for optimizer in () if overflowed else optimizers:
                optimizer.step()
        if any(_noted(self._torch, one) for one in optimizers):
            counted = [one for one in self.unscaled() if _noted(self._torch, one)]
            self._torch.update()
            self._follow_scale(counted)
        else:  # no gradient at all, in which nothing overflowed: torch would refuse
            grad_scaler.states(self._torch).clear()
        for optimizer in optimizers:
            self._overflowed.pop(optimizer, None)
            self._undecided.pop(optimizer, None)
        self.num_steps += 1
        if overflowed:
            self._skipped = self._skipped + 1
            self._remember(Overflow(self.num_steps, self._where))
        return not overflowed

    def happened_at(self, step: int) -> None:
        """Record that the update that was skipped last belongs to ``step`` of the run."""
        if self.last is None:
            return
        if self.first is self.last:
            self.first = None
        self._remember(Overflow(step, self.last.parameter))

    def give_up(self) -> None:
        """Forget a step that got no further than its gradients; the scale is unchanged."""
        grad_scaler.states(self._torch).clear()
        self._overflowed.clear()
        self._undecided.clear()

    def forget(self, optimizer: torch.optim.Optimizer) -> None:
        """Forget that gradients of ``optimizer`` were divided: it has accumulated new ones."""
        grad_scaler.states(self._torch).pop(id(optimizer), None)
        self._overflowed.pop(optimizer, None)
        self._undecided.pop(optimizer, None)

    def _drop_dead(self) -> None:
        """Forget optimizers that were deleted between unscaling and their step.

        Torch identifies an optimizer by its address, which another one may have by now.
        """
        states = grad_scaler.states(self._torch)
        if states:
            alive = set(map(id, self.unscaled()))
            for key in [key for key in states if key not in alive]:
                del states[key]

    def scalars(self) -> dict[str, float | torch.Tensor]:
        """Name -> value of what is logged; on an accelerator it is on the device, and not read."""
        skipped = self._skipped
        if self._device.type == "cpu":
            return {"precision/scale": self.scale, "precision/skipped": float(skipped)}
        scale = self._torch.scale(_one(self._device))
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
        """Plain numbers and strings: torch's own state, and the counts; reads the device."""
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
        """Restore `state_dict`; from one without counts (an older checkpoint), only the scale."""
        self.give_up()
        self._torch.load_state_dict(state["scaler"])
        self._scale, self._good_steps = self._torch.get_scale(), state["scaler"]["_growth_tracker"]
        counts = state.get("skips", {})
        self.num_steps = int(counts.get("steps", 0))
        self._skipped = int(counts.get("skipped", 0))
        first, last = counts.get("first"), counts.get("last")
        self.first = Overflow(*first) if first else None
        self.last = Overflow(*last) if last else None

    def _follow_scale(self, counted: list[torch.optim.Optimizer]) -> None:
        """Follow what ``GradScaler.update`` has just done on the device, by the same rule.

        Args:
            counted: optimizers whose gradients were divided since the last update, which all count.
        """
        if self._scale is None or any(one in self._undecided for one in counted):
            self._scale = None
            return
        if self.overflowed(*counted):
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
        """Name of the first parameter that overflowed; modules are checked from the last one on.

        Backward goes from the loss to the input. If parameters are distributed over ranks, all
        ranks check together, as only one of them may have the row.
        """
        model = self._model() if self._model is not None else None
        modules = reversed(list(model.named_modules()) if model is not None else [])
        named = [
            (name, parameter)
            for path, module in modules
            for name, parameter in module.named_parameters(prefix=path, recurse=False)
        ]
        if not any(_layout(parameter) is not None for _, parameter in named):
            found = (name for name, p in named if p.grad is not None and not _is_finite(p.grad))
            return next(found, "")
        flags = [float(p.grad is not None and not _is_finite(p.grad)) for _, p in named]
        seen = torch.tensor(flags, device=self._device)
        dist.all_reduce(seen, dist.ReduceOp.MAX)
        return next(
            (name for (name, _), flag in zip(named, seen.tolist(), strict=True) if flag), ""
        )


class _Held:
    """The part of an optimizer that ``GradScaler.unscale_`` reads."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.param_groups = [{"params": parameters}]


def _layout(parameter: torch.Tensor) -> Any:
    """How it is distributed over ranks; None if it is not."""
    if not hasattr(parameter, "_local_tensor"):
        return None
    sharded: Any = parameter
    return sharded.device_mesh, tuple(sharded.placements)


def _agree(found: Iterable[torch.Tensor], meshes: Iterable[DeviceMesh]) -> None:
    """Make ranks whose shards are updated together agree on what any of them has found."""
    for one in found:
        for mesh in meshes:
            for dim in range(mesh.ndim):
                dist.all_reduce(one, dist.ReduceOp.MAX, group=mesh.get_group(dim))


def _has_shards(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a parameter of ``optimizer`` is distributed over ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return False
    return any(_layout(p) is not None for g in optimizer.param_groups for p in g["params"])


def _noted(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """One scalar per device, 1 where a gradient on it is not finite; not read here."""
    return grad_scaler.found_non_finite(scaler, optimizer)


def _one(device: torch.device) -> torch.Tensor:
    """1 in the type of a scale, whatever the default dtype is."""
    return torch.ones((), device=device, dtype=torch.float32)


def _gradients_of(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [gradient for one in parameters if (gradient := one.grad) is not None]


def _is_finite(gradient: torch.Tensor) -> bool:
    """Whether all of its values are; if it is distributed over ranks, those of this rank."""
    if _layout(gradient) is not None:
        lying: Any = gradient
        gradient = lying.to_local()
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(dense.isfinite().all())
