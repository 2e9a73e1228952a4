"""A snapshot file builds plain data and nothing else, and takes no more than it may."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.unit.allocator.attacks import OPCODES, SHAPES, Call, colliding, repeated, snapshot
from workbench.allocator.snapshot import decode, unpickle
from workbench.allocator.snapshot.plain import RefusedError
from workbench.records import RecordError

TOO_LONG = "takes longer"
"""What is said of a reader that does not come to an end by itself."""

needs_limits = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")


def verdict(path: Path, data: bytes) -> str:
    """What ``data`` is refused with, or ``reads``; no attack may take this process along."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        decode.read(path)
    except RecordError as error:
        said = str(error)
        assert said.isprintable()
        assert len(said) < 600
        assert "status" not in said, "the reader ended in a way nobody thought of"
    else:
        said = "reads"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000
    return said


@pytest.mark.parametrize("name", OPCODES)
def test_a_hostile_opcode_is_refused_in_one_sentence(name: str, tmp_path: Path):
    data, words = OPCODES[name]
    said = verdict(tmp_path / "evil.pickle", data)
    assert words in said
    assert TOO_LONG not in said
    assert words == "" or said.startswith("evil.pickle is not a CUDA allocator snapshot: ")


@needs_limits
@pytest.mark.parametrize("name", SHAPES)
def test_a_hostile_shape_is_refused_or_read_within_bounds(name: str, tmp_path: Path):
    make, words = SHAPES[name]
    said = verdict(tmp_path / "evil.pickle", make())
    assert words in said
    assert TOO_LONG not in said


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_call_is_refused_at_every_protocol(protocol: int, tmp_path: Path):
    target = tmp_path / "touched"
    file = {"segments": [], "device_traces": [[]], "evil": Call(f"touch {target}")}
    data = pickle.dumps(file, protocol=protocol)
    assert "asks for the Python object" in verdict(tmp_path / "evil.pickle", data)
    with pytest.raises(RefusedError, match=f"the Python object {os.system.__module__}.system"):
        unpickle.load(io.BytesIO(data))
    assert not target.exists()


@needs_limits
def test_a_file_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode, "_SECONDS_BASE", 1)
    said = verdict(tmp_path / "slow.pickle", colliding(100_000))
    assert f"{TOO_LONG} than 1 s" in said


@needs_limits
def test_a_file_that_takes_too_much_memory_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decode, "_MEMORY_BASE", 64 << 20)
    monkeypatch.setattr(decode, "_MEMORY_PER_BYTE", 1)
    said = verdict(tmp_path / "large.pickle", snapshot(extra=b"](" + b"}\x94" * 10**6 + b"e"))
    assert "needs more memory than a snapshot of its size can" in said


@needs_limits
def test_columns_that_outgrow_their_bound_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decode, "_OUTPUT_BASE", 10_000)
    monkeypatch.setattr(decode, "_OUTPUT_PER_BYTE", 1)
    data = pickle.dumps({"segments": [], "device_traces": [[{"action": "snapshot"}] * 10_000]}, 4)
    assert "its columns cannot be written" in verdict(tmp_path / "much.pickle", data)


@needs_limits
def test_the_limits_hold_in_the_reader_and_stricter_ones_stay():
    program = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]);"
        "from workbench.allocator.snapshot.unpickle import limit;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000));"
        "limit(1 << 30, 7, 10**6);"
        "print(*(resource.getrlimit(getattr(resource, 'RLIMIT_' + n))[0]"
        " for n in ('AS', 'CPU', 'FSIZE', 'CORE', 'NPROC')))"
    )
    command = [sys.executable, "-I", "-c", program, str(Path(__file__).parents[4])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(1 << 30), "7", "5000", "0", "0"]


@needs_limits
def test_a_limit_that_a_system_refuses_does_not_keep_a_file_shut():
    """As macOS refuses one on memory; the others hold."""
    program = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]);"
        "from workbench.allocator.snapshot.unpickle import limit;"
        "original = resource.setrlimit\n"
        "def refusing(kind, bounds):\n"
        "    if kind == resource.RLIMIT_AS: raise ValueError('current limit exceeds maximum')\n"
        "    original(kind, bounds)\n"
        "resource.setrlimit = refusing\n"
        "limit(1 << 30, 7, 10**6)\n"
        "print(*(resource.getrlimit(kind)[0]"
        " for kind in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)))"
    )
    command = [sys.executable, "-I", "-c", program, str(Path(__file__).parents[4])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", str(10**6)]


def test_the_reader_loads_nothing_but_the_standard_library_and_itself():
    program = (
        "import sys; sys.path.append(sys.argv[1]); import workbench.allocator.snapshot.unpickle;"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(Path(__file__).parents[4])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - set(sys.stdlib_module_names) == {"__main__", "workbench"}


def test_blocks_are_counted_before_they_are_unfolded(tmp_path: Path):
    """Thirty blocks thirty times are an honest file's; the bound is the file's size."""
    assert verdict(tmp_path / "few.pickle", repeated(5)) == "reads"
