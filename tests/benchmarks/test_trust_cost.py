"""What it costs that nothing of somebody else is run: the figures of docs/security.md."""

from __future__ import annotations

import hmac
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
)
from workbench.server.run_listing import Lister
from workbench.trust import OpenFile, Seal, harmless, open_regular, stranger_in

ROUNDS = 25
READ = 2.0
"""Times what reading the file and one HMAC over its bytes take, with Python's own functions."""
LINE = 2.5
"""Times what one HMAC over a line takes."""
TEXT = 1.5
"""Times one search for a control character, which is the least that can be asked of a text."""


WALK, BENEATH, OPEN = 12.0, 8.0, 2.5
"""Times one ``stat`` of each folder on the way, twice; times Python's ``open``."""
LISTED = 8.0
"""Times what reading and parsing its file takes."""


def us(call: Callable[[], object], times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begin) / times * 1e6


def judged(name: str, results: dict[str, list[float]], reference: str, limit: float) -> None:
    found = ratios(results[name], results[reference])
    print(ratio_line(f"{name} over {reference}", found, limit))
    assert median(found) <= limit


@pytest.mark.benchmark
@pytest.mark.parametrize(("size", "times"), [(10_000, 200), (1_000_000, 10)])
def test_a_sealed_file_costs_one_hmac(size: int, times: int, tmp_path: Path) -> None:
    seal, path, plain = Seal.new(), tmp_path / "sealed", tmp_path / "plain"
    data, key = os.urandom(size), os.urandom(32)
    seal.write(path, data, "payload")
    plain.write_bytes(data)
    contenders = {
        "read": lambda: us(plain.read_bytes, times),
        "read and HMAC": lambda: us(
            lambda: hmac.new(key, plain.read_bytes(), "sha256").hexdigest(), times
        ),
        "read sealed": lambda: us(lambda: seal.read(path, "payload"), times),
    }
    results = measure_interleaved(contenders, ROUNDS)
    print("\n" + compare(f"A file of {size:,} bytes", "µs", results, baseline="read"))
    judged("read sealed", results, "read and HMAC", READ)


@pytest.mark.benchmark
def test_a_sealed_line_costs_one_hmac() -> None:
    seal, key = Seal.new(), os.urandom(32)
    text = json.dumps({"type": "step", "step": 812, "loss": 0.1234567, "rank": 0}).encode()
    line = seal.line(text, "events", 812)
    contenders = {
        "HMAC": lambda: us(lambda: hmac.new(key, text, "sha256").hexdigest(), 2000),
        "seal": lambda: us(lambda: seal.line(text, "events", 812), 2000),
        "open": lambda: us(lambda: seal.opened_line(line, "events", 812, "events.jsonl"), 2000),
    }
    results = measure_interleaved(contenders, ROUNDS)
    print("\n" + compare("A line of events", "µs", results, baseline="HMAC"))
    judged("seal", results, "HMAC", LINE)
    judged("open", results, "HMAC", LINE)


@pytest.mark.benchmark
def test_text_costs_one_search() -> None:
    import re

    search = re.compile("[\x00-\x1f]").sub
    text = "encoder.layers.11.self_attn.out_proj"
    contenders = {
        "search": lambda: us(lambda: search("", text), 5000),
        "harmless": lambda: us(lambda: harmless(text), 5000),
    }
    results = measure_interleaved(contenders, ROUNDS)
    print("\n" + compare("A name of a module", "µs", results, baseline="search"))
    judged("harmless", results, "search", TEXT)


@pytest.mark.benchmark
def test_a_look_at_who_may_write(tmp_path: Path) -> None:
    """No peer does this: beside a look at each folder by its name."""
    path = tmp_path / "runs" / "run" / "parallel" / "1"
    path.mkdir(parents=True)
    file = path / "run.json"
    file.write_text("{}")
    above = [path, *path.parents]

    def closed(opened: Callable[[], AbstractContextManager[object]]) -> Callable[[], None]:
        def call() -> None:
            with opened():
                pass

        return call

    contenders = {
        "stat of each folder": lambda: us(lambda: [one.stat() for one in above], 200),
        "who may write, walked down": lambda: us(lambda: stranger_in(path), 200),
        "opened, walked down": lambda: us(closed(lambda: OpenFile.beneath("/", file)), 200),
        "open": lambda: us(closed(lambda: file.open("rb")), 2000),
        "opened, a regular file": lambda: us(closed(lambda: open_regular(file)), 2000),
    }
    results = measure_interleaved(contenders, ROUNDS)
    title = f"A folder {len(above)} deep, and a file in it"
    print("\n" + compare(title, "µs", results, baseline="stat of each folder"))
    judged("who may write, walked down", results, "stat of each folder", WALK)
    judged("opened, walked down", results, "stat of each folder", BENEATH)
    judged("opened, a regular file", results, "open", OPEN)


@pytest.mark.benchmark
def test_a_listed_run_costs_its_json(tmp_path: Path) -> None:
    facts = {"schema": "workbench.run/1", "name": "digits", "status": "finished", "step": 1230}
    for number in range(200):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(facts))
    files = sorted(tmp_path.glob("*/run.json"))
    contenders = {
        "read and parse": lambda: (
            us(lambda: [json.loads(one.read_bytes()) for one in files], 1) / len(files)
        ),
        "list": lambda: us(lambda: Lister().list(tmp_path, tmp_path), 1) / len(files),
    }
    results = measure_interleaved(contenders, ROUNDS)
    print("\n" + compare("A run of 200", "µs", results, baseline="read and parse"))
    judged("list", results, "read and parse", LISTED)
