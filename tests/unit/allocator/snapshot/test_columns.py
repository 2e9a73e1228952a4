"""Every schema so far becomes the same columns; what is no number is named, never guessed."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tests.unit.allocator.made import made_snapshot
from tests.unit.allocator.traces import FILES, path_of
from workbench.allocator.snapshot import columns
from workbench.allocator.snapshot.decode import of_live
from workbench.allocator.snapshot.snapshot import ACTIONS, STATES, Annotation, Frame, Snapshot
from workbench.records import RecordError

BASE = 0x7F00_0000_0000
MIB = 1 << 20


def event(action: str = "alloc", **extra: Any) -> dict[str, Any]:
    return {"action": action, "addr": BASE, "size": 100, **extra}


def segment(*blocks: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"device": 0, "address": BASE, "total_size": 2 * MIB, "blocks": list(blocks), **extra}


def block(size: int = 512, **extra: Any) -> dict[str, Any]:
    return {"size": size, "state": "active_allocated", **extra}


def of_trace(*entries: Any) -> Snapshot:
    return of_live({"segments": [], "device_traces": [list(entries)]})


def of_segments(*segments: Any) -> Snapshot:
    return of_live({"segments": list(segments)})


@pytest.mark.parametrize("name", FILES)
def test_a_real_trace_is_what_reading_it_entry_by_entry_gives(name: str):
    data = pickle.loads(path_of(name).read_bytes())  # a trace we ship with, read the plain way
    found, (trace,) = of_live(data), data["device_traces"]
    assert [ACTIONS[code] for code in found.action] == [e["action"] for e in trace]
    for column, key in (("address", "addr"), ("size", "size"), ("stream", "stream")):
        assert getattr(found, column).tolist() == [e[key] for e in trace]
    assert found.time_us.tolist() == [e["time_us"] for e in trace]
    blocks = [(row, b) for row, s in enumerate(data["segments"]) for b in s["blocks"]]
    assert found.block_segment.tolist() == [row for row, _ in blocks]
    for column, key in (("address",) * 2, ("bytes", "size"), ("requested", "requested_size")):
        assert getattr(found, f"block_{column}").tolist() == [b[key] for _, b in blocks]
    assert [STATES[code] == "free" for code in found.block_state] == [
        b["state"] == "inactive" for _, b in blocks
    ]
    sums = np.zeros(len(data["segments"]), dtype=np.int64)
    np.add.at(sums, found.block_segment, found.block_bytes)
    assert sums.tolist() == found.segment_bytes.tolist() == [
        s["total_size"] for s in data["segments"]
    ]  # fmt: skip
    assert found.settings == (data.get("allocator_settings") or {})
    assert len(found.annotations) == len(data.get("external_annotations") or ())


def test_every_stack_is_kept_once_and_whole():
    data = made_snapshot(3000)
    found, trace = of_live(data), data["device_traces"][0]
    assert len(found.stack_start) - 1 == len({str(e["frames"]) for e in trace})
    for row in range(0, len(trace), 7):
        stack = found.trace_stack[row]
        rows = found.stack_frame[found.stack_start[stack] : found.stack_start[stack + 1]]
        assert [found.frames[frame] for frame in rows] == [
            Frame(f["filename"], f["line"], f["name"]) for f in trace[row]["frames"]
        ]
    for how in ({"own_lists": False}, {"own_lists": True}):
        other = of_live(copy.deepcopy(made_snapshot(3000, **how)))
        assert other.trace_stack.tolist() == found.trace_stack.tolist()


def test_stacks_that_look_alike_at_a_glance_are_told_apart_however_many():
    frames = [{"name": "f", "filename": "net.py", "line": line} for line in range(60)]
    stacks = [[frames[0]] * 8 + [frame] for frame in frames]
    found = of_trace(*(event(frames=list(stack)) for stack in stacks * 2))
    assert found.trace_stack.tolist() == [*range(60), *range(60)]
    equal = [[dict(frame) for frame in stack] for stack in stacks]
    found = of_trace(*(event(frames=stack) for stack in (*stacks, *equal)))
    assert found.trace_stack.tolist() == [*range(60), *range(60)]
    assert len(found.frames) == 60


def test_frames_of_another_form_are_left_out_and_their_text_can_be_written():
    odd = [None, {"name": 3, "filename": b"x", "line": "7"}, {"name": "\ud800", "line": -1}, []]
    found = of_trace(event(frames=odd), event(frames="text"), event(frames=[]), event())
    assert found.trace_stack.tolist() == [0, -1, -1, -1]
    assert found.frames == (Frame("", 0, ""), Frame("", 0, "?"))


def test_a_trace_read_in_batches_is_the_same_trace(monkeypatch: pytest.MonkeyPatch):
    data = made_snapshot(200, per_step=12)
    data["device_traces"][0][50]["action"] = data["device_traces"][0][150]["action"] = "annotate"
    whole = vars(of_live(data))
    monkeypatch.setattr(columns, "_BATCH", 7)
    parts = vars(of_live(data))
    assert whole["num_unknown"] == parts["num_unknown"] == 2
    for name, value in whole.items():
        assert np.array_equal(value, parts[name]), name


def test_unknown_actions_and_keys_are_passed_over_and_counted():
    found = of_trace(
        event("alloc", new_key=[1]), event("annotate"), event("free_completed"), {"size": 1},
        {"action": 7}, {"action": ["alloc"]},
    )  # fmt: skip
    assert [ACTIONS[code] for code in found.action] == ["alloc", "free_completed"]
    assert found.num_unknown == 4


def test_an_oom_says_what_was_free_and_a_snapshot_nothing():
    found = of_trace(
        {"action": "oom", "device_free": 3 * MIB, "size": 5 * MIB, "stream": 0},
        {"action": "snapshot"},
    )
    assert found.address.tolist() == [3 * MIB, 0]
    assert found.size.tolist() == [5 * MIB, 0]


def test_numbers_of_the_upper_unsigned_half_are_wrapped():
    found = of_trace(event(addr=2**64 - 512, stream=2**63), event(stream=-1))
    assert found.address.tolist() == [-512, BASE]
    assert found.stream.tolist() == [-(2**63), -1]
    top = of_segments(segment(block(), address=2**64 - 4 * MIB))
    assert top.block_address.tolist() == [-4 * MIB]


def test_pools_are_kept_once_across_trace_and_segments():
    found = of_live(
        {
            "segments": [segment(segment_pool_id=(3, 1)), segment(address=0)],
            "device_traces": [[event(pool_id=p) for p in ((0, 0), [3, 1], None, (0, 2**64 - 1))]],
        }
    )
    assert found.pools == ((0, 0), (3, 1), (0, 2**64 - 1))
    assert found.trace_pool.tolist() == [0, 1, -1, 2]
    assert found.segment_pool.tolist() == [1, -1]
    assert of_trace(event(pool_id=(0, 0)), event(pool_id=(0, 0))).trace_pool.tolist() == [0, 0]


def test_the_oldest_schema_has_no_block_addresses_and_keeps_a_history():
    history = [{"addr": BASE, "real_size": 900, "frames": [{"name": "f", "line": 1}]}, {}]
    found = of_segments(
        segment(
            block(1024, history=history),
            block(512, state="inactive"),
            block(512, state="active_pending_free", requested_size=500),
            block(512, state="active_awaiting_free"),
        )
    )
    assert (found.block_address - BASE).tolist() == [0, 1024, 1536, 2048]
    assert found.block_requested.tolist() == [900, 512, 500, 512]
    assert [STATES[code] for code in found.block_state] == [
        "allocated", "free", "pending", "pending",
    ]  # fmt: skip
    assert found.block_stack.tolist() == [0, -1, -1, -1]


def test_blocks_out_of_order_are_put_in_order():
    found = of_segments(
        segment(block(address=BASE + 512, requested_size=2), block(address=BASE, requested_size=1))
    )
    assert found.block_requested.tolist() == [1, 2]


def test_a_list_of_segments_alone_is_a_snapshot():
    found = of_live([segment(block(), segment_type="large", is_expandable=True, stream=5)])
    assert (found.num_events, len(found.block_bytes)) == (0, 1)
    assert found.segment_is_large.tolist() == found.segment_is_expandable.tolist() == [1]
    assert found.segment_stream.tolist() == [5]


def test_the_device_with_the_most_events_is_chosen_and_the_others_named():
    data = {
        "segments": [segment(device=2)],
        "device_traces": [[event()], [event(), event()], [], []],
    }
    found = of_live(data)
    assert (found.device, found.other_devices, found.num_events) == (1, (0, 2), 2)
    assert of_live(data, 2).segment_bytes.tolist() == [2 * MIB]
    assert of_live(data, 7).num_events == 0
    assert of_live({"segments": [], "device_traces": []}).device == 0


def test_annotations_of_the_device_and_settings_that_are_plain_are_kept():
    found = of_live(
        {
            "segments": [],
            "external_annotations": [
                {"stage": "START", "name": "step", "device": 0, "time_us": 5},
                {"stage": "END", "name": "step", "time_us": 6},
                {"stage": "START", "name": "elsewhere", "device": 1, "time_us": 7},
                {"stage": "HALF"}, {"stage": []}, None,
            ],
            "allocator_settings": {
                "max_split_size": -1, "threshold": 0.5, "odd": float("nan"), "huge": 1 << 70,
                "roundup_power2_divisions": {"1": 0, "2": {"deeper": 1}}, 3: 4, "list": [1],
            },
        }
    )  # fmt: skip
    assert found.annotations == (Annotation(5, "START", "step"), Annotation(6, "END", "step"))
    assert found.settings == {
        "max_split_size": -1, "threshold": 0.5, "roundup_power2_divisions": {"1": 0},
    }  # fmt: skip


BAD_EVENTS = {
    "has no 'addr'": {"action": "alloc", "size": 1},
    "has no 'size'": {"action": "oom", "device_free": 1},
    "'size' of a trace entry is of type str": event(size="1"),
    "'size' of a trace entry is of type float": event(size=float("nan")),
    "'size' of a trace entry is negative": event(size=-1),
    "'size' of a trace entry is negative or": event(size=2**63),
    "'addr' of a trace entry has more than 64 bits": event(addr=2**64),
    "'stream' of a trace entry is of type NoneType": event(stream=None),
    "'stream' of a trace entry has more": event(stream=-(2**63) - 1),
    "'time_us' of a trace entry is of type dict": event(time_us={}),
    "pool id of type int": event(pool_id=3),
    "pool id of type tuple": event(pool_id=("0", 0)),
    "outside 64 unsigned bits": event(pool_id=(-1, 0)),
    "a trace entry is of type list": [],
}
BAD_SEGMENTS = {
    "has no 'address'": {"device": 0, "total_size": 1},
    "has no 'total_size'": {"device": 0, "address": 0},
    "'device' of a segment is of type str": segment(device="cuda"),
    "'device' of a segment is negative": segment(device=-1),
    "blocks of a segment are no list": segment(blocks={}),
    "a block is of type int": segment(blocks=[1]),
    "a block has no 'size'": segment({"state": "inactive"}),
    "a block's state is 'gone'": segment(block(state="gone")),
    "a block's state is of type list": segment(block(state=[])),
    "'address' of a block is of type str": segment(block(address="0")),
    "'requested_size' of a block is negative": segment(block(requested_size=-1)),
    "is outside its segment": segment(block(address=BASE - 512)),
    "blocks is outside its segment": segment(block(2 * MIB + 1)),
    "one of its blocks is outside": segment(block(2**62), block(2**62)),
    "two of its blocks share memory": segment(block(address=BASE), block(address=BASE + 256)),
    "a segment is of type NoneType": None,
}


@pytest.mark.parametrize("words", BAD_EVENTS)
def test_a_trace_that_is_no_trace_is_refused_by_name(words: str):
    with pytest.raises(RecordError, match=words):
        of_trace(event(), BAD_EVENTS[words])


@pytest.mark.parametrize("words", BAD_SEGMENTS)
def test_segments_that_are_none_are_refused_by_name(words: str):
    with pytest.raises(RecordError, match=words):
        of_segments(segment(address=0), BAD_SEGMENTS[words])


def test_segments_that_share_memory_are_refused():
    with pytest.raises(RecordError, match="two of its segments share memory"):
        of_segments(segment(), segment(address=BASE + MIB))
    with pytest.raises(RecordError, match="two of its segments share memory"):
        of_segments(segment(address=2**64 - MIB))


@pytest.mark.parametrize("data", [None, 7, {}, {"segments": {}}, {"segments": None}, "segments"])
def test_what_is_no_snapshot_at_all_is_refused(data: Any):
    with pytest.raises(RecordError, match="it holds no 'segments' list"):
        of_live(data)
    with pytest.raises(RecordError, match="'device_traces' is no list"):
        of_live({"segments": [], "device_traces": {1: []}})
