"""Real recompilations: which input, which dimension, which attribute; and the wording of guards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.unit.dynamo.broken_models import Attribute, line_of
from workbench.dynamo.listen.recompiles import explain
from workbench.modes import ModeSet


def test_a_changing_shape_names_the_input_and_the_dimension(reported: Callable) -> None:
    def scaled(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first.sum() + second * 2

    x = torch.ones(4, 8)
    record = reported(torch.compile(scaled), (x, x + 1), (x, x[:, :5] + 1)).record
    (again,) = record.recompiles
    assert again.words == "Dimension 1 of second was 8 and is 5."
    assert "second' size mismatch at index 1. expected 8, actual 5" in again.guard
    assert "mark_dynamic(tensor, 1)" in again.remedy
    assert record.compilation_variant.tolist() == [0, 1]
    assert record.regions[0].num_graphs == 1
    assert record.regions[0].num_recompiles == 1


def test_a_region_of_a_mode_calls_its_input_what_the_forward_calls_it(reported: Callable) -> None:
    """Compiled in place the code's own arguments are ``args``; the user did not write that name."""
    model, modes = Attribute(), ModeSet.parse("compile:whole", "cpu")
    modes.attach(model)
    try:
        report = reported(model, (torch.ones(4, 8),), (torch.ones(3, 8),))
    finally:
        modes.detach(model)
    (again,) = report.record.recompiles
    assert again.words == "Dimension 0 of features was 4 and is 3."
    assert "drop_last" in again.remedy


def test_a_changing_integer_attribute_is_named_at_its_line(reported: Callable) -> None:
    model = Attribute()
    compiled, x = torch.compile(model), torch.ones(4, 8)

    def at(power: int) -> torch.Tensor:
        model.power = power
        return compiled(x)

    record = reported(at, (1,), (2,)).record
    (again,) = record.recompiles
    assert again.words == "power of the module was 1 and changed."
    assert "allow_unspec_int_on_nn_module" in again.remedy
    source = record.sources[again.source]
    assert source.line == line_of(Attribute)
    assert again.guard.endswith("power == 1")


def test_a_changing_python_argument_is_named(reported: Callable) -> None:
    def added(x: torch.Tensor, amount: int) -> torch.Tensor:
        return x + amount

    x = torch.ones(4, 8)
    record = reported(torch.compile(added), (x, 1), (x, 2), (x, 3)).record
    (again,) = (
        record.recompiles
    )  # the second number makes it dynamic, so the third compiles nothing
    assert again.words == "amount was 1 and changed."
    assert "tensor" in again.remedy


def test_training_and_evaluation_are_two_variants_and_nothing_to_mend(
    reported: Callable, clean: nn.Module
) -> None:
    compiled, x = torch.compile(nn.Sequential(clean, nn.Dropout(0.5))), torch.ones(4, 8)

    def at(*, training: bool) -> torch.Tensor:
        return compiled.train(training)(x)

    record = reported(lambda training: at(training=training), (True,), (False,)).record
    (again,) = record.recompiles
    assert again.words.startswith("The model went to evaluation mode")
    assert again.remedy.startswith("None needed")


def test_every_variant_s_guard_is_kept_newest_first(reported: Callable) -> None:
    model = Attribute()
    compiled, x = torch.compile(model), torch.ones(4, 8)

    def at(power: int) -> None:
        model.power = power
        compiled(x)

    record = reported(at, (1,), (2,), (3,)).record
    assert [len(again.guards) for again in record.recompiles] == [1, 2]
    assert [g.rpartition(" ")[2] for g in record.recompiles[1].guards] == ["2", "1"]


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ("0/0: tensor 'x' rank mismatch. expected 2, actual 3",
         "The number of dimensions of x was 2 and is 3."),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double",
         "The dtype of x was float32 and is float64."),
        ("0/2: tensor 'x' requires_grad mismatch. expected requires_grad=0",
         "x needed no gradient and needs one now."),
        ("0/1: 2 <= x.size()[0] <= 4096  # return F.linear(input)  # nn/modules/linear.py:134",
         "Dimension 0 of x is not within 2 to 4096, for which the variant before was compiled."),
        ("0/1: GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled ",
         "Whether gradients are recorded and autocast changed around the call."),
        ("0/0: len(names) == 1   # def f(names)", "The length of names was 1 and changed."),
        ("0/0: tensor '___stack2' size mismatch at index 0. expected 4, actual 3",
         "Dimension 0 of an intermediate value was 4 and is 3."),
        ("0/0: x is y", "x and y were the same object and are not any more."),
        ("0/0: not known", "The condition `not known` does not hold any more."),
    ],
)  # fmt: skip
def test_a_guard_in_words(guard: str, words: str) -> None:
    assert explain(guard).words == words
