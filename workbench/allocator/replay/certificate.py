"""How far a replay came out like its trace."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.allocator.simulator.settings import AllocatorSettings


@dataclass(frozen=True)
class Count:
    """So many of so many came out alike."""

    alike: int
    total: int

    @property
    def is_exact(self) -> bool:
        """Whether all did."""
        return self.alike == self.total

    def __str__(self) -> str:
        return f"{self.alike:,} of {self.total:,}"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """How far a replay reproduced its trace."""

    addresses: Count
    """Blocks that were allocated where the allocator put them."""
    segments: Count
    """New segments, or mapped pages, of the right size at the right moment."""
    releases: Count
    """Segments given back in the right order."""
    blocks: Count
    """Blocks that are there in the end, in use or free, with the right address and size."""
    num_inferred: int
    """Blocks that were there before the trace and whose size had to be inferred."""
    first_difference: str
    """Where the replay first did something else; empty where it never did."""
    settings: AllocatorSettings
    """What the trace was recorded under."""
    cases: tuple[str, ...]
    """What it exercised: nothing else is certified."""

    @property
    def exact(self) -> bool:
        """Whether everything came out alike."""
        counts = self.addresses, self.segments, self.releases, self.blocks
        alike = all(count.is_exact for count in counts) and not self.first_difference
        return alike and self.addresses.total > 0

    def __str__(self) -> str:
        if self.exact:
            return f"replay reproduces all {self.addresses.total:,} addresses"
        share = 100 * self.addresses.alike / max(1, self.addresses.total)
        return f"replay reproduces {share:.1f} % of the addresses: {self.first_difference}"
