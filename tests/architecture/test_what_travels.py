"""Each line of the table of what travels to ranks names the test that holds it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`((?:unit|integration)/[\w/]+\.py)::(test_\w+)`")


def test_each_line_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "parallel.md").read_text(encoding="utf-8")
    section = text.partition("## What travels, what comes home")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(lines) > 10
    for line in lines:
        named = _NAMED.findall(line)
        assert named, f"no test is named in: {line[:80]}"
        for path, name in named:
            source = (ROOT / "tests" / path).read_text(encoding="utf-8")
            assert f"def {name}(" in source, f"{path} has no {name}"
