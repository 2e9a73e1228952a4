"""Files made to run code, to exhaust the reader, or to lie: each with the sentence it must get.

Kept for good: a file that ever got through, hung or crashed its reader is added here.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

DEPTH = 1_000_000
"""Deeper than any stack of C frames."""


class Call:
    """Pickles to a call of ``os.system``."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def short(text: str) -> bytes:
    """A string of at most 255 bytes, as an opcode."""
    data = text.encode()
    return b"\x8c" + bytes([len(data)]) + data


def deep(kind: str) -> bytes:
    """A value inside itself a million times, as opcodes of protocol 2."""
    if kind == "tuple":
        return b")" + b"\x85" * DEPTH
    if kind == "list":
        return b"]" * DEPTH + b"a" * (DEPTH - 1)
    return (b"}" + short("k")) * DEPTH + b"}" + b"s" * DEPTH


def snapshot(**parts: bytes) -> bytes:
    """A snapshot of which some values are opcodes: ``segments`` is empty unless given."""
    given = {"segments": b"]", **parts}
    body = b"".join(short(key) + value for key, value in given.items())
    return b"\x80\x04}(" + body + b"u."


def trace(**entry: bytes) -> bytes:
    """A snapshot with one ``alloc``, some of whose values are opcodes."""
    given = {"action": short("alloc"), "addr": b"K\x00", "size": b"K\x01", **entry}
    body = b"".join(short(key) + value for key, value in given.items())
    return snapshot(device_traces=b"]](" + b"}(" + body + b"u" + b"eaa."[:2])


def doubled(levels: int) -> bytes:
    """A list of two times the same list, and so on: ``2 ** levels`` leaves in a few bytes."""
    data = b"]\x94"
    for level in range(levels):
        data += b"0](h" + bytes([level]) + b"h" + bytes([level]) + b"e\x94"
    return data


