"""Fields of a record in which nothing was predicted, or for which no stacks were read."""

from __future__ import annotations

from typing import Any

from workbench.records import GROWTHS

NOTHING_PREDICTED: dict[str, Any] = {
    "is_predicted": False,
    "card": "",
    "card_bytes": -1,
    "peak_interval": (-1, -1),
    "reasons": (),
    "remedies": (),
}


def nothing_of_calls(num_blocks: int) -> dict[str, Any]:
    """Return the columns of a recording whose blocks have neither calls nor a known growth."""
    return {
        "block_call": [-1] * num_blocks,
        "block_growth": [GROWTHS.index("unknown")] * num_blocks,
        "call_parent": [],
        "call_source": [],
    }
