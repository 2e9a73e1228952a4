"""What a comparison hands to badges: every two variants that were measured, judged as it judges."""

from __future__ import annotations

import pytest

from workbench.compare.measurement import Block, Measured
from workbench.compare.pair_verdicts import pair_verdicts


def variant(modes: str, seconds: float, rounds: int = 8, problem: str = "") -> Measured:
    blocks = [Block(at, 10, seconds * (1 + 0.001 * at), 0) for at in range(rounds)]
    return Measured("", modes, problem=problem, first_s=1.0, blocks=blocks)


def test_every_two_variants_are_judged_both_ways() -> None:
    found = pair_verdicts(
        [variant("fp32", 0.010), variant("bf16", 0.005), variant("compile", 0.0098)], 0.03
    )
    assert len(found) == 6
    change = found["fp32", "bf16"].change
    assert (change.ratio, change.supported) == (pytest.approx(2.0), True)
    assert found["bf16", "fp32"].change.ratio == pytest.approx(0.5)
    assert found["fp32", "bf16"].now.median == pytest.approx(0.005, rel=0.01)
    assert found["fp32", "bf16"].first_s == 1.0
    unclear = found["fp32", "compile"].change
    assert (unclear.verdict, unclear.supported) == ("unclear", False), "two per cent may be none"
    assert (
        pair_verdicts([variant("fp32", 0.010), variant("bf16", 0.010)], 0.5)[
            "fp32", "bf16"
        ].change.verdict
        == "tie"
    )


def test_nothing_is_said_of_variants_that_failed_or_of_too_few_rounds() -> None:
    variants = [
        variant("fp32", 0.01),
        variant("fp32", 0.01),
        variant("fp16", 0.01, problem="raised"),
    ]
    assert pair_verdicts([*variants, variant("ddp:2", 0.02, rounds=4)], 0.03) == {}
