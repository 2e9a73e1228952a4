from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.panel.assembly import Experiment
from workbench.records import RecordError


def test_a_saved_view_opens_as_the_same_record(experiment: Experiment, tmp_path: Path) -> None:
    view = wb.graph(experiment)
    path = view.save(tmp_path / "loss.graph.safetensors")
    again = wb.open(path)
    assert again.record.title == view.record.title
    assert (again.record.node_saved_bytes == view.record.node_saved_bytes).all()


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 64, b"\x08\0\0\0\0\0\0\0{}      "])
def test_other_bytes_are_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(RecordError) as refusal:
        wb.open(path)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("x.safetensors is no record or allocator snapshot: it")
    assert "view.save(path)" in str(refusal.value)


def test_a_missing_file_and_a_missing_log_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        wb.open(tmp_path / "nothing-here")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        wb.tensorboard(tmp_path / "no-runs")
