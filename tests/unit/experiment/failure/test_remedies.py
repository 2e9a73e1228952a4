"""Which of the remedies that were tried somebody means."""

from __future__ import annotations

import pytest

from workbench.experiment.failure.changes import Change
from workbench.experiment.failure.remedies import Tried
from workbench.records import Remedy


def remedy(name: str, *, fits: bool = True) -> Remedy:
    return Remedy(name=name, code="", peak_bytes=1 if fits else -1, fits=fits, cost="", basis="")


CHANGES = tuple(Change(batch_size=size) for size in (8, 4, 2, 1))
TRIED = Tried(
    (remedy("bf16"), remedy("batch"), remedy("batch"), remedy("foreach", fits=False)),
    CHANGES,
    "8 GiB",
)


def test_numbers_names_and_remedies_find_the_change() -> None:
    assert TRIED.chosen(0, "8 GiB") == CHANGES[0]
    assert TRIED.chosen(2, "8 GiB") == CHANGES[2]
    assert TRIED.chosen("bf16", "8 GiB") == CHANGES[0]
    assert TRIED.chosen(remedy("bf16"), "8 GiB") == CHANGES[0]


@pytest.mark.parametrize("wanted", ["batch", remedy("batch")])
def test_one_that_may_be_several_is_asked_for_by_number(wanted: str | Remedy) -> None:
    with pytest.raises(ValueError, match=r"several remedies are called 'batch'; .*: \[1, 2\]"):
        TRIED.chosen(wanted, "8 GiB")


@pytest.mark.parametrize("wanted", [-1, 4, "", "bf", remedy("bf16", fits=False)])
def test_one_that_was_not_tried_is_said_with_those_that_were(wanted: int | str | Remedy) -> None:
    with pytest.raises(ValueError, match="valid are: 0 to 3, or a name: 'bf16', 'batch', 'batch'"):
        TRIED.chosen(wanted, "8 GiB")


def test_one_that_does_not_fit_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="foreach was tried and does not fit; those that do: 0, 1"):
        TRIED.chosen("foreach", "8 GiB")


@pytest.mark.parametrize("card", [None, "24 GiB", "8 GiB, expandable_segments:True"])
def test_on_another_gpu_nothing_is_known_to_fit(card: str | None) -> None:
    with pytest.raises(ValueError, match=r"tried with exp\.card = '8 GiB', and it") as raised:
        TRIED.chosen(0, card)
    assert repr(card) in str(raised.value)


def test_where_nothing_was_tried_there_is_nothing_to_choose() -> None:
    with pytest.raises(ValueError, match="there is no remedy 0; valid are: none, as nothing was"):
        Tried().chosen(0, None)
