"""What it costs that nothing of somebody else is run: the figures of docs/security.md."""

from __future__ import annotations

import hmac
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
)
from workbench.trust import Seal, harmless, open_regular, stranger_in

ROUNDS = 25
READ = 2.0
"""Times what reading the file and one HMAC over its bytes take, with Python's own functions."""
LINE = 2.5
"""Times what one HMAC over a line takes."""
TEXT = 1.5
"""Times one search for a control character, which is the least that can be asked of a text."""


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
    """No peer does this; what it costs is printed, beside a look at each folder by its name."""
    path = tmp_path / "runs" / "run" / "parallel" / "1"
    path.mkdir(parents=True)
    file = path / "run.json"
    file.write_text("{}")
    above = [path, *path.parents]

    def plain() -> None:
        with file.open("rb"):
            pass

    def ours() -> None:
        with open_regular(file):
            pass

    contenders = {
        "stat of each folder": lambda: us(lambda: [one.stat() for one in above], 200),
        "walk down with openat": lambda: us(lambda: stranger_in(path), 200),
        "open": lambda: us(plain, 2000),
        "open a regular file": lambda: us(ours, 2000),
    }
    results = measure_interleaved(contenders, ROUNDS)
    title = f"A folder {len(above)} deep, and a file in it"
    print("\n" + compare(title, "µs", results, baseline="stat of each folder"))
