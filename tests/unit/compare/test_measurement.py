"""How long a comparison goes on: fresh pairs of processes until there is a verdict.

No process is started here: a variant answers with drawn times
(`tests/integration/test_compare.py` has the real ones).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.compare import measurement
from workbench.compare.measurement import _MOST_PROCESSES, Plan, Session, against
from workbench.compare.variants import VariantError
from workbench.modes import ModeSet
from workbench.parallel.exchange.files import Folder


class DrawnVariant:
    """One process of a variant: a step takes 10 ms times ``factor``; ``noise`` is a log ratio."""

    ranks = 1
    is_over = True

    def __init__(self, factor: float, noise: Callable[[], float]) -> None:
        self._factor, self._noise = factor, noise

    def begun(self) -> None:
        """It is there at once."""

    def request(self, order: str, **arguments: int) -> dict[str, Any]:
        """What a variant's worker answers."""
        answers: dict[str, dict[str, Any]] = {
            "first": {"seconds": 1.0, "is_random": False, "graphs": 0, "breaks": 0},
            "steps": {
                "seconds": [0.01 * self._factor * math.exp(self._noise())],
                "samples": 1.0,
                "peak_bytes": 0.0,
                "losses": [],
            },
            "profile": {"operations": 1, "peak_bytes": 0.0, "notes": ["compiled no more"]},
            "parity": {"samples": 0, "on": "", "problem": "not requested"},
        }
        return answers[order]

    def leave(self) -> None:
        """There is nothing to notify."""

    def end(self) -> None:
        """Nothing is there to be ended."""


def measured(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    factors: tuple[float, ...],
    processes: float = 0.03,
    rounds: float = 0.015,
    equal_within: float = 0.03,
    refuses: int = 1_000,
) -> Session:
    """A session of as many variants; after ``refuses`` processes none starts any more."""
    rng = np.random.default_rng(0)
    started = 0

    def launch(session: Session, at: int) -> None:
        nonlocal started
        started += 1
        session._processes[at] = session._processes.get(at, -1) + 1
        own = factors[at] * math.exp(rng.normal(0, processes / math.sqrt(2)))
        variant = DrawnVariant(own, lambda: rng.normal(0, rounds / math.sqrt(2)))
        if started > refuses:

            def refused() -> None:
                raise VariantError("no room")

            variant.begun = refused
        session._running[at] = variant  # pyright: ignore[reportArgumentType] - it answers as one

    monkeypatch.setattr(Session, "_launch", launch)
    modes = [(ModeSet.parse("fp32", "cpu"), "") for _ in factors]
    plan = Plan(15, 8, fresh_cache=False, equal_within=equal_within)
    session = Session("net", Folder(tmp_path / "shared"), modes, plan, lambda what, share: None)
    session.measure()
    return session


def found(session: Session, at: int = 1, equal_within: float = 0.03) -> tuple[str, int]:
    """The verdict on a variant, and how many processes it took."""
    variant = session.variants[at]
    verdict = against(variant, session.variants[0], equal_within).verdict
    return verdict, max(block.process for block in variant.blocks) + 1


def test_equal_variants_are_measured_until_they_are_a_tie(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = measured(monkeypatch, tmp_path, factors=(1.0, 1.0))
    verdict, processes = found(session)
    assert verdict == "tie"
    assert 5 <= processes < _MOST_PROCESSES
    fresh = [block.round for block in session.variants[1].blocks if block.process == 1]
    assert fresh == list(range(15, 20)), "five rounds are enough where they are quiet"
    assert session.rounds == 15, "that all variants did"
    assert "compiled no more" in session.variants[1].notes


def test_five_per_cent_are_found_and_a_factor_needs_no_second_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = measured(monkeypatch, tmp_path, factors=(1.0, 1.05, 1.6, 0.5))
    assert found(session)[0] == "slower"
    assert found(session)[1] <= 12
    assert found(session, 2) == ("slower", 1)
    assert found(session, 3) == ("faster", 1)


def test_noisy_rounds_are_made_up_for_by_more_of_them_and_it_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = measured(monkeypatch, tmp_path, factors=(1.0, 1.0), rounds=0.6)
    assert found(session) == ("unclear", _MOST_PROCESSES)
    fresh = [block.round for block in session.variants[1].blocks if block.process == 1]
    assert len(fresh) == 15


def test_a_wider_bound_is_met_sooner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wide = measured(monkeypatch, tmp_path, factors=(1.0, 1.0), equal_within=0.15)
    assert found(wide, equal_within=0.15)[0] == "tie"
    assert found(wide, equal_within=0.15)[1] <= 3


def test_no_time_left_ends_it_as_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measurement, "_AGAIN", 0.0)
    monkeypatch.setattr(measurement, "_LEAST_AGAIN_S", -1.0)
    session = measured(monkeypatch, tmp_path, factors=(1.0, 1.0))
    assert found(session) == ("unclear", 1)


@pytest.mark.parametrize("refuses", [2, 3])
def test_a_variant_that_cannot_be_started_again_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuses: int
) -> None:
    """Be it the baseline (the third to start) or the variant."""
    session = measured(monkeypatch, tmp_path, factors=(1.0, 1.0), refuses=refuses)
    assert found(session) == ("unclear", 1)
    notes = [
        note for variant in session.variants for note in variant.notes if "started again" in note
    ]
    assert all("no room" in note for note in notes)
    assert len(notes) == (2 if refuses == 2 else 1)
