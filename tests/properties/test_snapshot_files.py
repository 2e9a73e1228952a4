"""Whatever a snapshot file holds, it is read into something usable or refused in one sentence.

The short forms run always; ``make fuzz`` runs the long ones, ten minutes of them. `atheris`, where
it is installed, guides the bytes of a reader's answer and the values of a snapshot by what they
reach (``tests/properties/atheris_snapshots.py``).
"""

from __future__ import annotations

import importlib.util
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.hostile_snapshots import (
    check_whole,
    damaged_bytes,
    damaged_values,
    programs,
)
from tests.unit.allocator.made import made_snapshot
from workbench.allocator import decode
from workbench.records import RecordError

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"
FUZZ_S = 200
"""Of each of the three long runs with a process per file."""
LONGEST_S, LARGEST_BYTES = 30.0, 30_000_000

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
    """None where ``data`` is read into something whole, else its sentence; always within bounds."""
    path.write_bytes(data)
    tracemalloc.start()
    started = time.monotonic()
    try:
        check_whole(decode.read(path))
        said = None
    except RecordError as error:
        said = str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert time.monotonic() - started < LONGEST_S
    assert peak < LARGEST_BYTES
    if said is not None:
        assert said.isprintable(), said
        assert len(said) < 600
        assert "status" not in said, said
        assert "its reader gave" not in said, said
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
    files = sorted(TRACES.glob("*.pickle"))
    if not files:
        pytest.skip("the recorded CUDA traces are not beside this checkout")
    chance = random.Random(seed)
    data = damaged_bytes(chance.choice(files[:2]).read_bytes(), chance)
    verdict(tmp_path / "any.pickle", data)


def read_values(seed: int) -> str | None:
    """The verdict on a snapshot with other values, in this process."""
    data = damaged_values(SMALL, random.Random(seed))
    try:
        check_whole(decode.of_live(data))
    except RecordError as error:
        said = str(error)
    else:
        return None
    assert "its reader gave" not in said
    return said


@settings(max_examples=300, deadline=None)
@given(seed=seeds)
def test_values_of_any_kind(seed: int):
    read_values(seed)


def test_the_undamaged_ones_are_read(tmp_path: Path):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert verdict(tmp_path / "any.pickle", pickle.dumps(SMALL, protocol)) is None


def fuzz(make: Callable[[random.Random], bytes], path: Path, seconds: float) -> None:
    """`verdict` on file after file; the number of each is its seed."""
    seed, read, said = 0, 0, set[str]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            sentence = verdict(path, make(random.Random(seed)))
        except BaseException:
            print(f"file number {seed}")
            raise
        seed += 1
        read += sentence is None
        said.add((sentence or "")[:60])
    print(f"\n{seed:,} files: {read:,} read, {len(said):,} kinds of refusal")
    assert said


@pytest.mark.fuzz
def test_small_files_with_other_bytes_for_minutes(tmp_path: Path):
    files = [pickle.dumps(SMALL, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    fuzz(
        lambda chance: damaged_bytes(chance.choice(files), chance), tmp_path / "any.pickle", FUZZ_S
    )


@pytest.mark.fuzz
def test_real_traces_with_other_bytes_for_minutes(tmp_path: Path):
    files = [path.read_bytes() for path in sorted(TRACES.glob("*.pickle"))]
    if not files:
        pytest.skip("the recorded CUDA traces are not beside this checkout")
    fuzz(
        lambda chance: damaged_bytes(chance.choice(files), chance), tmp_path / "any.pickle", FUZZ_S
    )


@pytest.mark.fuzz
@settings(
    max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=programs)
def test_opcodes_in_any_order_for_minutes(tmp_path: Path, data: bytes):
    verdict(tmp_path / "any.pickle", data)


@pytest.mark.fuzz
def test_values_of_any_kind_for_minutes():
    verdicts = [read_values(seed) for seed in range(30_000)]
    sentences = {said for said in verdicts if said is not None}
    print(f"\n{verdicts.count(None):,} of {len(verdicts):,} read, {len(sentences)} sentences")
    assert len(sentences) > 50


@pytest.mark.fuzz
def test_atheris_finds_nothing():
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install atheris")
    command = [sys.executable, "-m", "tests.properties.atheris_snapshots", "-max_total_time=120"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stderr[-400:])
    assert done.returncode == 0, done.stderr[-4000:]
