"""A report that was requested late says so: what was compiled before is not in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import workbench
from workbench.dynamo import compile_report
from workbench.experiment import Experiment
from workbench.modes.compile.toolchain import missing_for_compile
from workbench.torch_private.dynamo import num_compiled, num_variants

needs_toolchain = pytest.mark.skipif(
    missing_for_compile(torch.device("cpu")) is not None, reason="no compiler for Inductor"
)


@pytest.fixture(autouse=True)
def _no_compiled_code() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def three_blocks() -> nn.Module:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(4 + n, 4), nn.ReLU(), nn.Linear(4, 5 + n)) for n in range(3))
    )


def prepared() -> tuple[workbench.Modes, nn.Module]:
    modes = workbench.Modes("compile")
    return modes, modes.prepare(three_blocks())


@needs_toolchain
def test_modes_requested_after_three_regions_ran() -> None:
    modes, model = prepared()
    model(torch.ones(2, 4)).sum().backward()
    report = compile_report(modes)
    said = str(report)
    assert "Nothing was compiled" not in said
    assert said.startswith("Compile report of Sequential: No compilation was seen. ")
    assert "3 graphs of its regions had been compiled before" in said
    assert said.count("had been compiled before") == 1
    assert "Nothing was compiled" not in repr(report)
    assert "Nothing was compiled" not in report._repr_mimebundle_()[0]["text/html"]
    model(torch.ones(3, 4)).sum().backward()  # another size is compiled anew
    assert "recompile" in str(report)
    assert any("3 graphs of its regions had been compiled before" in n for n in report.record.notes)


@needs_toolchain
def test_modes_requested_in_time_have_compiled_nothing_yet() -> None:
    modes, model = prepared()
    report = compile_report(modes)
    assert "Nothing was compiled." in str(report)
    assert report.record.notes == ()
    model(torch.ones(2, 4))
    assert str(report).startswith("Compile report of Sequential: 3 regions, 3 graphs")
    assert report.record.notes == ()


def eager(function):
    return torch.compile(function, backend="eager")


def test_a_block_around_code_that_was_compiled_before() -> None:
    functions = [eager(lambda x: x.sin()), eager(lambda x: x.cos()), eager(lambda x: x.tan())]
    for function in functions:
        function(torch.ones(3))
    with compile_report() as report:
        for function in functions:
            function(torch.ones(3))
    said = str(report)
    assert "Nothing was compiled" not in said
    assert "No compilation was seen. " in said
    assert "3 graphs had been compiled by this process before this block began" in said
    with compile_report() as report:
        eager(lambda x: x.cos())(torch.ones(3))
    assert "1 graph, no breaks" in str(report)
    assert report.record.notes == ()


def test_a_block_in_which_nothing_is_compiled_in_a_process_that_never_did() -> None:
    with compile_report() as report:
        torch.ones(3).sin()
    assert "Nothing was compiled." in str(report)
    assert report.record.notes == ()


@needs_toolchain
def test_an_experiment_that_was_not_recorded(tmp_path: Path) -> None:
    data = torch.randn(16, 4), torch.arange(16) % 7
    exp = Experiment(
        three_blocks(), data, batch_size=8, runs=tmp_path, device="cpu", modes="compile"
    )
    exp.run(steps=1, wait=True)
    said = str(compile_report(exp))
    exp.close()
    assert "Nothing was compiled" not in said
    assert "3 graphs of its regions had been compiled before" in said


def test_counts_are_those_of_torch() -> None:
    def function(x):
        return x + 1

    assert num_compiled() == 0
    compiled = eager(function)
    assert num_variants(function.__code__) == 0
    compiled(torch.ones(3))
    assert (num_compiled(), num_variants(function.__code__)) == (1, 1)
    compiled(torch.ones(3, dtype=torch.float64))
    assert (num_compiled(), num_variants(function.__code__)) == (2, 2)
    torch.compiler.reset()
    assert (num_compiled(), num_variants(function.__code__)) == (0, 0)
