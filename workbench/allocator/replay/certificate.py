"""How closely a replay reproduced its trace."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.allocator.simulator.settings import AllocatorSettings


@dataclass(frozen=True)
class Count:
    """The number of items that match, out of a total."""

    alike: int
    total: int

    @property
    def is_exact(self) -> bool:
        """Whether all of them match."""
        return self.alike == self.total

    def __str__(self) -> str:
        return f"{self.alike:,} of {self.total:,}"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """How closely a replay reproduced its trace."""

    addresses: Count
    """Blocks that were allocated at the addresses of the trace."""
    segments: Count
    """New segments, or mapped pages, of the right size at the right moment."""
    releases: Count
    """Segments released in the right order."""
    blocks: Count
    """Blocks that are there at the end, in use or free, with the right address and size."""
    num_inferred: int
    """Blocks that were there before the trace and whose size had to be inferred."""
    first_difference: str
    """The first difference from the trace; empty if there is none."""
    settings: AllocatorSettings
    """The settings of the trace."""
    cases: tuple[str, ...]
    """The cases in the trace: nothing else is certified."""

    @property
    def exact(self) -> bool:
        """Whether everything matches."""
        counts = self.addresses, self.segments, self.releases, self.blocks
        alike = all(count.is_exact for count in counts) and not self.first_difference
        return alike and self.addresses.total > 0

    def __str__(self) -> str:
        if self.exact:
            return f"replay reproduces all {self.addresses.total:,} addresses"
        share = 100 * self.addresses.alike / max(1, self.addresses.total)
        return f"replay reproduces {share:.1f} % of the addresses: {self.first_difference}"
