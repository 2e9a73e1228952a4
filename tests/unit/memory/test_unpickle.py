"""A snapshot file can build plain data and nothing else."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.memory import unpickle


class Attack:
    """Pickles to a call of ``os.system``."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def plain(**extra):
    return {"segments": [], "device_traces": [[]], **extra}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_call_is_refused_at_every_protocol(protocol: int, tmp_path: Path):
    target = tmp_path / "touched"
    data = pickle.dumps(plain(evil=Attack(f"touch {target}")), protocol=protocol)
    with pytest.raises(unpickle.RefusedError, match="asks for the Python object"):
        unpickle.load(io.BytesIO(data))
    assert not target.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"P1\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    ],
    ids=["GLOBAL", "PERSID", "EXT1", "STACK_GLOBAL"],
)  # fmt: skip
def test_hand_written_opcodes_are_refused(data: bytes):
    with pytest.raises(unpickle.RefusedError):
        unpickle.load(io.BytesIO(data))


@pytest.mark.parametrize("data", [b"", b"\x80\x04", b"\x80\x04K\x01.", b"\x80\x04}.", b"garbage"])
def test_what_is_no_snapshot_is_refused(data: bytes):
    with pytest.raises(unpickle.RefusedError):
        unpickle.load(io.BytesIO(data))


def run(path: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", unpickle.__file__, str(path), "20"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def test_a_file_that_asks_for_all_memory_ends_its_own_process_only(tmp_path: Path):
    path = tmp_path / "bomb.pickle"
    # LONG_BINPUT with the largest index asks for a memo table of 2**31 entries
    path.write_bytes(b"\x80\x04K\x01r" + (2**31 - 1).to_bytes(4, "little") + b".")
    done = run(path)
    assert done.returncode == 3
    assert done.stdout == b""


def test_a_very_deep_file_is_survived(tmp_path: Path):
    path = tmp_path / "deep.pickle"
    path.write_bytes(b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b".")
    assert run(path).returncode != 0


def test_unknown_actions_and_keys_are_skipped_and_large_numbers_kept():
    event = {"action": "alloc", "addr": 2**64 - 512, "size": 100, "stream": 2**63, "time_us": 5}
    newer = {"action": "annotate", "text": "x"}
    oom = {"action": "oom", "device_free": 1, "size": 4}
    columns = unpickle.columns_of(plain(device_traces=[[event, newer, oom]], host_segments=[]))
    assert list(columns["trace_action"]) == [0]
    assert list(columns["trace_address"]) == [-512]


def test_the_device_with_the_most_events_is_chosen_and_the_others_named():
    event = {"action": "alloc", "addr": 512, "size": 1}
    columns = unpickle.columns_of(plain(device_traces=[[event], [event, event]]))
    assert (columns["device"], columns["other_devices"]) == (1, [0])


def test_the_first_frame_outside_libraries_is_the_source():
    frames = [
        {"name": "forward", "filename": "/env/site-packages/torch/nn/x.py", "line": 1},
        {"name": "step", "filename": "/home/me/train.py", "line": 7},
        {"name": "main", "filename": "/home/me/main.py", "line": 9},
    ]
    event = {"action": "alloc", "addr": 512, "size": 1, "frames": frames}
    columns = unpickle.columns_of(plain(device_traces=[[event]]))
    assert columns["sources"] == [["/home/me/train.py", 7, "step"]]
