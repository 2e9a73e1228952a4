"""Real compilations that break: the line, the reason and what to do are Dynamo's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.dynamo import broken_models
from workbench.dynamo.listen.graph_breaks import read_break

X = torch.ones(4, 8)


@pytest.mark.parametrize(
    ("name", "reason", "hint"),
    [
        ("branches", "Data-dependent branching", "torch.cond"),
        ("reads_item", "Unsupported Tensor.item() call", "capture_scalar_outputs"),
        ("prints", "Failed to trace builtin operator", "reorderable_logging_functions"),
        (
            "unsupported_builtin",
            "Failed to trace builtin operator",
            "Avoid calling builtin `compile`",
        ),
    ],
)
def test_each_break_is_at_its_line_with_reason_and_hint(
    reported: Callable, name: str, reason: str, hint: str
) -> None:
    function = getattr(broken_models, name)
    report = reported(torch.compile(function), (X,))
    record = report.record
    (broken,) = record.breaks
    source = record.sources[broken.source]
    assert (source.filename, source.line) == (function.__code__.co_filename, line_of(name))
    assert "# here" in source.text
    assert broken.reason.startswith(reason)
    assert hint in " ".join(broken.hints)
    assert broken.link.startswith("https://")
    assert broken.explanation
    (region,) = record.regions
    assert (region.label, region.num_breaks, region.num_recompiles) == (name, 1, 0)
    assert region.num_graphs == 2
    said = str(report)
    assert f"Graph break at broken_models.py:{source.line}: {reason}" in said
    assert "2 graphs, 1 graph break" in said


def line_of(name: str) -> int:
    return broken_models.line_of(getattr(broken_models, name))


def test_a_clean_model_says_so(reported: Callable, clean: nn.Module) -> None:
    report = reported(torch.compile(clean), (X,))
    record = report.record
    assert record.breaks == record.recompiles == ()
    (region,) = record.regions
    assert (region.cls, region.num_graphs) == ("Clean", 1)
    assert "1 graph, no breaks; 3 operations" in str(report)
    assert record.compilation_operations.tolist() == [3]
    assert record.compilation_guards[0] > 0
    assert record.sources[region.source].function == "forward"


def test_a_break_in_a_helper_is_one_break_however_often_it_is_met(reported: Callable) -> None:
    """The model, its forward and the helper are each compiled, and each stops there."""

    class Outer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return broken_models.branches(x + 1) * 2

    report = reported(torch.compile(Outer()), (X,))
    (broken,) = report.record.breaks
    assert report.record.sources[broken.source].line == line_of("branches")
    assert broken.count == 2
    assert [region.cls for region in report.record.regions] == ["Outer"]


def test_a_function_that_is_given_up_says_so(reported: Callable) -> None:
    """A break inside ``with open(...)`` cannot be continued from."""

    def opens(x: torch.Tensor) -> torch.Tensor:
        with Path("/dev/null").open() as file:
            file.read()
        return x + 1

    record = reported(torch.compile(opens), (X,)).record
    assert any(one.skipped for one in record.breaks), record.breaks
    assert record.regions[0].num_graphs <= 1


def test_a_backend_that_fails_is_reported_with_what_it_raised(
    reported: Callable, clean: nn.Module
) -> None:
    def backend(*_: object) -> Callable:
        raise ValueError("no kernel for this")

    def compiles(x: torch.Tensor) -> None:
        with pytest.raises(Exception, match="no kernel for this"):
            torch.compile(clean, backend=backend)(x)

    record = reported(compiles, (X,)).record
    (broken,) = record.breaks
    assert broken.reason == "backend='backend' raised: ValueError: no kernel for this"
    assert broken.skipped
    (error,) = record.compilation_error
    assert record.strings[error] == f"BackendCompilerFailed: {broken.reason}"


def test_a_break_whose_text_is_not_known_is_still_a_break() -> None:
    found = read_break("Something went wrong\nin a way of its own")
    assert found.reason == "Something went wrong"
    assert found.place is None
    assert found.hints == ()
