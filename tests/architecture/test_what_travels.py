"""Each line of the tables of what is promised names the test that holds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`((?:unit|integration)/[\w/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize(
    ("page", "title"),
    [("parallel.md", "What is sent to ranks, what comes back"), ("security.md", "What is checked")],
)
def test_each_line_names_a_test_that_exists(page: str, title: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.partition(f"## {title}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    lines = [line for line in lines if not line.startswith("| ---")]
    assert len(lines) > 10
    for line in lines:
        named = _NAMED.findall(line)
        assert named, f"no test is named in: {line[:80]}"
        for path, name in named:
            source = (ROOT / "tests" / path).read_text(encoding="utf-8")
            assert f"def {name}(" in source, f"{path} has no {name}"
