"""The first part of a batch, computed before a model is laid out over ranks and again after.

Before, every rank has the whole model. One forward and one loss show what its logits are, whether
it reads values of its data on any rank (`workbench.parallel.checks.branches`), whether it refuses a
single row, and what it does with its parameters that `fully_shard` does not support
(`workbench.parallel.checks.parameter_use`). A second forward of its first rows shows where the
samples are in logits and labels (`workbench.parallel.data.batch_dimension`), and whether the model
draws more random numbers for more rows (`workbench.parallel.data.draws`). Where there is
validation, parameters are observed in another forward in eval mode. Whether a step can be divided
at all is determined by `workbench.parallel.checks.batch_sums`. Afterwards, the first step's logits
show how much laying the model out has changed them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from workbench.experiment.data.data import copied, split, to_device
from workbench.experiment.loop.step import call
from workbench.experiment.recipe.losses import logits_of
from workbench.experiment.state.host_random import HostRandom
from workbench.experiment.state.rng import TorchState
from workbench.experiment.training import BATCH_NORM
from workbench.modes.core.model_blocks import find_blocks
from workbench.parallel.checks.batch_sums import ParameterValues, Verdict, by_samples
from workbench.parallel.checks.branches import AsksItsData
from workbench.parallel.checks.parameter_use import (
    WHY,
    ParameterUse,
    Whole,
    unshardable,
    why_not_in,
)
from workbench.parallel.data.batch_dimension import Rows, RowsError, cut, find_rows, first_rows
from workbench.parallel.sentences import first_nonempty, listed
from workbench.trust import error_message

if TYPE_CHECKING:
    from workbench.experiment.training import Training
    from workbench.modes.layout.layout import Layout
    from workbench.parallel.data.rank_batches import Part


class FirstLook:
    """Attaches the modes of ``training`` and computes its first part; every rank must create one.

    A compiled model is inspected without its modes: these would compile it for nothing, or not at
    all, because Dynamo permanently skips what it first sees under a dispatch mode. Its logits are
    not kept, and its modes are attached by `done`. Random state, buffers and parameters are
    restored. What the model raises it raises again in the step, where it is reported.

    Args:
        training: the training, whole on this rank.
        sharded: whether the model will be sharded; only then its use of parameters is observed.
    """

    def __init__(self, training: Training, *, sharded: bool) -> None:
        self._training = training
        self._compiled = training.modeset.compiled
        self._units = find_blocks(training.model)
        self._sharded = sharded
        self._unshardable = unshardable(training.model, self._units) if sharded else {}
        if not self._compiled:
            training.modeset.attach(training.model)
        self._run()

    def done(self) -> None:
        """End the inspection: attach all modes."""
        training = self._training
        if self._compiled:
            training.modeset.attach(training.model)
        training.attached = training.modeset

    def again(self) -> None:
        """Inspect again, because the current part is another one; every rank must call it."""
        self._run()

    def _run(self) -> None:
        training = self._training
        self._logits: torch.Tensor | None = None
        self._asks = AsksItsData()
        self._use = ParameterUse(training.model, self._units) if self._sharded else None
        self._refuses_one = False
        self._draws_torch = self._draws_host = False
        self._torch_by_rows = self._host_by_rows = False
        self.logit_rows: Rows = 0
        """Where the samples are in logits."""
        self.target_rows: Rows = 0
        """Where the samples are in labels."""
        self.not_found = ""
        """Why that cannot be determined, as the end of a sentence that names what it is about."""
        self.whole: dict[str, Whole] = {}
        """Parameters that must stay whole on every rank, by name, and why."""
        self.outside: list[str] = []
        """Parameters that a step uses while their block is not running."""
        self._has_compared = False
        found_out = Verdict()
        part = training.cursor.take()
        if part is not None:
            values = ParameterValues(training.model)
            self._look(part)
            values.restore()
            found_out = self._compared(part)
        self.undivided = training.undivided or first_nonempty(found_out.why)
        """Why every rank computes whole batches, as the beginning of a sentence, or ``""``."""
        self.unknown = first_nonempty(found_out.unknown)
        """Why it cannot be determined whether a step can be divided."""
        found = [
            *(self._asks.found, self._refuses_one),
            *(self._draws_torch, self._torch_by_rows, self._draws_host, self._host_by_rows),
            self._has_compared,
        ]
        flags = torch.tensor(
            [float(one) for one in found], device=training.device, dtype=torch.float32
        )
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        any_of = [bool(one) for one in flags.tolist()]
        places = [(self.logit_rows, self.target_rows, self.not_found)]
        dist.broadcast_object_list(places, 0)  # the first rank has most rows to compare
        self.logit_rows, self.target_rows, self.not_found = places[0]
        self.branches, self.refuses_one = any_of[:2]
        """Whether the model reads values of its data on any rank, so that ranks may branch
        differently; whether it refuses a part of one row."""
        torchs, torch_by_rows, host, host_by_rows, self.has_compared = any_of[2:]
        """Whether any rank had two samples, to determine whether a step is the sum over them."""
        is_divided = not self.undivided
        own_torch = torch_by_rows or not torchs or training.device.type != "cpu"
        self.own_torch = is_divided and own_torch
        """Whether ranks draw from torch's generators in separate streams in a forward."""
        self.own_host = is_divided and host and host_by_rows
        """The same for Python's and NumPy's generators."""
        self.draws_apart = (torchs and self.own_torch) or self.own_host
        """Whether a forward draws numbers that are not those of one process."""
        if self._use is not None:
            self._agree(self._use)

    @property
    def by_blocks(self) -> bool:
        """Whether parameters can be gathered block by block."""
        return not (self.branches or self.outside)

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the model is laid out over ranks, in sentences."""
        notes: list[str] = []
        for why, reason in WHY.items():
            names = [name for name, one in self.whole.items() if one is why]
            if names:
                verb = "they are" if len(names) > 1 else "it is"
                notes.append(f"under fsdp every rank keeps {listed(names)} whole: {verb} {reason}")
        if self.outside:
            notes.append(
                "under fsdp all parameters are gathered at once for a step, and not block by "
                f"block: {listed(self.outside)} {'are' if len(self.outside) > 1 else 'is'} used "
                "outside of the forward of the block"
            )
        return notes

    def refuse_under(self, layout: Layout) -> None:
        """Refuse a layout that computes in 16 bits what it gathers, if not all can be gathered.

        Raises:
            ValueError: a parameter must stay whole.
        """
        if problem := why_not_in(layout.dtype, self.whole):
            raise ValueError(problem)

    def difference(self, logits: torch.Tensor) -> float | None:
        """Return the largest difference of the first step's logits over all ranks; None if unknown.

        Called once, by all ranks together.
        """
        before, self._logits = self._logits, None
        found = torch.tensor(-1.0, device=logits.device, dtype=torch.float32)
        if before is not None and before.shape == logits.shape and before.numel():
            found = (logits.float() - before).abs().max()
        dist.all_reduce(found, dist.ReduceOp.MAX)
        largest = float(found)
        return largest if largest >= 0 else None

    # -- inside -----------------------------------------------------------------------------

    def _look_at_eval(self, part: Part, use: ParameterUse) -> None:
        """Observe a forward in eval mode: validation may take other paths (a layer's fast path)."""
        training = self._training
        training.guard.remember(exactly=True)
        modes = [(module, module.training) for module in training.model.modules()]
        training.model.eval()
        try:
            with torch.no_grad(), use:
                self._forward(copied(part.batch))
        except Exception:  # noqa: BLE001, S110 - the validation raises it again
            pass
        finally:
            for module, mode in modes:
                module.training = mode
            training.guard.restore()

    def _agree(self, use: ParameterUse) -> None:
        """Apply on every rank what any rank has found, because each has seen its own data only."""
        training = self._training
        names = [name for name, _ in training.model.named_parameters()]
        whole = dict.fromkeys(use.held, Whole.HELD) | dict.fromkeys(use.written, Whole.WRITTEN)
        whole |= {name: why for name, why in self._unshardable.items() if name not in use.written}
        codes = [float(whole.get(name, Whole.NO)) for name in names]
        outside = [float(name in use.outside) for name in names]
        seen = torch.tensor([*codes, *outside], device=training.device, dtype=torch.float32)
        if names:
            dist.all_reduce(seen, dist.ReduceOp.MAX)
        agreed = [int(one) for one in seen.tolist()]
        self.whole = {name: Whole(code) for name, code in zip(names, agreed, strict=False) if code}
        # those that stay whole are available at any time
        self.outside = [
            name
            for name, is_used in zip(names, agreed[len(names) :], strict=True)
            if is_used and name not in self.whole
        ]

    def _compared(self, part: Part) -> Verdict:
        """Whether the step is the sum over its samples, as far as this part shows."""
        self._has_compared = part.made > 1
        if self._training.undivided:
            return Verdict()
        if self._host_by_rows:  # in another order, samples would get the numbers of others
            return Verdict(unknown="a forward draws more of Python's or NumPy's numbers for more")
        return by_samples(self._training, part.batch, part.made, part.rows)

    def _look(self, part: Part) -> None:
        training = self._training
        torchs, host = TorchState(training.device), HostRandom()
        torchs.save()
        host.save()
        training.guard.remember(exactly=True)
        try:
            self.target_rows = first_rows(split(part.batch)[1], part.made)
            logits = self._watched(part.batch)
            self._logits = None if self._compiled else logits.float().clone()
            self._draws_torch, self._draws_host = torchs.moved(), host.moved()
            after = TorchState(training.device), HostRandom()
            for one in after:
                one.save()
            training.guard.restore()
            self._compare(part, logits, after)
        except Exception as error:  # noqa: BLE001 - see the class
            self._refuses_one = BATCH_NORM in error_message(error)
            self._torch_by_rows = self._draws_torch  # one row of two was refused: as for one row
        finally:
            training.guard.restore()
        if self._use is not None and training.val is not None:
            self._look_at_eval(part, self._use)
        torchs.restore()
        host.restore()

    def _watched(self, batch: Any) -> torch.Tensor:
        """Return the logits of a batch, which is left unchanged.

        If the model will be sharded, the loss is called as well: it may read parameters, too.
        """
        training, batch = self._training, copied(batch)
        with _loss_undone(training), self._use or nullcontext(), self._asks:
            logits = self._forward(batch)
            if not self._sharded:
                return logits.detach()
            kept = logits.detach().clone()
            targets = to_device(split(batch)[1], training.device)
            loss = training.loss.for_inspection(is_first=not training.checked)
            loss.choose(logits, targets)
            with nullcontext() if self._compiled else training.modeset.forward_context():
                loss(logits, targets)
            return kept

    def _forward(self, batch: Any) -> torch.Tensor:
        training = self._training
        with nullcontext() if self._compiled else training.modeset.forward_context():
            inputs = to_device(split(batch)[0], training.device)
            return logits_of(call(training.model, inputs))

    def _compare(
        self, part: Part, logits: torch.Tensor, after: tuple[TorchState, HostRandom]
    ) -> None:
        """Compare the first rows alone with all rows, which left generators at ``after``."""
        rows = part.made
        targets = split(part.batch)[1]
        fewer = part.fewer or _first_of(part.batch, rows)
        if fewer is None or fewer[1] >= rows:
            self.logit_rows = first_rows(logits, rows)  # one row shows nothing
            self._torch_by_rows = self._draws_torch
            return
        batch, few = fewer
        less = self._forward(batch).detach()
        self._torch_by_rows = self._draws_torch and after[0].moved()
        self._host_by_rows = self._draws_host and after[1].moved()
        try:
            self.logit_rows = find_rows(logits, less, rows, few)
            self.target_rows = find_rows(targets, split(batch)[1], rows, few)
        except RowsError as error:
            self.not_found = str(error)


def _first_of(batch: Any, rows: int) -> tuple[Any, int] | None:
    """Return the first rows of a batch from workers, where samples are the first dimension."""
    try:
        few = 2 if rows > 2 else 1
        return cut(batch, first_rows(batch, rows), 0, few, rows), few
    except RowsError:
        return None


@contextmanager
def _loss_undone(training: Training) -> Generator[None]:
    """Restore what a user's loss keeps."""
    kept = training.loss.state()
    try:
        yield
    finally:
        if kept is not None:
            kept.restore()
