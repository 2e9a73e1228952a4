"""Faults that are planted in ranks, or where a run comes home: the differential test finds each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.equivalence.ranks.check import check
from tests.equivalence.ranks.recipes import PLAIN, SWITCH, RankRecipe, is_possible
from tests.fork_server import PLANT, ForkServer
from workbench.experiment.checkpoint import training_state
from workbench.parallel.session import session
from workbench.parallel.transfer import checkpoint
from workbench.parallel.transfer.object_state import ObjectState

pytestmark = pytest.mark.slow

DDP = ((1, SWITCH + "ddp:2"), (5, SWITCH))
FSDP = ((1, SWITCH + "fsdp:2"), (5, SWITCH))


@dataclass(frozen=True)
class Fault:
    """What is planted in the ranks, by its name in `plants`, or here; and where it shows."""

    plant: str | Callable[[pytest.MonkeyPatch], None]
    recipe: RankRecipe
    says: str


def _in(actions: Any = DDP, **changes: Any) -> RankRecipe:
    return dataclasses.replace(PLAIN, actions=actions, **changes)


def _moments_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Those of the ranks do not come home."""
    patch.setattr(training_state, "take_moments", lambda *_arguments: None)


def _one_step_more(patch: pytest.MonkeyPatch) -> None:
    """Ranks do one more than they were to."""
    job = session.Job
    patch.setattr(session, "Job", lambda layout, step, *rest: job(layout, step and step + 1, *rest))


def _scale_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A gradient scaler begins anew at home."""
    take = checkpoint._take_rest
    patch.setattr(checkpoint, "_take_rest", lambda it, rest: take(it, {**rest, "modes": {}}))


def _schedule_is_lost(patch: pytest.MonkeyPatch) -> None:
    """It comes home where it left: neither by its state nor as an object that has changed."""
    patch.setattr(training_state, "_take_schedule", lambda *_arguments: None)
    patch.setattr(ObjectState, "take", lambda *_arguments: iter(()))


FAULTS: dict[str, Fault] = {
    "ranks are weighed wrongly": Fault(
        "ranks_are_weighed_wrongly", _in(loss="ignored labels"), "loss of step"
    ),
    "gradients are summed": Fault("gradients_are_summed", _in(), "loss of step"),
    "the loss is told wrongly": Fault("loss_is_told_wrongly", _in(), "loss of step"),
    "rows are left out": Fault("rows_are_left_out", _in(), "loss of step"),
    "rows are seen twice": Fault("rows_are_seen_twice", _in(), "loss of step"),
    "a batch is seen twice": Fault("first_batch_again", _in(), "steps|loss of step"),
    "a rate is shifted": Fault("rate_is_shifted", _in(schedule="linear"), "rate|lr|loss of step"),
    "a hook is lost": Fault(
        "module_hooks_are_lost", _in(attached="output scaled by a hook"), "loss of step"
    ),
    "ranks stay in eval mode": Fault(
        "stays_in_eval_mode", _in(model="batch norm", samples=24), "differs|loss of step"
    ),
    "buffers of the wrong rank come home": Fault(
        "buffers_of_the_wrong_rank", _in(FSDP, model="batch norm"), "running_"
    ),
    "clipped by the norm of a shard": Fault(
        "clipped_by_the_shard", _in(FSDP, clip=0.1), "loss of step|gradient norm"
    ),
    "a step that is not finite is applied": Fault(
        "non_finite_is_applied", _in(poisoned=True), "steps|loss of step|raises"
    ),
    "each rank validates alone": Fault("validation_of_one_rank", _in(), "validation"),
    "moments do not come home": Fault(
        _moments_are_lost, _in(FSDP, optimizer="adamw"), "moment|loss of step|raises"
    ),
    "ranks do a step too many": Fault(_one_step_more, _in(), "steps, not"),
    "a gradient scale does not come home": Fault(
        _scale_is_lost,
        _in(
            ((0, SWITCH + "fp16+ddp:2"), (2, SWITCH + "fp16"), (5, SWITCH)),
            loss="summed",
            optimizer="sgd, maximize",
            seed=1,
        ),
        "differs|loss of step",
    ),
    "a schedule does not come home": Fault(
        _schedule_is_lost, _in(schedule="warm-up, cosine"), "lr|rate|loss of step"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(
    name: str, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    assert is_possible(fault.recipe)
    check(fault.recipe, server)
    if isinstance(fault.plant, str):
        monkeypatch.setenv(PLANT, f"tests.equivalence.ranks.plants:{fault.plant}")
    else:
        fault.plant(monkeypatch)
    with pytest.raises(AssertionError, match=fault.says):
        check(fault.recipe, server)
