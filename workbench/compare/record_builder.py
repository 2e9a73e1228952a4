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
    variants = [variant for session in sessions for variant in session]
    described = [
        _variant(variant, session[0], about.equal_within)
        for session in sessions
        for variant in session
    ]
    blocks = [(at, *block) for at, variant in enumerate(variants) for block in variant.blocks]
    losses = [
        (at, step, loss)
        for at, variant in enumerate(variants)
        for step, loss in enumerate(variant.losses, start=1)
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
        parity_samples=max((variant.parity_samples for variant in variants), default=0),
        parity_on=next((variant.parity_on for variant in variants if variant.parity_on), ""),
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


def _variant(variant: Measured, baseline: Measured, equal_within: float) -> ComparedArm:
    times = [block.seconds for block in variant.blocks]
    q1, median, q3 = (
        (float(q) for q in np.quantile(times, [0.25, 0.5, 0.75])) if times else (_NAN,) * 3
    )
    change = against(variant, baseline, equal_within)
    base = [block.seconds for block in baseline.blocks]
    return ComparedArm(
        model=variant.model,
        modes=variant.modes,
        ranks=variant.ranks,
        problem=variant.problem,
        first_step_s=variant.first_s,
        step_s=median,
        step_q1_s=q1,
        step_q3_s=q3,
        samples_per_s=_samples_per_step(variant) / median if times else _NAN,
        speedup=1.0 if variant is baseline and times else change.ratio,
        speedup_low=1.0 if variant is baseline and times else change.low,
        speedup_high=1.0 if variant is baseline and times else change.high,
        verdict="baseline" if variant is baseline else change.verdict,
        break_even=break_even(
            variant.first_s, median, baseline.first_s, float(np.median(base)) if base else _NAN
        )
        if times and base
        else _NAN,
        peak_bytes=variant.peak_bytes,
        operations=variant.operations,
        graphs=variant.graphs,
        breaks=variant.breaks,
        delta_logit=variant.delta_logit,
        agreement=variant.agreement,
        delta_loss=_losses(variant.losses, baseline.losses),
        notes=(*variant.notes, *_of_random_steps(variant, baseline)),
    )


def _samples_per_step(variant: Measured) -> float:
    return variant.samples / sum(block.steps for block in variant.blocks)


def _of_random_steps(variant: Measured, baseline: Measured) -> tuple[str, ...]:
    compiles = bool(variant.graphs > 0) != bool(baseline.graphs > 0)
    if variant is baseline or not variant.is_random or not compiles:
        return ()
    return ("draws random numbers (dropout) otherwise than the baseline, so losses differ by that",)


def _losses(ours: Sequence[float], theirs: Sequence[float]) -> float:
    count = min(len(ours), len(theirs))
    if not count:
        return _NAN
    a, b = np.asarray(ours[:count]), np.asarray(theirs[:count])
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-12)))
