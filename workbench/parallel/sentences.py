"""Parts of sentences that several of this package say, and what ranks say of them together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.distributed as dist


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first of them, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return f"{', '.join(found[:most])}{more}"


def first_said(mine: str) -> str:
    """What the first rank says that says anything; all ranks call it together."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, mine)
    return next(filter(None, said), "")
