"""Answers about single parameters."""

from __future__ import annotations

import pytest
import torch
from IPython.lib.pretty import pretty
from torch import nn

import workbench as wb
from tests.unit.graph.graph_exit_cases import Branch, detach
from workbench.graph.questions.why_no_gradient import unreached_lines, why_no_gradient


class GivesNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return None


def backward_watched(model):
    with wb.graph(model) as view:
        model(torch.randn(3, 4)).square().mean().backward()
    return view.record


def test_a_parameter_without_a_gradient_has_its_reason():
    answer = why_no_gradient(backward_watched(Branch(detach)), "lost.weight")
    assert answer.reason == "detached"
    assert str(answer) == pretty(answer) == answer.text


def test_a_parameter_with_a_gradient_has_its_norm():
    model = Branch(lambda self, h, x: h + self.lost(x))
    record = backward_watched(model)
    norm = float(model.lost.weight.grad.norm())
    assert why_no_gradient(record, "lost.weight") == (
        f"`lost.weight` gets a gradient: L2 norm {norm:.3g}."
    )


def test_before_backward_the_norm_is_said_to_be_unknown():
    model = Branch(detach)
    loss = model(torch.randn(3, 4)).sum()
    answer = why_no_gradient(wb.graph(loss, model=model).record, "main.weight")
    assert "no backward of this graph has been watched" in answer


def test_a_function_that_gives_none_is_named():
    record = backward_watched(Branch(lambda self, h, x: h + GivesNone.apply(self.lost(x))))
    assert record.unreached == ()
    answer = why_no_gradient(record, "lost.weight")
    assert "no gradient arrived: `GivesNone`" in answer
    assert "passed none on" in answer


def test_zeros_are_followed_to_the_operation_that_makes_them():
    record = backward_watched(Branch(lambda self, h, x: h + self.lost(x).round()))
    answer = why_no_gradient(record, "lost.bias")
    assert answer.startswith("`lost.bias` gets a gradient of only zeros: `round`")


def test_an_unknown_name_lists_close_ones():
    with pytest.raises(ValueError, match=r"no parameter 'lost.wieght'.*'lost.weight'"):
        why_no_gradient(backward_watched(Branch(detach)), "lost.wieght")


@pytest.mark.parametrize("given", [3, None, nn.Parameter(torch.ones(1))])
def test_a_name_that_is_no_text_is_refused(given):
    with pytest.raises(TypeError, match=r"qualified name of a parameter.*string; got "):
        why_no_gradient(backward_watched(Branch(detach)), given)


def test_equal_answers_are_one_line():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    model[:4].requires_grad_(False)
    (line,) = unreached_lines(backward_watched(nn.ModuleDict({"net": model})["net"]))[:1]
    assert line.startswith("2 parameters of ")
    whole = nn.ModuleDict({"backbone": model[:4], "head": model[4:]})
    whole.forward = lambda x: whole["head"](whole["backbone"](x))
    (line,) = unreached_lines(backward_watched(whole))
    assert line.startswith("8 parameters of `backbone`: frozen.")
    lines = unreached_lines(backward_watched(Branch(detach)), max_lines=1)
    assert lines[0].startswith("2 parameters of `lost`: detached. `detach`")
