"""What a record holds where nothing was predicted, and where no stacks were read."""

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
    """The columns of a recording whose blocks know neither their calls nor their growth."""
    return {
        "block_call": [-1] * num_blocks,
        "block_growth": [GROWTHS.index("unknown")] * num_blocks,
        "call_parent": [],
        "call_source": [],
    }
