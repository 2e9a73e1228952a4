"""What a person sees of a report, and the forms it is saved in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.dynamo.broken_models import branches
from tests.unit.records.support import compile_record
from tests.unit.records.test_base import assert_same_record
from workbench.dynamo import compile_report
from workbench.dynamo.render.text import NOTHING
from workbench.dynamo.view import carried, giving_source
from workbench.panel import open_record
from workbench.records import CompileRecord, RecordError

X = torch.ones(4, 8)


def test_a_report_is_saved_and_opens_again(reported: Callable, tmp_path: Path) -> None:
    report = reported(torch.compile(branches), (X,))
    path = report.save(tmp_path / "compile.safetensors")
    again = open_record(path)
    assert_same_record(report.record, again.record)
    assert str(again) == str(report)
    assert_same_record(compile_report(path).record, report.record)


@pytest.mark.parametrize("suffix", [".txt", ".html", ".svg", ".png", ".pdf"])
def test_every_other_form(tmp_path: Path, suffix: str) -> None:
    report = compile_report(compile_record())
    path = report.save(tmp_path / f"compile{suffix}")
    assert path.stat().st_size > 500
    if suffix in (".txt", ".html"):
        said = path.read_text()
        assert "Data-dependent branching" in said
        assert "Dimension 0 of x was 4 and is 3." in said


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a compile report is saved as \.safetensors, \.txt"):
        compile_report(compile_record()).save(tmp_path / "compile.json")


def test_a_cell_is_called_by_its_number() -> None:
    said = str(compile_report(compile_record()))
    assert "body.0 and body.1 (Block) at Cell [3], line 2" in said
    assert "Graph break at net.py:4: Data-dependent branching" in said


def test_the_html_escapes_what_the_user_wrote_and_is_small() -> None:
    html = compile_report(compile_record())._repr_mimebundle_()[0]["text/html"]
    assert "if x.sum() &gt; 0:" in html
    assert "<script" not in html
    assert 'src="data:image/svg+xml' in html
    assert len(html) < 40_000


def test_eager_code_says_that_nothing_was_compiled_and_how_to(clean: nn.Module) -> None:
    with compile_report() as report:
        clean(X)
    assert len(report.record.compilation_region) == 0
    assert NOTHING in str(report)
    assert 'exp.modes = "compile"' in NOTHING
    assert report.figure().axes
    assert NOTHING.split(":")[0] in report._repr_mimebundle_()[0]["text/html"]


def test_what_is_no_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="compile_report\\(\\) got int; it takes an Experiment"):
        compile_report(3)
    with pytest.raises(FileNotFoundError, match="to read a compile report from"):
        compile_report(tmp_path / "none.safetensors")
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"nothing of the kind")
    with pytest.raises(RecordError):
        compile_report(other)
    with pytest.raises(RuntimeError, match="nothing is recorded yet"):
        _ = compile_report().record


def test_a_report_is_up_to_date_inside_its_block_and_final_behind_it(clean: nn.Module) -> None:
    with compile_report() as report:
        assert report.record.num_graphs == 0
        torch.compile(clean)(X)
        assert report.record.num_graphs == 1
    torch.compile(branches)(X)
    assert isinstance(report.record, CompileRecord)
    assert report.record.num_graphs == 1
    with pytest.raises(RuntimeError, match="recorded already"), report:
        pass


class Sent:
    """A widget, as far as an answer needs one."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, content: Any) -> None:
        self.messages.append(content)


def test_long_code_stays_in_the_kernel_until_it_is_requested() -> None:
    record = compile_record()
    assert carried(record) is record
    code = "x" * 2_000_000
    long = replace(record, kernels=(replace(record.kernels[0], code=code),))
    sent = carried(long)
    assert len(sent.to_bytes()) < 20_000
    assert sent.kernels == (replace(record.kernels[0], code=""),)
    widget = Sent()
    ask = {"type": "ask", "id": "1", "question": {"kind": "source", "kernel": 0}}
    giving_source(long)(widget, ask)
    assert widget.messages == [{"type": "answer", "id": "1", "answer": {"code": code}}]


@pytest.mark.parametrize("question", [None, {}, {"kernel": 1}, {"kernel": -1}, {"kernel": "0"}])
def test_a_kernel_that_there_is_not_is_an_error_in_one_sentence(question: object) -> None:
    widget = Sent()
    giving_source(compile_record())(widget, {"type": "ask", "id": "1", "question": question})
    (answer,) = widget.messages
    assert "among the 1 of this report" in answer["error"]


def test_what_is_no_question_is_left_alone() -> None:
    widget = Sent()
    for content in (None, "ask", {"type": "module", "name": "compile"}):
        giving_source(compile_record())(widget, content)
    assert widget.messages == []
