"""The file by which the browser is held to the same parts."""

from __future__ import annotations

import json

from tests.unit.memory import parts_case


def test_the_file_that_the_browser_reads_is_what_python_says_today():
    """``python -m tests.unit.memory.parts_case`` writes it again."""
    assert json.loads(parts_case.FILE.read_text(encoding="utf-8")) == parts_case.case()


def test_its_programs_have_something_in_every_part_that_a_simulation_knows():
    for run in parts_case.case()["runs"]:
        empty = {name for name, values in run["parts"].items() if not any(values)}
        assert empty <= {"other_pool", "slack"}, run["settings"]
