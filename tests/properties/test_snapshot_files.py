"""Whatever a snapshot file holds, it becomes a record or is refused in one sentence.

The short forms run always; ``make fuzz`` runs the long ones, twelve minutes of them
(`tests.properties.test_atheris` has more).
"""

from __future__ import annotations

import pickle
import random
import re
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.hostile_snapshots import (
    check_shown,
    damaged_bytes,
    damaged_values,
    programs,
)
from tests.unit.allocator.made import made_snapshot
from tests.unit.allocator.traces import FILES, path_of
from workbench.allocator.snapshot import decode
from workbench.records import RecordError

FUZZ_S = 150
"""Of each of the five long runs."""
LARGEST_BYTES = 30_000_000

seeds = st.integers(0, 2**32 - 1)
few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def small() -> dict:
    """Two devices, every action, a few stacks."""
    data = made_snapshot(60, per_step=12)
    trace = data["device_traces"][0]
    trace += [
        {"action": "oom", "device_free": 1 << 20, "size": 1 << 30, "stream": 0, "time_us": 9},
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 10},
        {**trace[0], "action": "segment_free"}, {**trace[0], "action": "annotate"},
    ]  # fmt: skip
    data["device_traces"].append(trace[:3])
    return data


SMALL = small()


def verdict(path: Path, data: bytes) -> str | None:
    """None where ``data`` becomes a record, else its sentence; always within bounds."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        check_shown(decode.read(path))
        said = None
    except RecordError as error:
        said = str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < LARGEST_BYTES
    if said is not None:
        assert said.isprintable(), said
        assert len(said) < 600
        assert "status" not in said, said
        assert "takes longer" not in said, said
        assert "its reader returned" not in said, said
    return said


@few
@given(data=programs)
def test_opcodes_in_any_order(tmp_path: Path, data: bytes):
    verdict(tmp_path / "any.pickle", data)


@few
@given(seed=seeds, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_a_file_with_other_bytes(tmp_path: Path, seed: int, protocol: int):
    data = damaged_bytes(pickle.dumps(SMALL, protocol), random.Random(seed))
    verdict(tmp_path / "any.pickle", data)


@few
@given(seed=seeds)
def test_a_real_trace_with_other_bytes(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    data = damaged_bytes(path_of(chance.choice(FILES[:2])).read_bytes(), chance)
    verdict(tmp_path / "any.pickle", data)


def read_values(seed: int) -> str | None:
    """The verdict on a snapshot with other values, in this process."""
    data = damaged_values(SMALL, random.Random(seed))
    try:
        check_shown(decode.of_live(data))
    except RecordError as error:
        said = str(error)
    else:
        return None
    assert "its reader returned" not in said
    return said


@settings(max_examples=300, deadline=None)
@given(seed=seeds)
def test_values_of_any_kind(seed: int):
    read_values(seed)


def test_the_undamaged_ones_are_read(tmp_path: Path):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert verdict(tmp_path / "any.pickle", pickle.dumps(SMALL, protocol)) is None


def fuzz(one: Callable[[random.Random], str | None]) -> None:
    """One verdict after the other; the number of each is its seed."""
    said: Counter[str] = Counter()
    until = time.monotonic() + FUZZ_S
    for seed in count():
        try:
            sentence = one(random.Random(seed))
        except BaseException:
            print(f"number {seed}")
            raise
        said[re.sub("[0-9]+", "#", (sentence or ": read").partition(": ")[2][:60])] += 1
        if time.monotonic() > until:
            break
    print(f"\n{said.total():,}: " + "; ".join(f"{n:,} {words}" for words, n in said.most_common(9)))
    assert said["read"]
    assert len(said) > 3


@pytest.mark.fuzz
def test_small_files_with_other_bytes_for_minutes(tmp_path: Path):
    files = [pickle.dumps(SMALL, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    fuzz(lambda chance: verdict(tmp_path / "any", damaged_bytes(chance.choice(files), chance)))


@pytest.mark.fuzz
def test_real_traces_with_other_bytes_for_minutes(tmp_path: Path):
    files = [path_of(name).read_bytes() for name in FILES]
    fuzz(lambda chance: verdict(tmp_path / "any", damaged_bytes(chance.choice(files), chance)))


@pytest.mark.fuzz
def test_files_with_other_values_for_minutes(tmp_path: Path):
    fuzz(lambda chance: verdict(tmp_path / "any", pickle.dumps(damaged_values(SMALL, chance))))


@pytest.mark.fuzz
def test_values_of_any_kind_for_minutes():
    fuzz(lambda chance: read_values(chance.randrange(2**32)))


@pytest.mark.fuzz
def test_opcodes_in_any_order_for_minutes(tmp_path: Path):
    until, tried = time.monotonic() + FUZZ_S, 0

    @settings(few, max_examples=5_000)
    @given(data=programs)
    def run(data: bytes):
        nonlocal tried
        if time.monotonic() < until:
            verdict(tmp_path / "any", data)
            tried += 1

    run()
    print(f"\n{tried:,} programs")
    assert tried
