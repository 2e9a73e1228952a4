"""How far a replay of an allocator's trace came out like the trace: what predictions stand on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from workbench.records.rules import Least


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Result of a replay of the trace by the allocator's rules, compared with the trace."""

    addresses: Annotated[int, Least(0)]
    """Allocations whose address the replay predicted, of ``num_addresses``."""
    num_addresses: Annotated[int, Least(0)]
    segments: Annotated[int, Least(0)]
    """New segments whose size it predicted."""
    num_segments: Annotated[int, Least(0)]
    releases: Annotated[int, Least(0)]
    """Segments released in the order it predicted."""
    num_releases: Annotated[int, Least(0)]
    blocks: Annotated[int, Least(0)]
    """Blocks of the final segments that are where it predicted."""
    num_blocks: Annotated[int, Least(0)]
    num_inferred: Annotated[int, Least(0)]
    """Blocks that were there before the trace and whose size had to be inferred."""
    first_difference: str
    """One sentence on the first thing that came out differently, empty where nothing did."""
    settings: str
    """The allocator's settings in the trace, as in ``PYTORCH_CUDA_ALLOC_CONF``; empty: defaults."""
    cases: tuple[str, ...]
    """What the trace exercises (``"large pool"``, ``"out of memory"``): nothing else is certified.
    """

    @property
    def exact(self) -> bool:
        """Whether there was something to reproduce, and the replay reproduced all of it."""
        names = ("addresses", "segments", "releases", "blocks")
        alike = all(getattr(self, name) == getattr(self, f"num_{name}") for name in names)
        return alike and self.num_addresses > 0 and not self.first_difference
