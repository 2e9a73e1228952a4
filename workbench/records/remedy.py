"""What may be done about a run that does not fit on its GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from workbench.records.rules import Least


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change to a run, and what it was found to come to: cheapest first where there are many."""

    name: str
    """``"checkpoint layers.3"``, as a person would say it."""
    code: str
    """The line of Python that makes the change, to be copied; may hold several lines."""
    peak_bytes: Annotated[int, Least(-1)]
    """Peak of the bytes reserved with it; -1 where it does not fit at all."""
    fits: bool
    """Whether the step ran to its end on the same GPU."""
    cost: str
    """What it costs, in one sentence: time, accuracy, or nothing."""
    basis: str
    """How that is known: ``"this step run again with it"``, ``"replay"``, and on what."""
