"""Fresh traces of a real allocator, replayed: what each setting and each case comes to.

Run with ``-s`` to see the table. ``WORKBENCH_TRACES=folder`` keeps the traces there, so that a new
kind of trace can become a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.programs import PROGRAMS
from tests.gpu.support import kept_in, printed_table, run_apart
from workbench.allocator.replay.replay import Replay, replay
from workbench.allocator.snapshot.decode import read
from workbench.allocator.snapshot.snapshot import Snapshot

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SETTINGS = {
    "": tuple(name for name in PROGRAMS if name != "garbage"),
    "expandable_segments:True": ("CNN", "transformer", "LSTM", "mid life", "emptied", "streams"),
    "max_split_size_mb:64": ("transformer", "emptied", "large blocks"),
    "roundup_power2_divisions:4": ("transformer", "large blocks"),
    "garbage_collection_threshold:0.6": ("garbage",),
}
CASES = [(settings, name) for settings, names in SETTINGS.items() for name in names]
NOT_MODELLED = {
    "CUDA graph": "frees wait while a graph is captured, which the simulator leaves out",
    "garbage": "a trace does not say by which memory fraction garbage is collected",
}
"""Programs that may part from their replay; the certificate must then say where."""
HEAD = (
    "program",
    "settings",
    "events",
    "addresses",
    "segments",
    "releases",
    "blocks",
    "M events/s",
)


@pytest.fixture(scope="module")
def rows() -> Iterator[list[tuple[str, ...]]]:
    """Lines of the table that is printed when all traces have been replayed."""
    yield from printed_table(HEAD)


def recorded(name: str, settings: str, path: Path) -> Snapshot:
    """The trace of a program that ran under ``settings`` in a process of its own."""
    environment = {
        key: value for key, value in os.environ.items() if not key.endswith("ALLOC_CONF")
    }
    if settings:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
    run_apart("tests.gpu.programs", name, str(path), environment=environment)
    return read(path)


def row_of(name: str, settings: str, snapshot: Snapshot, found: Replay) -> tuple[str, ...]:
    certificate = found.certificate
    counts = certificate.addresses, certificate.segments, certificate.releases, certificate.blocks
    speed = snapshot.num_events / max(found.simulated_s, 1e-9) / 1e6
    return (
        name, settings or "default", f"{snapshot.num_events:,}", *map(str, counts), f"{speed:.2f}"
    )  # fmt: skip


@pytest.mark.parametrize(("settings", "name"), CASES)
def test_a_fresh_trace_is_reproduced(
    settings: str, name: str, tmp_path: Path, rows: list[tuple[str, ...]]
) -> None:
    folder = kept_in(tmp_path)
    words = "".join(letter if letter.isalnum() else "_" for letter in f"{name} {settings}")
    snapshot = recorded(name, settings, folder / f"{words.strip('_')}.pickle")
    assert snapshot.num_events > 10
    found = replay(snapshot)
    rows.append(row_of(name, settings, snapshot, found))
    certificate = found.certificate
    if name in NOT_MODELLED and not certificate.exact:
        assert certificate.first_difference
        pytest.xfail(f"{NOT_MODELLED[name]}: {certificate}")
    assert certificate.exact, f"{certificate} ({', '.join(certificate.cases)})"


def test_each_case_is_in_its_trace(tmp_path: Path) -> None:
    """A table of exact replays says something only where the traces have what they are named by."""
    wanted = {
        "streams": "2 streams",
        "out of memory": "out of memory",
        "private pool": "private pools",
        "emptied": "segments given back",
    }
    for name, case in wanted.items():
        snapshot = recorded(name, "", tmp_path / "trace.pickle")
        assert case in replay(snapshot).certificate.cases, name
    mapped = recorded("CNN", "expandable_segments:True", tmp_path / "trace.pickle")
    assert "pages mapped" in replay(mapped).certificate.cases
