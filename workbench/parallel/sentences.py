"""Parts of messages that several modules share, and the first message over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.distributed as dist


def listed(names: Iterable[str], most: int = 3) -> str:
    """Join the first names, and add how many more there are."""
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return f"{', '.join(found[:most])}{more}"


def first_nonempty(mine: str) -> str:
    """Return the first nonempty text over the ranks; every rank must call it."""
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, mine)
    return next(filter(None, of_ranks), "")
