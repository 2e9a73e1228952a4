"""Where reserved memory went, beside the simulator's own blocks after every so many events."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.allocator.traces import FILES, path_of, snapshot_of
from workbench.allocator.replay.replay import replay
from workbench.allocator.simulator.rounding import round_size
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.memory import memory
from workbench.memory.reading.fragmentation import PARTS, fragmentation
from workbench.memory.reading.lifetimes import kept_events


@pytest.mark.parametrize("name", FILES)
def test_the_parts_add_up_at_every_event(name):
    record = memory(path_of(name)).record
    parts = fragmentation(record)
    assert parts.shape == (len(PARTS), len(record.event_kind) + 1)
    assert (parts >= 0).all()
    np.testing.assert_array_equal(parts.sum(axis=0), record.reserved())


def walked(allocator):
    """The same parts, counted block by block."""
    found = dict.fromkeys(PARTS, 0)
    for block in allocator.blocks.values():
        rounded = round_size(block.requested, AllocatorSettings())
        found["requested"] += block.requested
        found["rounding"] += rounded - block.requested
        found["slack"] += block.size - rounded
    for region in allocator.regions():
        for _, _, block in region.free:
            found["pinned" if block.prev or block.next else "releasable"] += block.size
    return [found[name] for name in PARTS]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.77, 1.0])
def test_the_parts_are_those_of_the_blocks_that_lie_there(name, share):
    """The trace cut off, and replayed to there; its blocks counted one by one."""
    snapshot = snapshot_of(name)
    record = memory(path_of(name)).record
    cut = int(share * snapshot.num_events)
    while cut < snapshot.num_events and snapshot.action[cut - 1] not in (0, 2):
        cut += 1  # behind a whole allocation or free
    found = walked(replay(snapshot, until=cut).allocator)
    column = events_until(snapshot, cut)
    assert fragmentation(record)[:, column].tolist() == found


def events_until(snapshot, cut):
    """How many events of the record the first ``cut`` entries of the trace are."""
    return int(kept_events(snapshot)[:cut].sum())


def test_on_the_cpu_everything_was_asked_for():
    with memory() as found:
        kept = torch.ones(1000)
    parts = fragmentation(found.record)
    assert parts[0].max() == kept.untyped_storage().nbytes()
    assert not parts[1:].any()
