"""Torch's raw trace on request, and what tlparse makes of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.dynamo.listen.structured_trace import PIP_LINE, read_by_tlparse
from workbench.torch_private.dynamo import TRACE_LOGGER


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def absent(_name: str, path: str = "") -> None:
    return None


def compiled() -> None:
    torch.compiler.reset()
    torch.compile(doubled, backend="eager")(torch.ones(3))


def test_a_block_is_written_down_and_only_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", absent)
    with wb.compile_report(trace=tmp_path / "trace") as report:
        compiled()
    compiled()
    folders = [getattr(one, "root_dir", None) for one in logging.getLogger(TRACE_LOGGER).handlers]
    assert str(tmp_path / "trace") not in folders
    (log,) = (tmp_path / "trace").glob("*.log")
    assert log.read_text().count('"dynamo_start"') == 1
    assert report.record.num_graphs == 1
    note = report.record.notes[-1]
    assert PIP_LINE in note
    assert f"tlparse {log}" in note


def test_tlparse_makes_pages(tmp_path: Path) -> None:
    with wb.compile_report(trace=tmp_path) as report:
        compiled()
    if PIP_LINE in report.record.notes[-1]:
        pytest.skip("needs tlparse, the extra of that name")
    assert "tlparse's pages begin at" in report.record.notes[-1]
    assert "dynamo" in (tmp_path / "tlparse" / "index.html").read_text().lower()


def test_a_folder_that_holds_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(ValueError, match="trace= takes a new or an empty folder"):
        wb.compile_report(trace=tmp_path)
    with pytest.raises(ValueError, match="trace= writes down what is compiled from now on"):
        wb.compile_report(wb.Modes("compile"), trace=tmp_path / "new")  # pyright: ignore[reportArgumentType, reportCallIssue] - what is tested


def test_what_tlparse_cannot_read_is_said(tmp_path: Path) -> None:
    assert "nothing was compiled" in read_by_tlparse(tmp_path)
