"""One recipe by an experiment whose steps ranks compute, and by hand."""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tests.equivalence.check import ImpossibleError
from tests.equivalence.ranks import by_hand, driven
from tests.equivalence.ranks.by_hand import Noise, Stays
from tests.equivalence.ranks.driven import Counted, Seen
from tests.equivalence.ranks.models import MODELS
from tests.equivalence.ranks.recipes import PLAIN, RankRecipe, is_possible
from tests.equivalence.ranks.refusals import unclear
from tests.equivalence.ranks.trace import Trace, difference
from tests.fork_server import ForkServer
from workbench.experiment.services import Services, only
from workbench.parallel.launch import worker_processes
from workbench.parallel.session.mirror import send

NUM_NOISY = 2


@dataclass
class Outcome:
    """What came of a recipe that went to ranks and came home right."""

    seen: Seen
    is_exempt: bool
    """Whether numbers are compared only until ranks drew some (dropout)."""
    loosely: list[str] = field(default_factory=list[str])
    """What could hardly be compared, since the recipe makes much of a rounding."""

    @property
    def kind(self) -> str:
        if self.seen.refusals:
            return "refused before the start"
        return "right, until numbers are drawn" if self.is_exempt else "right"


_send = functools.partial(send, companions=("tests.equivalence.ranks.barrier",))
"""No function: it would be the user's line that an experiment names as it fails."""


@contextmanager
def ranks() -> Iterator[ForkServer]:
    """Experiments have their ranks from a fork server, in this process, while inside."""
    with pytest.MonkeyPatch.context() as patch, only(Services(send=_send)):
        torch.set_num_threads(1)  # a kernel's threads are shared among its ranks
        server = ForkServer(worker_processes._environment(PLAIN.ranks))
        patch.setattr(worker_processes, "start_group", server.start_group)
        try:
            yield server
        finally:
            server.close()


@contextmanager
def ordinary_ranks() -> Iterator[Counted]:
    """No server while inside: the launcher is torch's, ranks import what they need, as ever."""
    counted: Any = type("Counting", (), {"started": 0})()

    class Counting(worker_processes.Workers):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            counted.started += 1
            super().__init__(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch, only(Services(send=send)):
        patch.setattr("workbench.parallel.session.session.Workers", Counting)
        yield counted


def check(recipe: RankRecipe, server: Counted) -> Outcome:
    """Train ``recipe`` both ways and compare everything.

    Raises:
        AssertionError: the first thing that differs, and a program that repeats it.
        ImpossibleError: it cannot be trained by hand either.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planned = _by_hand(recipe, Stays.planned(recipe))
        try:
            seen = driven.run(recipe, len(planned.losses), server)
        except Exception as error:  # what a plain loop does not raise
            found = f"it raises {type(error).__name__}: {error}"
            raise AssertionError(f"{found}\n\n{recipe.script()}") from error
        return _judged(recipe, seen, planned)


def _judged(recipe: RankRecipe, seen: Seen, planned: Trace) -> Outcome:
    model, stays = MODELS[recipe.model], seen.facts
    is_exempt = model.seen == "draws" and seen.stays > 0
    outcome = Outcome(seen, is_exempt)
    # a model that sees a part of a batch has other numbers because there were ranks, and a part may
    # overflow where the whole does not
    rounds = any("fp16" in modes for _, modes in recipe.switches)
    judge = _by_hand(recipe, stays) if model.seen == "part" or rounds else planned
    until = stays.away_from if is_exempt else None
    found = difference(seen.trace, judge, [], stays.away_from, until=until)
    if found:  # maybe no more than the recipe makes of a rounding
        noisy = [by_hand.run(recipe, stays, Noise(seed)) for seed in range(NUM_NOISY)]
        found = difference(
            seen.trace, judge, noisy, stays.away_from, until=until, loosely=outcome.loosely
        )
    for modes, sentence in seen.refusals:
        found = found or unclear(recipe, modes, sentence)
    assert not found, f"{found}{_said(seen)}\n\n{recipe.script()}"
    return outcome


def _said(seen: Seen) -> str:
    """Notes, which may say of what differs that it does."""
    notes = [note for note in seen.notes if re.search(r"\b(ranks?|ddp|fsdp)\b", note)]
    return "".join(f"\n  a note says: {note}" for note in notes)


def _by_hand(recipe: RankRecipe, stays: Stays) -> Trace:
    try:
        found = by_hand.run(recipe, stays)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ImpossibleError(str(error)) from error
    finally:
        torch.set_grad_enabled(True)
    if not all(map(math.isfinite, found.losses)):
        raise ImpossibleError("a plain loop goes on with weights that are NaN")
    return found


def check_alone(recipe: RankRecipe) -> None:
    """`check` as a program of its own, which says what came of it."""
    torch.set_num_threads(1)
    assert is_possible(recipe)
    with ranks() as server:
        outcome = check(recipe, server)
    print(outcome.kind)
    for modes, sentence in outcome.seen.refusals:
        print(f"  {modes}: {sentence}")
    for note in outcome.seen.notes:
        print(f"  note: {note}")
