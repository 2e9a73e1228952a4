"""Damaged files of every kind of record: each is read, or refused in one sentence.

A file is damaged at three depths: any byte of it, a number in a column, a value in its plain
fields. What is read must be usable, no reading may take long or much memory, and where a file is
whole but says something else, Python and the browser must agree on whether to read it. A few files
are tried always; ``make fuzz`` tries thousands.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import tracemalloc
from pathlib import Path

import frontend
import pytest

from tests.properties.hostile_records import DAMAGES, Whole, verdict
from tests.unit.records.support import samples

VERDICTS = Path(__file__).parents[2] / "extensions" / "records" / "test" / "verdicts.mjs"
FEW, MANY = 40, 1_000
"""Files of each kind, at each depth."""
LARGEST_BYTES = 20_000_000


def damaged(kind: str, depth: str, number: int) -> list[bytes]:
    """So many files of a kind, the same ones every time."""
    chance, whole = random.Random(f"{kind} {depth}"), Whole(samples()[kind])
    return [DAMAGES[depth](whole, chance) for _ in range(number)]


def verdicts_of(files: list[bytes]) -> list[str | None]:
    """Python's, within bounds."""
    tracemalloc.start()
    found = [verdict(data) for data in files]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < LARGEST_BYTES
    return found


def disagreements(ours: list[str | None], browser: list[str | None]) -> list[int]:
    """Rows of the files that one of the two reads and the other does not."""
    pairs = enumerate(zip(ours, browser, strict=True))
    return [row for row, (here, there) in pairs if (here is None) != (there is None)]


@pytest.mark.parametrize("depth", DAMAGES)
def test_a_few_damaged_files_are_read_or_refused_alike(depth: str, tmp_path: Path) -> None:
    files = [data for kind in samples() for data in damaged(kind, depth, FEW)]
    found = verdicts_of(files)
    assert 0 < sum(said is None for said in found) < len(files)
    if depth != "bytes":
        assert not disagreements(found, browser_verdicts(files, tmp_path))


@pytest.mark.fuzz
@pytest.mark.parametrize("depth", DAMAGES)
@pytest.mark.parametrize("kind", samples())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    kind: str, depth: str, tmp_path: Path
) -> None:
    files = damaged(kind, depth, MANY)
    found = verdicts_of(files)
    browser = browser_verdicts(files, tmp_path)
    read = sum(said is None for said in found)
    print(f"\n{kind}, {depth}: {len(files)} files, {read} read, {len(set(found))} sentences")
    assert read < len(files)
    if depth != "bytes":
        # Of files damaged in their structure safetensors refuses more than a reader needs to.
        assert not disagreements(found, browser)


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
