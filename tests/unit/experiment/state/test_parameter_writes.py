"""Parameters that a forward writes are found, copied and put back, or named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.experiment.state import parameter_writes
from workbench.experiment.state.parameter_writes import ParameterWrites

P = nn.Parameter


def in_place(p: P) -> None:
    with torch.no_grad():
        p.add_(1)


def through_data(p: P) -> None:
    p.data.add_(1)


def other_memory(p: P) -> None:
    p.data = p.data + 1


WRITES: dict[str, Callable[[P], None]] = {
    "in place": in_place,
    "through .data": through_data,
    "other memory": other_memory,
}


def made() -> tuple[P, P, ParameterWrites]:
    trained, frozen = P(torch.zeros(3)), P(torch.zeros(3), requires_grad=False)
    return trained, frozen, ParameterWrites([trained, frozen])


def step(writes: ParameterWrites, trained: P, *, exactly: bool = False) -> None:
    """One that goes through, but for what its forward writes."""
    writes.remember(exactly=exactly)
    writes.before_update()
    with torch.no_grad():
        trained.sub_(0.5)


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("good_steps", [0, 1, 5])
def test_a_frozen_parameter_that_every_forward_writes_is_put_back(
    how: str, good_steps: int
) -> None:
    trained, frozen, writes = made()
    for _ in range(good_steps):
        writes.remember(exactly=False)
        WRITES[how](frozen)
        writes.before_update()
        with torch.no_grad():
            trained.sub_(0.5)
    for _ in range(2):
        writes.remember(exactly=False)
        WRITES[how](frozen)
        assert writes.restore() == []
        assert frozen.tolist() == [good_steps] * 3
        assert trained.tolist() == [-0.5 * good_steps] * 3


def test_what_is_written_for_the_first_time_is_named_and_held_from_then_on() -> None:
    trained, frozen, writes = made()
    for _ in range(5):
        step(writes, trained)
    writes.remember(exactly=False)
    in_place(frozen)
    in_place(trained)
    assert {id(p) for p in writes.restore()} == {id(trained), id(frozen)}
    in_place(frozen)
    assert writes.restore() == []  # a second look leaves it as it was after the first
    assert frozen.tolist() == [1, 1, 1]
    for _ in range(2):
        step(writes, trained)
    before = trained.tolist()
    writes.remember(exactly=False)
    in_place(frozen)
    in_place(trained)
    assert writes.restore() == []
    assert (frozen.tolist(), trained.tolist()) == ([1, 1, 1], before)


@pytest.mark.parametrize("how", WRITES)
def test_what_is_too_large_for_a_copy_is_named(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter_writes, "held_bytes", lambda device: 8)
    _, frozen, writes = made()
    for _ in range(3):
        writes.remember(exactly=False)
        WRITES[how](frozen)
        writes.before_update()
    writes.remember(exactly=False)
    WRITES[how](frozen)
    assert [id(p) for p in writes.restore()] == [id(frozen)]
    writes.remember(exactly=True)
    before = frozen.tolist()
    WRITES[how](frozen)
    assert writes.restore() == []
    assert frozen.tolist() == before


@pytest.mark.parametrize("good_steps", [0, 5, 200])
def test_whether_a_parameter_is_trained_is_put_back(good_steps: int) -> None:
    trained, frozen, writes = made()
    for _ in range(good_steps):
        step(writes, trained)
    writes.remember(exactly=False)
    trained.requires_grad_(False)
    frozen.requires_grad_(True)
    assert writes.restore() == []
    assert (trained.requires_grad, frozen.requires_grad) == (True, False)


def test_how_far_an_update_went_is_counted() -> None:
    trained, _, writes = made()
    for grows in (False, True):
        trained.grad = torch.ones(3)
        writes.remember(exactly=False)
        writes.before_update()
        if grows:
            in_place(trained)
        assert writes.updated() == (int(grows), 1)


def test_parameters_of_inference_mode_are_no_obstacle() -> None:
    with torch.inference_mode():
        frozen = P(torch.zeros(3), requires_grad=False)
    trained = P(torch.zeros(3))
    writes = ParameterWrites([trained, frozen])
    for _ in range(3):
        step(writes, trained)
    writes.remember(exactly=False)
    assert writes.restore() == []


def test_what_others_write_in_a_step_is_not_taken_for_a_forwards() -> None:
    trained, frozen, writes = made()
    for _ in range(3):
        writes.remember(exactly=True)
        assert writes.copies == [] or all(one is frozen for one, _ in writes.copies)
        with writes.written_by_others():
            in_place(trained)
        writes.before_update()
    writes.remember(exactly=True)
    in_place(trained)  # and by one it still is
    with writes.written_by_others():
        in_place(trained)
    writes.before_update()
    writes.remember(exactly=True)
    assert any(one is trained for one, _ in writes.copies)
