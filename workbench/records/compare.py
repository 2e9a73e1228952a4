"""Combinations of modes, measured against each other on the same model, weights and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from workbench.records.base import F64, I32, Record
from workbench.records.rules import Index, Least

Verdict = Literal["baseline", "faster", "slower", "tie", "unclear", ""]
"""Against the baseline of the same model: ``tie`` where they are known to differ by less than what
counts as equal, ``unclear`` where the spread supports neither; empty where too little was
measured."""


@dataclass(frozen=True, kw_only=True)
class ComparedArm:
    """One model under one combination of modes, in processes of its own.

    What was not measured is NaN, or -1 for a count. Times are wall times in seconds.
    """

    model: str
    """Name of the experiment."""
    modes: str
    """``compile+bf16``, as printed by a mode set."""
    ranks: Annotated[int, Least(1)]
    problem: str
    """Why nothing, or not all, was measured, in a sentence; empty where all was."""
    first_step_s: float
    """The very first step: compiling, and making the optimizer's state."""
    step_s: float
    """Median of the blocks' medians."""
    step_q1_s: float
    """A quarter of the blocks' medians is below."""
    step_q3_s: float
    samples_per_s: float
    speedup: float
    """How much faster than the baseline: the middle (Hodges and Lehmann) of the rounds' ratios of
    two blocks that were measured one after the other. 1 for the baseline."""
    speedup_low: float
    """Lower end of its 99 % interval."""
    speedup_high: float
    verdict: Verdict
    break_even: float
    """Steps after which a longer first step is paid back; -1 where it never is."""
    peak_bytes: float
    """The most that torch had allocated: on GPUs in the steps after the first, on a CPU in one
    profiled step. Summed over ranks."""
    operations: int
    """Kernels that a step launches on a GPU, a CUDA graph once; on a CPU the ATen operations that
    it calls."""
    graphs: int
    """Graphs that were compiled."""
    breaks: int
    """Graph breaks."""
    delta_logit: float
    """Largest absolute difference of a logit from the baseline's, with the weights at the start."""
    agreement: float
    """Share of samples for which the largest logit is that of the baseline."""
    delta_loss: float
    """Largest relative difference of a training loss from the baseline's, of the first 20 steps."""
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CompareRecord(Record):
    """Every variant of a comparison, with every block of steps that was timed and every loss."""

    schema: ClassVar[str] = "workbench.compare/1"
    tables: ClassVar[tuple[str, ...]] = ("block", "loss")

    title: str
    device: str
    threads: Annotated[int, Least(1)]
    """CPU threads of a variant, all of its ranks together."""
    torch_version: str
    recorded_at: float
    """Unix time, seconds."""
    rounds: Annotated[int, Least(0)]
    """Rounds that were completed: in each, every variant did one block of steps, in random
    order."""
    cancelled: bool
    """Whether it was ended before all rounds were done."""
    equal_within: Annotated[float, Least(0)]
    """Share by which the speeds of two variants may differ that are a tie: 0.03."""
    parity_samples: Annotated[int, Least(0)]
    """Samples whose logits were compared."""
    parity_on: str
    """``validation`` or ``training`` data."""
    notes: tuple[str, ...]
    arms: tuple[ComparedArm, ...]
    """Model by model; the first of a model is its baseline."""

    block_arm: Annotated[I32, Index("arms")]
    block_round: Annotated[I32, Least(0)]
    block_steps: Annotated[I32, Least(1)]
    block_seconds: Annotated[F64, Least(0)]
    """Median time of a step of the block."""
    loss_arm: Annotated[I32, Index("arms")]
    loss_step: Annotated[I32, Least(1)]
    """Counted from the weights at the start."""
    loss_value: F64
