"""Random states: what is remembered before a step, and how often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from workbench.experiment.state.rng import StepState, TorchState

CPU = torch.device("cpu")
LOOK = StepState.CHECK_EVERY


class Counted(StepState):
    """Counts what costs something."""

    saves = 0

    def save(self) -> None:
        self.saves += 1
        super().save()


@pytest.fixture(autouse=True)
def _generator() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        yield


def quiet(state: StepState) -> None:
    """Steps that draw nothing, until the state is no longer saved before each."""
    for _ in range(LOOK + 2):
        state.save_step()


def test_a_training_that_draws_is_remembered_before_every_step() -> None:
    state = Counted(CPU)
    for _ in range(5 * LOOK):
        state.save_step()
        first = torch.rand(3)
        state.restore()
        assert torch.equal(torch.rand(3), first)
    assert state.saves == 5 * LOOK


def test_a_training_that_draws_nothing_is_looked_at_now_and_then() -> None:
    state = Counted(CPU)
    quiet(state)
    before = state.saves
    for _ in range(10 * LOOK):
        state.save_step()
    assert state.saves - before == 10


def test_numbers_drawn_after_a_quiet_period_are_never_drawn_again() -> None:
    state = StepState(CPU)
    quiet(state)
    state.save_step()
    seen = torch.rand(3)
    state.restore()
    assert not torch.equal(torch.rand(3), seen)


def test_after_the_next_check_every_step_is_remembered_again() -> None:
    state = Counted(CPU)
    quiet(state)
    torch.rand(3)
    for _ in range(LOOK):
        state.save_step()
    before = state.saves
    for _ in range(LOOK):
        state.save_step()
        first = torch.rand(3)
        state.restore()
        assert torch.equal(torch.rand(3), first)
    assert state.saves - before == LOOK


def test_exactly_means_now() -> None:
    state = StepState(CPU)
    quiet(state)
    state.save_step()
    torch.rand(3)
    state.save_step(exactly=True)
    assert not state.moved()
    first = torch.rand(3)
    assert state.moved()
    state.restore()
    assert torch.equal(torch.rand(3), first)


def test_nothing_saved_is_nothing_restored() -> None:
    before = torch.get_rng_state()
    state = TorchState(CPU)
    state.restore()
    assert not state.moved()
    assert torch.equal(torch.get_rng_state(), before)
