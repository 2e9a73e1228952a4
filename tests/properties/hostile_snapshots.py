"""Snapshots nobody would write: opcodes in any order, real files with bytes and values changed."""

from __future__ import annotations

import copy
import pickle
import pickletools
import random
import struct
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.properties.hostile_records import check_usable
from tests.unit.allocator.attacks import OPCODES, short
from workbench.allocator.snapshot.snapshot import ACTIONS, STATES, Snapshot
from workbench.memory.files.replayed_snapshot import replayed_record

JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 7, 255, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**64),
    10**40, 0.5, float("nan"), float("inf"), "", "oom", "active_allocated", "x" * 5000, "\ud800",
    b"\xff", [], [[]], (), (0, 0), (0, 0, 0), {}, {"action": "alloc"}, [{}] * 3, {1: 2}, ({},),
)  # fmt: skip
KEYS = (
    "segments", "device_traces", "blocks", "frames", "action", "addr", "size", "stream", "time_us",
    "state", "address", "total_size", "pool_id", "history", "device", "device_free", "unheard of",
)  # fmt: skip

_lengths = st.sampled_from((0, 1, 2, 5, 100, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1))
_digits = st.integers(-(2**70), 2**70).map(lambda number: b"%d\n" % number)
_line = st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"") + b"\n")


def _counted(code: str) -> st.SearchStrategy[bytes]:
    """Bytes after their length, which is sometimes another."""
    most = 2 ** (8 * struct.calcsize(code)) - 1
    honest = st.binary(max_size=12).map(lambda data: struct.pack(code, len(data)) + data)
    lying = _lengths.map(lambda count: struct.pack(code, min(count, most)))
    return st.one_of(honest, honest, honest, lying)


def _numbers(code: str) -> st.SearchStrategy[bytes]:
    bits = 8 * struct.calcsize(code)
    edges = (0, 1, 2, 3, 2 ** (bits - 1) - 1, 2**bits - 1)
    return st.sampled_from(edges).map(lambda number: struct.pack(code, number))


_ARGUMENTS: dict[str, st.SearchStrategy[bytes]] = {
    "uint1": st.integers(0, 8).map(lambda number: bytes([number])),
    "uint2": _numbers("<H"), "int4": _numbers("<I"), "uint4": _numbers("<I"),
    "uint8": _numbers("<Q"),
    "decimalnl_short": _digits, "decimalnl_long": _digits.map(lambda data: data[:-1] + b"L\n"),
    "floatnl": st.floats().map(lambda number: repr(number).encode() + b"\n"),
    "float8": st.floats().map(lambda number: struct.pack(">d", number)),
    "stringnl": _line.map(lambda data: b"'" + data[:-1] + b"'\n"), "stringnl_noescape": _line,
    "stringnl_noescape_pair": st.sampled_from((b"os\nsystem\n", b"builtins\neval\n", b"\n\n")),
    "unicodestringnl": _line, "string1": _counted("<B"), "bytes1": _counted("<B"),
    "long1": _counted("<B"), "unicodestring1": _counted("<B"), "string4": _counted("<I"),
    "bytes4": _counted("<I"), "long4": _counted("<I"), "unicodestring4": _counted("<I"),
    "bytes8": _counted("<Q"), "unicodestring8": _counted("<Q"), "bytearray8": _counted("<Q"),
}  # fmt: skip
"""Every kind of argument an opcode may have (`pickletools`), honest and lying."""


def _opcode(info: pickletools.OpcodeInfo) -> st.SearchStrategy[bytes]:
    code = info.code.encode("latin-1")
    return st.just(code) if info.arg is None else _ARGUMENTS[info.arg.name].map(code.__add__)


_any_opcode = st.one_of([_opcode(info) for info in pickletools.opcodes])
_word = st.sampled_from((*KEYS, *ACTIONS, "active_allocated", "inactive")).map(short)
_usual = st.sampled_from((b"}", b"]", b"(", b"u", b"e", b"s", b"a", b"t", b"\x94", b"N", b")"))
programs = st.tuples(
    st.sampled_from((b"", b"\x80\x02", b"\x80\x04", b"\x80\x05", b"\x80\x04}(\x8c\x08segments]")),
    st.lists(st.one_of(_any_opcode, _word, _usual, _usual), max_size=60).map(b"".join),
    st.sampled_from((b".", b"", b"u.", b"eu.")),
).map(b"".join)
"""Pickles of opcodes in any order."""


