"""A comparison as words, table, picture and file."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.unit.records.support import compare_record
from workbench.compare.html import comparison_html
from workbench.compare.progress import PROGRESS_MIME, Bar
from workbench.compare.text import describe, verdict
from workbench.compare.view import ComparisonView, carried


@pytest.fixture
def view() -> ComparisonView:
    return ComparisonView(compare_record())


def test_the_verdict_comes_first_and_says_what_it_costs(view: ComparisonView) -> None:
    assert repr(view) == (
        "compile is 2.0× faster than fp32, its first step paid back after 2.40k steps"
    )
    text = str(view).splitlines()
    assert text[2] == repr(view)
    assert "ddp:64: no room" in str(view)
    assert "Cancelled after 2 rounds on cpu, 2 CPU threads per variant" in str(view)
    cells = next(line for line in text[3:] if line.strip().startswith("compile"))
    assert "2.0× faster (1.90 .. 2.10)" in cells
    assert "3, 1 break" in cells
    assert "2e-6" in cells


def test_a_rival_that_cannot_be_distinguished_is_named() -> None:
    record = compare_record()
    base, fast, _ = record.arms
    rival = dataclasses.replace(fast, modes="bf16", speedup=1.95, agreement=0.98)
    both = dataclasses.replace(record, arms=(base, fast, rival))
    assert verdict(both, "").endswith("; bf16 cannot be distinguished from it")
    ties = dataclasses.replace(
        record, arms=(base, dataclasses.replace(fast, verdict="tie", speedup=1.0))
    )
    assert verdict(ties, "") == (
        "nothing was found to be faster than fp32 here; compile is as fast within 3 %"
    )
    assert "A tie is known to differ by less than 3 % (two one-sided tests at 2.5 %)" in describe(
        ties
    )
    closer = dataclasses.replace(ties, equal_within=0.005)
    assert "is as fast within 0.5 %" in comparison_html(closer)
    assert "differ by less than 0.5 %" in comparison_html(closer)
    failed = dataclasses.replace(
        record, arms=(dataclasses.replace(base, step_s=float("nan"), problem="it broke"),)
    )
    assert verdict(failed, "") == "the baseline fp32 could not be measured: it broke"


def test_saved_and_opened_again_it_says_the_same(view: ComparisonView, tmp_path: Path) -> None:
    again = wb.open(view.save(tmp_path / "comparison.safetensors"))
    assert isinstance(again, ComparisonView)
    assert describe(again.record) == describe(view.record)
    for suffix in (".txt", ".html", ".png", ".svg", ".pdf"):
        assert view.save(tmp_path / f"comparison{suffix}").stat().st_size > 500
    with pytest.raises(ValueError, match=r"\.safetensors"):
        view.save(tmp_path / "comparison.csv")


def test_a_cell_shows_table_and_bars_without_script(view: ComparisonView) -> None:
    html = comparison_html(view.record)
    assert "<script" not in html
    assert "<style" not in html
    assert html.count("<tr>") == 4
    assert "not measured" in html
    assert "right is faster" in html
    hostile = dataclasses.replace(view.record.arms[1], problem="<img src=x>", modes="<b>")
    shown = ComparisonView(dataclasses.replace(view.record, arms=(view.record.arms[0], hostile)))
    assert "<img" not in comparison_html(shown.record)
    data, _ = shown._repr_mimebundle_()
    assert "<img src=x" not in data["text/html"]
    assert data["text/plain"] == str(shown)


def test_a_widget_carries_every_so_many_rounds_and_steps(
    view: ComparisonView, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = view.record
    assert np.array_equal(carried(record).block_seconds, record.block_seconds)
    steps = np.arange(1, 101, dtype=np.int32)
    long = dataclasses.replace(
        record,
        loss_arm=np.zeros(100, dtype=np.int32),
        loss_step=steps,
        loss_value=steps.astype(np.float64),
    )
    monkeypatch.setattr(sys.modules[carried.__module__], "MOST_ROWS", 30)
    assert carried(long).loss_step.tolist() == list(range(1, 101, 4))
    assert len(long.loss_step) == 100


def test_progress_is_sent_to_the_extension_and_to_every_other_front_end() -> None:
    shown: list[dict[str, Any]] = []

    class Handle:
        def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
            assert raw
            shown.append(bundle)

    bar = Bar(lambda bundle, **_: shown.append(bundle) or Handle())
    bar("round 3 of 15: <bf16>", 0.25)
    bar.close()
    sent = shown[1][PROGRESS_MIME]
    assert (sent["what"], sent["share"]) == ("round 3 of 15: <bf16>", 0.25)
    assert 0 <= sent["elapsed"] < 60
    assert "&lt;bf16&gt;" in shown[1]["text/html"]
    assert "Interrupt the kernel" in shown[1]["text/html"]
    assert shown[2] == {"text/plain": "", "text/html": ""}


def test_the_figure_has_a_row_for_each_model(view: ComparisonView) -> None:
    record = view.record
    two = tuple(
        dataclasses.replace(variant, model=name) for name in ("a", "b") for variant in record.arms
    )
    both = dataclasses.replace(record, arms=two)
    figure = ComparisonView(both).figure()
    assert len(figure.axes) == 4
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["fp32", "compile", "ddp:64"]
