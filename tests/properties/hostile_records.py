"""Record files nobody would write: bytes, numbers in columns and values in plain fields changed."""

from __future__ import annotations

import copy
import json
import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from tests.cost import cost
from workbench.memory.simulation.questions import answer
from workbench.records import MemoryRecord, Record, RecordError, read_record

LONGEST_S = 100 * cost(lambda: sum(range(1_000_000)))
"""Of processor time, as the machine may have other things to do; a second or so in 2025."""
QUESTION: dict[str, Any] = {
    "kind": "what_if",
    "rows": [
        {"settings": "expandable_segments:True", "card": "T4"},
        {"settings": "max_split_size_mb:64,garbage_collection_threshold:0.5", "card": 6 << 30},
        {"settings": "roundup_power2_divisions:8", "batch": 7, "empty_before": "backward"},
    ],
    "chosen": 1,
}
JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 7, 2**31, 2**53, 2**63, -(2**64), 10**40, 0.5, -0.0, 1e300, "",
    "frozen", "x" * 300, "\ud800", "\u2028\n", [], [[]], [1], {}, {"path": 1}, [{}] * 3,
)  # fmt: skip


class Whole:
    """A record's bytes, and the columns and metadata in them."""

    def __init__(self, record: Record) -> None:
        self.data = record.to_bytes()
        (size,) = struct.unpack("<Q", self.data[:8])
        self.columns: dict[str, np.ndarray] = load(self.data)
        self.metadata: dict[str, str] = json.loads(self.data[8 : 8 + size])["__metadata__"]


def with_damaged_bytes(whole: Whole, chance: random.Random) -> bytes:
    """Bytes flipped, cut out, doubled, moved; the size of the header among them."""
    damaged = bytearray(whole.data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at, count = chance.randrange(len(whole.data)), chance.choice((1, 1, 4, 64))
        match chance.randrange(5):
            case 0:
                damaged[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del damaged[at : at + count]
            case 2:
                damaged[at:at] = damaged[at : at + count]
            case 3:
                damaged[at : at + count] = bytes(count)
            case _:
                damaged[:8] = chance.choice((at, 2**63, 2**40, 0)).to_bytes(8, "little")
    return bytes(damaged)


def with_other_numbers(whole: Whole, chance: random.Random) -> bytes:
    """Numbers in columns replaced, columns shortened, lengthened, left out, of another type."""
    changed, names = dict(whole.columns), list(whole.columns)
    for name in dict.fromkeys(chance.choice(names) for _ in range(chance.choice((1, 1, 2, 3)))):
        column = changed[name].copy()
        limits = np.iinfo(column.dtype) if column.dtype.kind in "iu" else None
        match chance.randrange(8):
            case 0:
                changed[name] = column[:-1]
            case 1:
                changed[name] = np.append(column, column[:1])
            case 2:
                with np.errstate(invalid="ignore"):
                    changed[name] = column.astype(chance.choice((np.int16, np.float64, np.int32)))
            case 3:
                changed[name] = column.reshape(1, -1)
            case 4 if len(whole.columns) > 1:
                changed.pop(name)
            case _ if limits is not None and column.size:
                values = [-1, 0, 1, 2, 3, limits.max, limits.min, limits.max // 2]
                fitting = [value for value in values if value >= limits.min]
                column[chance.randrange(len(column))] = chance.choice(fitting)
                changed[name] = column
    return save(changed, metadata=whole.metadata)


def with_other_plain_fields(whole: Whole, chance: random.Random) -> bytes:
    """Values anywhere in the plain fields replaced, left out or doubled."""
    plain = json.loads(whole.metadata["record"])
    for _ in range(chance.choice((1, 1, 2))):
        _damage(plain, chance)
    return save(whole.columns, metadata={**whole.metadata, "record": json.dumps(plain)})


def _damage(plain: Any, chance: random.Random) -> None:
    inside = plain
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(inside[key], (dict, list)) and chance.random() < 0.7:
            inside = inside[key]
            continue
        match chance.randrange(6):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, list):
                inside.append(copy.deepcopy(inside[key]))
            case _:
                inside[key] = copy.deepcopy(chance.choice(JUNK))
        return


DAMAGES: dict[str, Callable[[Whole, random.Random], bytes]] = {
    "bytes": with_damaged_bytes,
    "columns": with_other_numbers,
    "plain": with_other_plain_fields,
}


def verdict(data: bytes) -> str | None:
    """None where ``data`` is read into something usable, else the sentence that refuses it."""
    started = time.thread_time()
    try:
        record = read_record(data)
    except RecordError as error:
        said = str(error)
        assert len(said) < 600, said
        assert "\n" not in said, said
        return said
    finally:
        assert time.thread_time() - started < LONGEST_S
    check_usable(record)
    return None


def check_usable(record: Record) -> None:
    """Assert that a record can be kept, and that what its view asks of it can be worked out."""
    assert type(read_record(record.to_bytes())) is type(record)
    if isinstance(record, MemoryRecord):
        record.series()
        record.reserved()
        with suppress(ValueError):  # a sentence: the record's own settings may be none
            assert len(answer(record, QUESTION)["rows"]) == len(QUESTION["rows"])
