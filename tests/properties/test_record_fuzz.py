"""Thousands of damaged files of every kind of record: each is read, or refused in one sentence.

A file is damaged at three depths: any byte of it, a number in a column, a value in its plain
fields. What is read must be usable, no reading may take long or much memory, and where a file is
whole but says something else, Python and the browser must agree on whether to read it.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import frontend
import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.unit.records.support import samples
from workbench.records import MemoryRecord, Record, RecordError, read_record

VERDICTS = Path(__file__).parents[2] / "extensions" / "records" / "test" / "verdicts.mjs"
FILES = 1_000
"""Of each kind, at each depth."""
LONGEST_S = 1.0
LARGEST_BYTES = 20_000_000

JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 7, 2**31, 2**53, 2**63, -(2**64), 10**40, 0.5, -0.0, 1e300, "",
    "frozen", "x" * 300, "\ud800", "\u2028\n", [], [[]], [1], {}, {"path": 1}, [{}] * 3,
)  # fmt: skip


def whole(record: Record) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Columns and metadata of a record's bytes."""
    data = record.to_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return load(data), json.loads(data[8 : 8 + size])["__metadata__"]


def with_damaged_bytes(record: Record, chance: random.Random) -> Iterator[bytes]:
    """Bytes flipped, cut out, doubled, moved; the size of the header among them."""
    data = record.to_bytes()
    for _ in range(FILES):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at, count = chance.randrange(len(data)), chance.choice((1, 1, 4, 64))
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
        yield bytes(damaged)


def with_other_numbers(record: Record, chance: random.Random) -> Iterator[bytes]:
    """Numbers in columns replaced, columns shortened, lengthened, left out, of another type."""
    columns, metadata = whole(record)
    for _ in range(FILES):
        changed = dict(columns)
        for name in chance.sample(list(columns), min(chance.choice((1, 1, 2, 3)), len(columns))):
            column = columns[name].copy()
            limits = np.iinfo(column.dtype) if column.dtype.kind in "iu" else None
            match chance.randrange(8):
                case 0:
                    changed[name] = column[:-1]
                case 1:
                    changed[name] = np.append(column, column[:1])
                case 2:
                    with np.errstate(invalid="ignore"):
                        other = column.astype(chance.choice((np.int16, np.float64, np.int32)))
                    changed[name] = other
                case 3:
                    changed[name] = column.reshape(1, -1)
                case 4 if len(columns) > 1:
                    changed.pop(name)
                case _ if limits is not None and column.size:
                    values = [-1, 0, 1, 2, 3, limits.max, limits.min, limits.max // 2]
                    fitting = [value for value in values if value >= limits.min]
                    column[chance.randrange(len(column))] = chance.choice(fitting)
                    changed[name] = column
        yield save(changed, metadata=metadata)


def with_other_plain_fields(record: Record, chance: random.Random) -> Iterator[bytes]:
    """Values anywhere in the plain fields replaced, left out or doubled."""
    columns, metadata = whole(record)
    for _ in range(FILES):
        plain = json.loads(metadata["record"])
        for _ in range(chance.choice((1, 1, 2))):
            _damage(plain, chance)
        yield save(columns, metadata={**metadata, "record": json.dumps(plain)})


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


DAMAGES: dict[str, Callable[[Record, random.Random], Iterator[bytes]]] = {
    "bytes": with_damaged_bytes,
    "columns": with_other_numbers,
    "plain": with_other_plain_fields,
}


def verdict(data: bytes) -> str | None:
    """None where ``data`` is read into something usable, else the sentence."""
    started = time.perf_counter()
    try:
        record = read_record(data)
    except RecordError as error:
        return str(error)
    finally:
        assert time.perf_counter() - started < LONGEST_S
    assert type(read_record(record.to_bytes())) is type(record)
    if isinstance(record, MemoryRecord):
        record.series()
    return None


@pytest.mark.fuzz
@pytest.mark.parametrize("depth", DAMAGES)
@pytest.mark.parametrize("kind", samples())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    kind: str, depth: str, tmp_path: Path
) -> None:
    files = list(DAMAGES[depth](samples()[kind], random.Random(f"{kind} {depth}")))
    tracemalloc.start()
    verdicts = [verdict(data) for data in files]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < LARGEST_BYTES
    browser = browser_verdicts(files, tmp_path)
    read = sum(one is None for one in verdicts)
    print(f"\n{kind}, {depth}: {len(files)} files, {read} read, {len(set(verdicts))} sentences")
    sentences = [one for one in verdicts if one is not None]
    assert sentences
    assert max(map(len, sentences)) < 600
    assert not any("\n" in sentence for sentence in sentences)
    if depth != "bytes":
        # Of files damaged in their structure safetensors refuses more than a reader needs to.
        differ = [
            pair
            for pair in zip(verdicts, browser, strict=True)
            if (pair[0] is None) != (pair[1] is None)
        ]
        assert not differ


def browser_verdicts(files: list[bytes], folder: Path) -> list[str | None]:
    """What the browser's reader says of the same files."""
    node = shutil.which("node", path=frontend.environment()["PATH"])
    assert node is not None, "the front end was built with one"
    path = folder / "files"
    path.write_bytes(b"".join(struct.pack("<Q", len(data)) + data for data in files))
    run = subprocess.run(
        [node, str(VERDICTS), str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)
