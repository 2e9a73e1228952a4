"""How a line of the user's code is named to them."""

from __future__ import annotations

from workbench.records import SourceLine


def test_a_cell_is_named_by_its_number_and_a_file_by_its_name() -> None:
    assert SourceLine(filename="/tmp/x/1.py", line=11, cell=2).label == "cell [2], line 11"
    assert SourceLine(filename="/home/you/model.py", line=11).label == "model.py:11"