def damaged_bytes(data: bytes, chance: random.Random) -> bytes:
    """``data`` with bytes flipped, cut, doubled or swapped for an attack's."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at, count = chance.randrange(len(found) + 1), chance.choice((1, 1, 4, 64, 1000))
        match chance.choice((0, 0, 0, 0, 1, 2, 3, 4, 5)):
            case 0:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del found[at : at + count]
            case 2:
                found[at:at] = found[at : at + count]
            case 3:
                found[at:at] = chance.choice(list(OPCODES.values()))[0][:200]
            case 4:
                found[at : at + 1] = chance.choice(pickletools.opcodes).code.encode("latin-1")
            case _:
                del found[max(at, 1) :]
    return bytes(found)


def damaged_values(data: Any, chance: random.Random) -> Any:
    """A copy of ``data`` with values anywhere in it replaced, left out, doubled or renamed."""
    data = pickle.loads(pickle.dumps(data))
    for _ in range(chance.choice((1, 1, 2, 5))):
        _damage(data, chance)
    return data


def _damage(data: Any, chance: random.Random) -> None:
    inside = data
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(inside[key], (dict, list)) and chance.random() < 0.85:
            inside = inside[key]
            continue
        match chance.randrange(7):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, list):
                inside.append(inside[key])
            case 2 if isinstance(inside, dict):
                inside[chance.choice(KEYS)] = inside.pop(key)
            case 3 if isinstance(inside[key], int):
                inside[key] += chance.choice((-1, 1, 512, 2**20, -(2**40)))
            case _:
                inside[key] = copy.deepcopy(chance.choice(JUNK))
        return


def check_whole(found: Snapshot) -> None:
    """Assert what a reader of a `Snapshot` may rely on."""
    num_stacks, num_pools = len(found.stack_start) - 1, len(found.pools)
    for name in ("trace_stack", "segment_stack", "block_stack"):
        assert_within(getattr(found, name), -1, num_stacks)
    for name in ("trace_pool", "segment_pool"):
        assert_within(getattr(found, name), -1, num_pools)
    assert_within(found.action, 0, len(ACTIONS))
    assert_within(found.block_state, 0, len(STATES))
    assert_within(found.block_segment, 0, len(found.segment_address))
    assert_within(found.stack_frame, 0, len(found.frames))
    for name in ("size", "segment_bytes", "block_bytes", "block_requested"):
        assert_within(getattr(found, name), 0, 2**63)
    for name in ("address", "size", "stream", "time_us", "trace_pool", "trace_stack"):
        assert len(getattr(found, name)) == found.num_events
    owners = found.block_segment.tolist()
    rows = zip(owners, _unsigned(found.block_address), found.block_bytes.tolist(), strict=True)
    ends = dict.fromkeys(range(len(found.segment_address)), 0)
    starts, sizes = _unsigned(found.segment_address), found.segment_bytes.tolist()
    for owner, address, size in rows:
        assert max(starts[owner], ends[owner]) <= address
        ends[owner] = address + size
        assert ends[owner] <= starts[owner] + sizes[owner]
    for text in (*(f.filename + f.name for f in found.frames), *found.settings):
        assert text.encode() is not None


def check_shown(found: Snapshot) -> None:
    """Assert that a snapshot is whole, and becomes a record that can be kept and looked at.

    Raises:
        RecordError: it holds numbers that no record may.
    """
    check_whole(found)
    record = replayed_record(found, title="hostile")
    assert record.notes
    check_usable(record)


def assert_within(column: Any, least: int, end: int) -> None:
    assert all(least <= number < end for number in column.tolist())


def _unsigned(column: Any) -> list[int]:
    return column.astype(np.int64).view(np.uint64).tolist()