def repeated(count: int) -> bytes:
    """``count`` times one segment, which has ``count`` times one block."""
    block = {"address": 0, "size": 0, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {"device": 0, "address": 0, "total_size": 0, "blocks": [block] * count}
    return pickle.dumps({"segments": [segment] * count, "device_traces": []}, 4)


def colliding(count: int) -> bytes:
    """A dictionary whose keys, multiples of the modulus of an integer's hash, all collide."""
    items = b"".join(
        b"\x8a\x0a" + (number * ((1 << 61) - 1)).to_bytes(10, "little") + b"N"
        for number in range(count)
    )
    return snapshot(extra=b"}(" + items + b"u")


def cyclic_frames() -> bytes:
    """Two stacks that hold themselves, and look alike at a glance: comparing them never ends."""
    frame = {"name": "forward", "filename": "net.py", "line": 1}
    stacks: list[list[Any]] = [[frame] * 8, [frame] * 8]
    for stack in stacks:
        stack.append(stack)
    events = [{"action": "alloc", "addr": 0, "size": 1, "frames": stack} for stack in stacks]
    return pickle.dumps({"segments": [], "device_traces": [events]}, 4)


def long_names(count: int) -> bytes:
    """Many frames whose name is one long string: text that unfolds to a thousand times the file."""
    name = "n" * 1_000_000
    frames = [{"name": name, "filename": name, "line": line} for line in range(count)]
    event = {"action": "alloc", "addr": 0, "size": 1, "frames": frames}
    return pickle.dumps({"segments": [], "device_traces": [[event]]}, 4)


_OBJECT = "asks for the Python object"
_BROKEN = "is no complete pickle"
_DEEP = "nested too deeply"
_SCHEMA = "its schema is not one we know"

OPCODES: dict[str, tuple[bytes, str]] = {
    "GLOBAL": (b"cos\nsystem\n(S'true'\ntR.", _OBJECT),
    "INST": (b"(S'true'\nios\nsystem\n.", _OBJECT),
    "OBJ": (b"\x80\x02(cos\nsystem\nU\x04trueo.", _OBJECT),
    "NEWOBJ": (b"\x80\x02cbuiltins\nobject\n)\x81.", _OBJECT),
    "NEWOBJ_EX": (b"\x80\x04cbuiltins\nobject\n)}\x92.", _OBJECT),
    "STACK_GLOBAL": (b"\x80\x04" + short("os") + short("system") + b"\x93.", _OBJECT),
    "STACK_GLOBAL of numbers": (b"\x80\x04K\x01K\x02\x93.", _BROKEN),
    "a name of a million letters": (b"c" + b"m" * 10**6 + b"\nsystem\n.", _OBJECT),
    "a name with line ends and colours": (
        b"\x80\x04" + short("a\n\x1b[31mb") + short("c\u2028d") + b"\x93.",
        _OBJECT,
    ),
    "PERSID": (b"P1\n.", "asks for a persistent object"),
    "BINPERSID": (b"\x80\x02K\x01Q.", "asks for a persistent object"),
    "EXT1": (b"\x80\x02\x82\x01.", _BROKEN),
    "EXT2": (b"\x80\x02\x83\x01\x01.", _BROKEN),
    "EXT4": (b"\x80\x02\x84\x01\x01\x01\x01.", _BROKEN),
    "EXT4, negative": (b"\x80\x02\x84\xff\xff\xff\xff.", _BROKEN),
    "REDUCE of a string": (b"\x80\x02U\x02os)R.", _BROKEN),
    "BUILD of a dictionary": (b"\x80\x02}}U\x01aK\x01sb.", _BROKEN),
    "BUILD of a list": (b"\x80\x02]}(U\x09__class__NU\x06appendNub.", _BROKEN),
    "APPENDS to a dictionary": (b"\x80\x02}(K\x01K\x02e.", _BROKEN),
    "SETITEMS of a list": (b"\x80\x02](K\x09K\x02u.", _BROKEN),
    "NEXT_BUFFER": (b"\x80\x05\x97.", _BROKEN),
    "READONLY_BUFFER": (b"\x80\x05K\x01\x98.", _BROKEN),
    "a set as key": (b"\x80\x04}\x8fK\x01s.", _BROKEN),
    "nothing": (b"", _BROKEN),
    "a protocol alone": (b"\x80\x04", _BROKEN),
    "a protocol of the future": (b"\x80\xff.", _BROKEN),
    "STOP": (b".", _BROKEN),
    "MARK": (b"(.", _BROKEN),
    "POP": (b"0.", _BROKEN),
    "a frame longer than the file": (b"\x80\x04\x95" + b"\x7f" * 8 + b"}.", ""),
    "a string of 4 exabytes": (b"\x80\x04\x8d" + (1 << 62).to_bytes(8, "little") + b".", ""),
    "a string of 2**64 bytes": (b"\x80\x04\x8d" + b"\xff" * 8 + b".", _BROKEN),
    "bytes of 4 exabytes": (b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little") + b".", ""),
    "a byte array of 4 exabytes": (b"\x80\x05\x96" + (1 << 62).to_bytes(8, "little") + b".", ""),
    "a number of -1 bytes": (b"\x80\x02\x8b\xff\xff\xff\xff.", _BROKEN),
    "a number of 2**31 bytes": (b"\x80\x02\x8b\xff\xff\xff\x7f.", ""),
    "a number of 10,000 digits": (b"I" + b"9" * 10_000 + b"\n.", _BROKEN),
    "a memo of 2**31 entries": (b"\x80\x04K\x01r\xff\xff\xff\x7f.", "more memory"),
    "a memo of 2**32 entries": (b"\x80\x04K\x01r\xff\xff\xff\xff.", "more memory"),
    "a memo at 10**18": (b"I1\np1000000000000000000\n.", ""),
    "a memo at -1": (b"I1\np-1\n.", _BROKEN),
    "a memo that is not there": (b"\x80\x04h\x07.", _BROKEN),
    "half a surrogate": (snapshot(allocator_settings=b"]\x8c\x03\xed\xa0\x80a"), ""),
}  # fmt: skip
"""Name -> file and what its refusal says; ``""`` for any refusal, or a reading."""

SHAPES: dict[str, tuple[Callable[[], bytes], str]] = {
    "lists nested a million deep": (lambda: b"\x80\x04" + deep("list") + b".", ""),
    "a deep value nobody looks at": (lambda: snapshot(extra=deep("list")), "reads"),
    "deep dictionaries nobody looks at": (lambda: snapshot(extra=deep("dict")), "reads"),
    "a key that is a deep tuple": (lambda: b"\x80\x02}" + deep("tuple") + b"Ns.", _DEEP),
    "an action that is a deep tuple": (lambda: trace(action=deep("tuple")), "reads"),
    "a size that is a deep tuple": (lambda: trace(size=deep("tuple")), "'size'"),
    "a pool that is a deep tuple": (lambda: trace(pool_id=deep("tuple")), "pool id"),
    "a pool of deep tuples": (
        lambda: trace(pool_id=deep("tuple") + deep("tuple") + b"\x86"), "pool id",
    ),
    "frames that are a deep list": (lambda: trace(frames=deep("list")), "reads"),
    "frames that hold themselves": (cyclic_frames, _DEEP),
    "segments doubled sixty times": (lambda: snapshot(segments=doubled(60)), _SCHEMA),
    "traces doubled sixty times": (lambda: snapshot(device_traces=doubled(60)), _SCHEMA),
    "segments that hold themselves": (lambda: snapshot(segments=b"]\x94(h\x00e"), _SCHEMA),
    "a thousand million blocks in a small file": (lambda: repeated(30_000), "repeats its blocks"),
    "names that unfold to a gigabyte": (lambda: long_names(500), "reads"),
}  # fmt: skip
"""As `OPCODES`, for files too large to keep; ``"reads"`` for one that is read, and quickly."""
