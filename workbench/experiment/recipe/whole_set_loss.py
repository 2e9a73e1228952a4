"""Loss of a whole set at once, for a user-defined loss, whose batches may not add up.

Nothing is known about such a function, so it is computed once more, for all outputs and labels
together, if they fit into `MOST_BYTES` and are of one shape. But it may depend on its batch, or on
former calls, and then that would be another number. Three conditions are checked, in this order:

1. whether it keeps something from call to call, or may (`LossState`): then it is called for the
   batches only;
2. whether it draws random numbers: then two calls cannot be compared;
3. whether it compares samples with each other (`compares_samples`).

In all these cases the loss is the mean of the batches, weighted by samples, and a note reports it.

What is found holds from then on (`LossScope`): a curve consists of one kind of number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.recipe.loss_scope import compares_samples, means_columns
from workbench.experiment.recipe.loss_state import LossState
from workbench.experiment.state.rng import RandomState

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.experiment.training import Training

MOST_BYTES = 256 * 2**20
"""Maximum size of the outputs and labels that are kept."""


class WholeSet:
    """Keeps outputs and labels of a set, and computes their loss where possible.

    Args:
        training: training whose loss it is.
    """

    def __init__(self, training: Training) -> None:
        self._training, self._loss = training, training.loss
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._kept_bytes = 0
        self._not_kept = ""
        """Why outputs and labels are no longer kept, as the end of a sentence."""
        self._num_batches = self._largest = 0
        self._state: LossState | None = None
        self._random = RandomState(training.device)
        self.hides_accuracy = False
        """Whether nothing shows yet that the outputs are scores of classes; known after `loss`."""

    def before_batch(self) -> None:
        """Save states before the loss of a batch is computed."""
        scope = self._loss.scope
        is_settled = scope.by_batches and (
            not scope.is_repeatable or scope.takes_scores is not None
        )
        if self._state is None and not is_settled:
            self._state = LossState(self._loss.function)
        if scope.is_repeatable:
            self._random.save()

    def after_batch(self) -> None:
        """Check the loss of a batch for random draws; nothing else ran since `before_batch`."""
        if self._loss.scope.is_repeatable and self._random.moved():
            self._loss.scope.is_repeatable = False
            self._is_by_batches("it draws random numbers, so that no two calls can be compared")
        self._num_batches += 1

    def add(self, logits: torch.Tensor, targets: Any, count: int) -> None:
        """Keep a batch of ``count`` samples."""
        self._largest = max(self._largest, count)
        if self._not_kept or (self._loss.scope.by_batches and not self._needs_scores(logits)):
            return
        if not isinstance(targets, torch.Tensor) or targets.shape[:1] != logits.shape[:1]:
            self._not_kept = "outputs and labels are no tensors with one row for each sample"
        elif self._kept_bytes + logits.nbytes + targets.nbytes > MOST_BYTES:
            self._not_kept = f"outputs and labels take more than {MOST_BYTES >> 20} MiB"
        else:
            self._kept_bytes += logits.nbytes + targets.nbytes
            # a user-defined loader, or a CUDA graph, may overwrite them with the next batch
            self._kept.append((logits.clone(), targets.clone()))

    def pool(self, gathered: Callable[[Any], list[Any]]) -> None:
        """Combine the sets of all processes; ``gathered`` returns what each of them has."""
        self._check_state()
        kept = [] if self._not_kept else [(a.cpu(), b.cpu()) for a, b in self._kept]
        everywhere = gathered(
            (
                kept,
                self._not_kept,
                self._num_batches,
                self._largest,
                self._loss.scope.by_batches,
                self._loss.scope.is_repeatable,
                self._loss.answers.decision if self._num_batches else None,
            )
        )
        place = self._training.device
        self._kept = [(a.to(place), b.to(place)) for part in everywhere for a, b in part[0]]
        self._not_kept = next(filter(None, (part[1] for part in everywhere)), "")
        self._num_batches = sum(part[2] for part in everywhere)
        self._largest = max(part[3] for part in everywhere)
        self._is_by_batches(next(filter(None, (part[4] for part in everywhere)), ""))
        self._loss.scope.is_repeatable &= all(part[5] for part in everywhere)
        decisions = {part[6] for part in everywhere if part[6] is not None}
        self.hides_accuracy = len(decisions) > 1

    def loss(self) -> float | None:
        """Return the loss of all together; None, and a note, if it is the mean over batches.

        Afterwards it is known whether the outputs are scores of classes (`LossScope.takes_scores`).
        """
        scope = self._loss.scope
        self._check_state()
        if not self._kept or self._state is None or not scope.is_repeatable:
            return self._or_noted(None)
        found = None
        random = RandomState(self._training.device)
        random.save()
        try:
            found = self._computed()
        except Exception as error:  # noqa: BLE001 - batches of other shapes, or a loss made for one batch
            first = str(error).partition("\n")[0][:120]
            self._not_kept = (
                f"outputs and labels cannot be taken together ({type(error).__name__}: {first})"
            )
        finally:
            random.restore()
            self._put_back(self._state)
        return self._or_noted(found)

    # -- inside -----------------------------------------------------------------------------

    def _check_state(self) -> None:
        state = self._state
        if state is None:
            return
        if kept := state.changed():
            self._keeps_something(f"it keeps something from call to call ({kept})")
        elif state.unknown:
            self._keeps_something(f"it may keep something from call to call ({state.unknown})")

    def _keeps_something(self, why: str) -> None:
        self._loss.scope.is_repeatable = False
        self._is_by_batches(why)

    def _is_by_batches(self, why: str) -> None:
        self._loss.scope.by_batches = self._loss.scope.by_batches or why

    def _needs_scores(self, logits: torch.Tensor) -> bool:
        """Return whether it also has to be determined if the outputs are scores."""
        scope, answers = self._loss.scope, self._loss.answers
        is_open = scope.is_repeatable and scope.takes_scores is None
        guesses = answers.reads and answers.is_guess
        return is_open and guesses and logits.ndim == 2 and logits.shape[1] > 1

    def _computed(self) -> float | None:
        """Return the loss of all together, if that has the same meaning."""
        loss, scope = self._loss, self._loss.scope
        needs_scores = self._needs_scores(self._kept[0][0])
        if self._not_kept and not needs_scores and scope.adds_up:
            return None
        logits, targets = (torch.cat(part) for part in zip(*self._kept, strict=True))
        if needs_scores or not (scope.adds_up or scope.by_batches):
            self._inspect_rows(logits, targets, needs_scores=needs_scores)
        if self._num_batches == 1 or self._not_kept or scope.by_batches:
            return None  # one batch is the whole set
        with self._training.forward_context():
            return float(loss(logits, targets).reshape(()))

    def _inspect_rows(
        self, logits: torch.Tensor, targets: torch.Tensor, *, needs_scores: bool
    ) -> None:
        loss, scope = self._loss, self._loss.scope
        compares = compares_samples(loss, logits, targets)
        scope.adds_up = compares is False
        if needs_scores:
            cares = compares is False or means_columns(loss, logits, targets)
            scope.takes_scores = True if cares else (False if compares else None)
            self.hides_accuracy |= scope.takes_scores is None
        if compares is not False and self._num_batches > 1:
            self._is_by_batches(_UNKNOWN if compares is None else _COMPARES)

    def _put_back(self, state: LossState) -> None:
        """Undo the effects of calls that a plain loop does not make."""
        if kept := state.changed():
            lost = "" if state.restore() else "; its inspection has changed that"
            self._keeps_something(f"it keeps something from call to call ({kept}){lost}")

    def _or_noted(self, found: float | None) -> float | None:
        """Return what was found; if that is not the number, add a note that says why."""
        why = self._loss.scope.by_batches or self._not_kept
        if why and self._num_batches > 1:
            self._note(why)
        return None if why else found

    def _note(self, why: str) -> None:
        name, answers = self._loss.name, self._loss.answers
        said, scores = "", self._loss.scope.takes_scores
        if scores is False or self.hides_accuracy:
            said = ", and there is no accuracy"
        elif answers.reads and answers.is_guess and scores is None:
            said = "; accuracy treats the outputs as scores of classes"
        self._training.note(
            f"val/loss is the mean of {name} over batches of {self._largest:,}, weighted by "
            f"samples: {why}{said}"
        )


_COMPARES = (
    "half of the samples alone have other gradients than together with the rest (an in-batch loss, "
    "or terms that are averaged over different things), so for the whole set at once it may be "
    "another loss"
)
_UNKNOWN = "whether it compares samples with each other cannot be seen from its values for them"
