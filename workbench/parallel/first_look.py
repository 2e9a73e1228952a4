"""The first part of a batch, computed before a model is laid over ranks and again after.

Before, every rank has the whole model: what its logits are, whether it asks its data for values on
any rank (`workbench.parallel.branches`), and what it does with its parameters that `fully_shard`
could not let it do (`workbench.parallel.parameter_use`) is found with one forward and one loss, and
where there is validation with another forward in eval mode. After, the first step's logits say by
how much laying it out has changed them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from workbench.experiment.data import split, to_device
from workbench.experiment.losses import logits_of
from workbench.experiment.step import call
from workbench.modes.blocks import find_blocks
from workbench.parallel.branches import AsksItsData
from workbench.parallel.parameter_use import WHY, ParameterUse, Whole, unshardable, why_not_in

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.modes.layout import Layout
    from workbench.parallel.batches import Part

_NAMED = 3
"""Parameters that a note names."""


class FirstLook:
    """Attaches the modes of ``training`` and computes its first part; on all ranks together.

    A model that is compiled is looked at without its modes, which would compile it for nothing, and
    without logits. Random state, buffers and parameters are put back. What the model raises it
    raises again in the step, where it is reported.

    Args:
        training: whole on this rank.
        sharded: whether the model is to be; it is looked at what it does with its parameters then.
    """

    def __init__(self, training: Training, *, sharded: bool) -> None:
        self._logits: torch.Tensor | None = None
        compiled = training.modeset.compiled
        model = training.model
        units = find_blocks(model)
        found = unshardable(model, units) if sharded else {}
        if not compiled:
            training.modeset.attach(model)
        asks = AsksItsData()
        use = ParameterUse(model, units) if sharded else nullcontext()
        part = training.cursor.take()
        if part is not None:
            training.guard.remember(exactly=True)
            try:
                with (
                    _loss_undone(training),
                    use,
                    asks,
                    nullcontext() if compiled else training.modeset.forward_context(),
                ):
                    logits = self._compute(training, part, with_loss=sharded)
                self._logits = None if compiled else logits
            except Exception:  # noqa: BLE001, S110 - see above
                pass
            finally:
                training.guard.restore()
            if isinstance(use, ParameterUse) and training.val is not None:
                self._look_at_eval(training, part, use)
        if compiled:
            training.modeset.attach(model)
        training.attached = training.modeset
        self.branches = (
            _largest(torch.tensor(float(asks.found), device=training.device, dtype=torch.float32))
            > 0
        )
        """Whether the model asks its data on any rank, so that they may branch differently."""
        self.whole: dict[str, Whole] = {}
        """Parameters that are to stay whole on every rank, by name, and why."""
        self.outside: list[str] = []
        """Parameters that a step uses while their block is not at work."""
        if isinstance(use, ParameterUse):
            self._agree(training, use, found)

    @property
    def by_blocks(self) -> bool:
        """Whether parameters can be gathered block by block."""
        return not (self.branches or self.outside)

    @property
    def notes(self) -> list[str]:
        """What a person should know of how the model lies over ranks, in sentences."""
        said: list[str] = []
        for why, reason in WHY.items():
            names = [name for name, one in self.whole.items() if one is why]
            if names:
                verb = "they are" if len(names) > 1 else "it is"
                said.append(f"under fsdp every rank keeps {_listed(names)} whole: {verb} {reason}")
        if self.outside:
            said.append(
                "under fsdp all parameters are gathered at once for a step, and not block by "
                f"block: {_listed(self.outside)} {'are' if len(self.outside) > 1 else 'is'} used "
                "outside of the forward of the block"
            )
        return said

    def refuse_under(self, layout: Layout) -> None:
        """Refuse a layout that computes in 16 bits what it gathers, where not all can be.

        Raises:
            ValueError: a parameter must stay whole.
        """
        if problem := why_not_in(layout.dtype, self.whole):
            raise ValueError(problem)

    def difference(self, logits: torch.Tensor) -> float | None:
        """Largest difference of the first step's logits, over all ranks; None where unknown.

        Asked once, by all ranks together.
        """
        before, self._logits = self._logits, None
        found = torch.tensor(-1.0, device=logits.device, dtype=torch.float32)
        if before is not None and before.shape == logits.shape and before.numel():
            found = (logits.float() - before).abs().max()
        largest = _largest(found)
        return largest if largest >= 0 else None

    # -- inside -----------------------------------------------------------------------------

    def _compute(self, training: Training, part: Part, *, with_loss: bool) -> torch.Tensor:
        """Logits of a part, which is not touched; the loss reads parameters too, maybe."""
        inputs, targets = split(pytree.tree_map(_copy, part.batch))
        inputs, targets = (to_device(one, training.device) for one in (inputs, targets))
        logits = logits_of(call(training.model, inputs))
        kept = logits.detach().float().clone()
        if with_loss:
            loss = training.loss.for_a_look(anew=not training.checked)
            loss.choose(logits, targets)
            loss(logits, targets)
        return kept

    def _look_at_eval(self, training: Training, part: Part, use: ParameterUse) -> None:
        """Validation goes other ways through a model than a step: a layer's fast path, say."""
        training.guard.remember(exactly=True)
        modes = [(module, module.training) for module in training.model.modules()]
        training.model.eval()
        try:
            with torch.no_grad(), training.modeset.forward_context(), use:
                self._compute(training, part, with_loss=False)
        except Exception:  # noqa: BLE001, S110 - the validation raises it again
            pass
        finally:
            for module, mode in modes:
                module.training = mode
            training.guard.restore()

    def _agree(self, training: Training, use: ParameterUse, found: dict[str, Whole]) -> None:
        """Have every rank do what any has found, as it has seen its own data alone."""
        names = [name for name, _ in training.model.named_parameters()]
        whole = dict.fromkeys(use.held, Whole.HELD) | dict.fromkeys(use.written, Whole.WRITTEN)
        whole |= {name: why for name, why in found.items() if name not in use.written}
        codes = [float(whole.get(name, Whole.NO)) for name in names]
        outside = [float(name in use.outside) for name in names]
        seen = torch.tensor([*codes, *outside], device=training.device)
        if names:
            dist.all_reduce(seen, dist.ReduceOp.MAX)
        told = [int(one) for one in seen.tolist()]
        self.whole = {name: Whole(code) for name, code in zip(names, told, strict=False) if code}
        # those that stay whole are there at any time
        self.outside = [
            name
            for name, is_used in zip(names, told[len(names) :], strict=True)
            if is_used and name not in self.whole
        ]


@contextmanager
def _loss_undone(training: Training) -> Generator[None]:
    """What a loss of the user's keeps is put back."""
    kept = training.loss.state()
    try:
        yield
    finally:
        if kept is not None:
            kept.restore()


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _largest(number: torch.Tensor) -> float:
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return float(number)
