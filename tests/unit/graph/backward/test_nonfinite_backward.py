"""Which node made the first value that is not finite, and from which samples."""

from __future__ import annotations

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.backward import nonfinite_backward
from workbench.graph.core import gradient_paths


def trail(make, *inputs):
    """Watch the backward of ``make`` in a model of its own; its record."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, *args):
            return make(self.scale, *args)

    with wb.graph(Model()) as view:
        view._model(*inputs).backward()
    return view.record


def op(record):
    node = record.nodes[record.non_finite.node]
    return node.op


def test_the_square_root_of_zero():
    x = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
    record = trail(lambda scale, x: ((x * scale) ** 2).sum(1).sqrt().sum(), x)
    found = record.non_finite
    assert (op(record), found.in_forward, found.samples) == ("sqrt", False, (1,))
    assert "test_nonfinite_backward.py" in found.text
    assert "row 1 of the batch" in found.text
    assert math.isfinite(record.loss)
    assert found.text in str(wb.graph(record))


def test_the_logarithm_of_a_softmax_that_underflowed():
    x = torch.tensor([[1.0, 2.0], [200.0, 0.0], [0.0, 300.0]])
    y = torch.tensor([0, 0, 1])

    def loss(scale, x):
        return -torch.softmax(x * scale, 1).log()[torch.arange(3), y].mean()

    record = trail(loss, x)
    assert math.isfinite(record.loss)
    assert (op(record), record.non_finite.samples) == ("log", (1, 2))


def test_a_division_that_where_hides_in_forward():
    x = torch.tensor([1.0, 0.0, 3.0])

    def loss(scale, x):
        a = x * scale
        return torch.where(a > 0, 1 / a, torch.zeros(3)).sum()

    record = trail(loss, x)
    assert math.isfinite(record.loss)
    assert op(record) in {"reciprocal", "mul", "div", "rdiv", "truediv", "rtruediv"}
    assert record.non_finite.samples == (1,)


def test_an_overflow_of_float16_in_backward():
    x = torch.tensor([[1.0], [2.0], [-1.0]])

    def loss(scale, x):
        half = (x * scale).half()
        return (half.float() * torch.tensor([[1.0], [1e6], [1.0]])).sum()

    record = trail(loss, x)
    found = record.non_finite
    assert math.isfinite(record.loss)
    assert (found.in_forward, found.samples) == (False, (1,))
    assert "float16 ends at 65,504" in found.text


def test_of_several_users_the_guilty_one_is_named():
    x = torch.tensor([0.0, 4.0])

    def loss(scale, x):
        a = x * scale
        return (a.sqrt() + a.sin() + a * 2).sum()

    assert op(trail(loss, x)) == "sqrt"


def test_finite_gradients_that_overflow_in_their_sum():
    big = torch.tensor([3e38])

    def loss(scale, x):
        a = x * scale
        return (a * big + a.mul(big)).sum()

    record = trail(loss, torch.tensor([1e-10]))
    assert "added up to" in record.non_finite.text


def test_a_bad_gradient_from_outside_is_not_blamed_on_a_node():
    w = torch.ones(2, requires_grad=True)
    loss = (w * 2).sum()
    view = wb.graph(loss)
    (loss * math.nan).backward()
    assert view.record.non_finite.node == view.record.root
    assert "began with" in view.record.non_finite.text


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda o: (o - o.detach()).log().mean(), "log"),
        (lambda o: (torch.softmax(o * 1000, 1).log() * F.one_hot(torch.ones(5).long(), 2)).sum(),
         "log"),
        (lambda o: (o.abs() * 1e20 * 1e20).exp().mean(), "exp"),
    ],
)  # fmt: skip
def test_a_loss_that_is_not_finite_names_the_first_output(classifier, batch, make, name):
    with wb.graph(classifier):
        loss = make(classifier(batch[0]))
    record = wb.graph(loss).record
    assert not math.isfinite(record.loss)
    assert record.non_finite.in_forward
    assert op(record) == name


def said(loss):
    found = wb.graph(loss).record.non_finite
    return None if found is None else found.text


def logs(*values):
    return torch.tensor(values, requires_grad=True).log()


def test_a_division_by_a_number_proves_nothing_of_what_was_divided():
    assert said((logs(0.0, 1.0) / 2).sum()).startswith("The output of Log is the first that was")
    half = torch.tensor(2.0)
    assert said((logs(0.0, 1.0) / half).sum()).startswith("The output of Log is the first")
    queries = torch.full((2, 4), 1e20, requires_grad=True)
    text = said(torch.softmax(queries @ queries.t() / 2.0, -1).sum())
    assert text.startswith("The output of Softmax is the first seen that was")
    assert "(what Mm, Div gave was not saved)" in text
    # what was divided is finite, and so is what it gives, where 1 / 1e-39 is not
    small = torch.tensor([1e-5, 1e-5], requires_grad=True)
    huge = (small.sin() / torch.tensor([1e-39, 1.0])) * 1e30
    assert "output of Div" not in said(huge.sum())


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_a_division_by_zero_is_proved_without_what_was_divided(mode):
    x = torch.ones(2, requires_grad=True)
    by = torch.tensor([1.0, 0.0])
    text = said(torch.div(x.sin().view(2), by, rounding_mode=mode).cos().sum())
    assert text.startswith("The output of Div is the first seen that was")


def test_rows_of_a_division_are_those_of_its_output():
    x = torch.ones(2, 2)

    def loss(scale, x):
        return ((x * scale) / torch.tensor([1.0, 0.0])).cos().sum()

    record = trail(loss, x)
    assert op(record) in {"div", "truediv"}
    assert record.non_finite.samples == (0, 1)


def test_what_a_later_node_saved_counts_for_more_than_what_is_computed_again():
    x = torch.tensor([3e38, 1.0], requires_grad=True)
    twice = x + x
    divided = twice / 2.0  # infinite; cos saves it
    text = said(divided.cos().sum())
    assert text.startswith("The output of Div is the first seen that was")
    assert "(what Add gave was not saved)" in text


def test_under_autocast_it_is_computed_again_as_it_was():
    x = torch.tensor([12.0, 1.0], dtype=torch.float16, requires_grad=True)
    loss = (x.sinh() + 0).sum()  # float16 ends at 65,504
    with torch.autocast("cpu", torch.bfloat16):
        assert said(loss).startswith("The output of Sinh is the first that was")


def test_what_was_written_to_since_is_no_evidence():
    x = torch.ones(2, requires_grad=True)
    hidden = x * 1.0
    loss = (hidden.log() * math.inf).sum()  # 0 times infinity
    hidden.zero_()
    assert "output of Log" not in said(loss)
    result = x.exp()
    loss = (result.sin() * math.inf).sum() * 0
    result.mul_(math.inf)
    assert "output of Exp" not in said(loss)


def test_what_a_hook_packed_is_no_evidence():
    x = torch.tensor([1e6, 1.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        y = x.sqrt().square().square() + torch.full((2,), 1e6) * x.cos()
    text = said((y / 0.0).sum())
    assert text.startswith("The output of Div is the first seen that was")


def test_one_finite_output_of_several_does_not_stand_for_the_others():
    x = torch.tensor([1.0, 1.0, 1e30, 1.0], requires_grad=True)
    left, right = ((x * 1.0) * torch.tensor(1e20)).unbind()[::2]
    text = said((left.cos() + right.cos()).sum())
    assert text.startswith("The output of Unbind is the first seen that was")


def test_what_a_custom_function_saved_is_not_called_its_input():
    class Exp(torch.autograd.Function):
        inside = False

        @staticmethod
        def forward(ctx, x):
            result = x.exp()
            ctx.save_for_backward(result.clone() if Exp.inside else result)
            return result

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0]

    x = torch.tensor([1e4, 1.0], requires_grad=True)
    assert re.match(r"The output of Exp .* is the first that was", said(Exp.apply(x).sum()))
    Exp.inside = True
    assert re.match(r"A tensor that Exp .* saved was not finite", said(Exp.apply(x).sum()))


def test_a_bad_input_and_a_bad_parameter_are_named(classifier, batch):
    x, y = batch
    x[3, 1] = math.nan
    record = wb.graph(F.cross_entropy(classifier(x), y)).record
    assert record.non_finite.samples == (3,)
    assert record.non_finite.text.startswith("An input of")
    x[3, 1] = 0
    with torch.no_grad():
        classifier[2].weight[0, 0] = math.inf
    record = wb.graph(F.cross_entropy(classifier(x), y)).record
    assert record.nodes[record.non_finite.node].name == "2.weight"


def test_outputs_in_between_are_named_once_for_each_call(classifier, batch):
    with wb.graph(classifier) as view:
        (classifier(batch[0]) / 0.0).sum().backward()
    assert view.record.non_finite.text.count("linear in 2") == 1


def test_a_loss_without_a_value_is_not_said_to_be_infinite():
    model = nn.Linear(3, 2, device="meta")
    record = wb.graph(model(torch.ones(5, 3, device="meta")).sum()).record
    assert record.loss is None
    assert record.non_finite is None
    assert not any("finite" in note for note in record.notes)


def test_a_mask_of_minus_infinity_is_no_fault():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])

    def loss(scale, x):
        masked = (x * scale).masked_fill(torch.eye(2).bool(), -math.inf)
        return (torch.softmax(masked, 1) * masked.clamp(min=-5)).sum().sub(1e38).mul(1e38)

    record = trail(loss, x)
    assert record.non_finite.in_forward
    assert op(record) in {"sub", "mul"}


def test_rows_are_not_read_off_a_weight_with_as_many_rows():
    weight = torch.zeros(3, 2, requires_grad=True)
    x = torch.ones(3, 2)
    loss = (x @ weight.sqrt().t()).sum()
    view = wb.graph(loss)
    loss.backward()
    assert view.record.non_finite is not None
    assert op(view.record) == "Sqrt"


def test_a_long_chain_is_looked_at_once(monkeypatch):
    """Every gradient of the chain is NaN and none is the one that was made."""
    queried = []
    monkeypatch.setattr(
        nonfinite_backward,
        "passes_on",
        lambda name: queried.append(name) or gradient_paths.passes_on(name),
    )

    def loss(scale, x):
        x = x * scale
        for _ in range(300):
            x = x + 1
        return (x.sum() * 0).sqrt()

    record = trail(loss, torch.ones(8, 4))
    assert (op(record), record.non_finite.samples) == ("sqrt", ())
    assert len(queried) <= 2 * len(record.node_type)
