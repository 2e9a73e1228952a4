"""Builds the record of a comparison from the reports of its variants."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from workbench.compare.measurement import against
from workbench.compare.verdict import break_even
from workbench.records.compare import ComparedArm, CompareRecord

if TYPE_CHECKING:
    from workbench.compare.measurement import Measured

_NAN = math.nan


@dataclass(frozen=True)
class About:
    """Facts that are the same for all variants."""

    title: str
    device: str
    threads: int
    rounds: int
    cancelled: bool
    equal_within: float
    notes: tuple[str, ...]


def build_record(sessions: Sequence[Sequence[Measured]], about: About) -> CompareRecord:
    """Build the record; ``sessions`` has the variants of each model, the baseline first."""
    arms = [arm for session in sessions for arm in session]
    described = [
        _arm(arm, session[0], about.equal_within) for session in sessions for arm in session
    ]
    blocks = [(at, *block) for at, arm in enumerate(arms) for block in arm.blocks]
    losses = [
        (at, step, loss)
        for at, arm in enumerate(arms)
        for step, loss in enumerate(arm.losses, start=1)
    ]
    return CompareRecord(
        title=about.title,
        device=about.device,
        threads=about.threads,
        torch_version=str(torch.__version__),
        recorded_at=time.time(),
        rounds=about.rounds,
        cancelled=about.cancelled,
        equal_within=about.equal_within,
        parity_samples=max((arm.parity_samples for arm in arms), default=0),
        parity_on=next((arm.parity_on for arm in arms if arm.parity_on), ""),
        notes=about.notes,
        arms=tuple(described),
        block_arm=np.array([row[0] for row in blocks], dtype=np.int32),
        block_round=np.array([row[1] for row in blocks], dtype=np.int32),
        block_steps=np.array([row[2] for row in blocks], dtype=np.int32),
        block_seconds=np.array([row[3] for row in blocks], dtype=np.float64),
        loss_arm=np.array([row[0] for row in losses], dtype=np.int32),
        loss_step=np.array([row[1] for row in losses], dtype=np.int32),
        loss_value=np.array([row[2] for row in losses], dtype=np.float64),
    )


def _arm(arm: Measured, baseline: Measured, equal_within: float) -> ComparedArm:
    times = [block.seconds for block in arm.blocks]
    q1, median, q3 = (
        (float(q) for q in np.quantile(times, [0.25, 0.5, 0.75])) if times else (_NAN,) * 3
    )
    change = against(arm, baseline, equal_within)
    base = [block.seconds for block in baseline.blocks]
    return ComparedArm(
        model=arm.model,
        modes=arm.modes,
        ranks=arm.ranks,
        problem=arm.problem,
        first_step_s=arm.first_s,
        step_s=median,
        step_q1_s=q1,
        step_q3_s=q3,
        samples_per_s=_samples_per_step(arm) / median if times else _NAN,
        speedup=1.0 if arm is baseline and times else change.ratio,
        speedup_low=1.0 if arm is baseline and times else change.low,
        speedup_high=1.0 if arm is baseline and times else change.high,
        verdict="baseline" if arm is baseline else change.verdict,
        break_even=break_even(
            arm.first_s, median, baseline.first_s, float(np.median(base)) if base else _NAN
        )
        if times and base
        else _NAN,
        peak_bytes=arm.peak_bytes,
        operations=arm.operations,
        graphs=arm.graphs,
        breaks=arm.breaks,
        delta_logit=arm.delta_logit,
        agreement=arm.agreement,
        delta_loss=_losses(arm.losses, baseline.losses),
        notes=(*arm.notes, *_of_random_steps(arm, baseline)),
    )


def _samples_per_step(arm: Measured) -> float:
    return arm.samples / sum(block.steps for block in arm.blocks)


def _of_random_steps(arm: Measured, baseline: Measured) -> tuple[str, ...]:
    compiles = bool(arm.graphs > 0) != bool(baseline.graphs > 0)
    if arm is baseline or not arm.is_random or not compiles:
        return ()
    return ("draws random numbers (dropout) otherwise than the baseline, so losses differ by that",)


def _losses(ours: Sequence[float], theirs: Sequence[float]) -> float:
    count = min(len(ours), len(theirs))
    if not count:
        return _NAN
    a, b = np.asarray(ours[:count]), np.asarray(theirs[:count])
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-12)))
