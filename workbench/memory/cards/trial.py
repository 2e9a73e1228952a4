"""A change that is tried: steps with it on the very card that refused one, and then undone.

Nothing is estimated. The training does what it would do next, with the change made: three steps, as
the optimizer makes its state in the first one, the second holds both that and the activations, and
the third begins with what the second left in the cache; and a batch of validation. Then everything
is put back (`workbench.experiment.loop.guard.undone`), and the card gives back what that took.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data.data import copied
from workbench.experiment.failure.release import let_go_of
from workbench.experiment.loop.guard import NonFiniteError, undone
from workbench.experiment.loop.validation import Tally, evaluate
from workbench.memory.cards.card_player import PlayedCard
from workbench.memory.cards.on_card import Interrupted

if TYPE_CHECKING:
    from workbench.experiment.failure.changes import Change
    from workbench.experiment.training import Training

NUM_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of a change that was tried."""

    fits: bool
    peak_bytes: int = -1
    """Reserved at most; -1 where it does not fit."""
    seconds: float = 0.0
    """Of its last step."""
    why: str = ""
    """What else than memory kept it from ending."""


def tried(training: Training, change: Change, interrupted: Callable[[], bool]) -> Trial | None:
    """Try ``change`` on the card that ``training`` runs on; None where that was interrupted.

    The training is what it was, whatever is raised in it.

    Args:
        training: between two steps.
        change: to be tried.
        interrupted: whether to give up; asked at every request for memory.
    """
    card = training.card
    if not isinstance(card, PlayedCard):
        raise TypeError("remedies are tried on a card that is played; there is none")
    try:
        with card.trial(interrupted):
            found = _outcome(training, change, interrupted)
        if found is not None and found.fits:
            gc.collect()  # what a model keeps in cycles would stay; else it is collected already
        return found
    finally:
        card.let_go()


def _outcome(training: Training, change: Change, interrupted: Callable[[], bool]) -> Trial | None:
    try:
        with undone(training):
            change.try_on(training)
            card = training.card
            if not isinstance(card, PlayedCard):
                return None
            with card.trial(interrupted):
                return _ran(training, card, change)
    except torch.OutOfMemoryError as error:
        let_go_of(error)
        return Trial(fits=False)
    except Interrupted as error:
        let_go_of(error)
        return None
    except Exception as error:  # noqa: BLE001 - with other modes or batches user code may raise
        first = str(error).partition("\n")[0][:200]
        kind = "the loss or a gradient" if isinstance(error, NonFiniteError) else ""
        let_go_of(error)
        return Trial(fits=False, why=first if kind else f"{type(error).__name__}: {first}")


def _ran(training: Training, card: PlayedCard, change: Change) -> Trial:
    in_validation = training.validating
    if in_validation:
        _validate(training, change)
    batch, seconds = _batch(training, change), 0.0
    for step in range(NUM_STEPS):
        if step:  # another one in other memory, as the next would be
            batch = copied(batch)
        started = time.perf_counter()
        training.run_step(batch)
        seconds = time.perf_counter() - started
    del batch
    if not in_validation:
        _validate(training, change)
    return Trial(fits=True, peak_bytes=card.ledger.peak_reserved, seconds=seconds)


def _batch(training: Training, change: Change) -> Any:
    """The batch of the failed step, or as many of its samples as the change says."""
    cursor = training.cursor
    if change.batch_size is None:
        return training.preview()
    if training.validating:  # the epoch is over: its next one begins with these
        return cursor.source.first(cursor.epoch + 1, 0, change.batch_size)
    return cursor.first(change.batch_size)


def _validate(training: Training, change: Change) -> None:
    source = training.val
    if source is None:
        return
    size = change.val_batch_size or source.batch_size
    if change.batch_size is not None and source.batch_size == training.cursor.source.batch_size:
        size = change.batch_size  # validation follows where its batches were as large
    if source.repeats and size:
        batch = source.first(0, 0, size)
    else:
        batch = next(iter(source.batches(0)), None)
    if batch is None or training.card is None:
        return
    tally = Tally(training)
    with (
        training.train_mode.evaluating(training.optimizer),
        torch.no_grad(),
        training.card.at_work("validation", batch),
    ):
        evaluate(training, batch, tally)
