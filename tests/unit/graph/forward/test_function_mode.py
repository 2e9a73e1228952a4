from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.core.source_lines import op_name, shows_model_code


def operations(record):
    return [n for n in record.nodes if n.kind == "operation"]


def test_one_python_call_is_one_name_and_one_number(classifier, batch):
    x, y = batch
    with wb.graph(classifier):
        loss = F.cross_entropy(classifier(x), y)
    record = wb.graph(loss).record
    calls = {}
    for row, node in enumerate(record.nodes):
        if node.kind == "operation":
            calls.setdefault(int(record.node_call[row]), []).append((node.op, node.type))
    assert list(calls.values()) == [
        [("linear", "TBackward0"), ("linear", "AddmmBackward0")],
        [("relu", "ReluBackward0")],
        [("linear", "TBackward0"), ("linear", "AddmmBackward0")],
        [("cross_entropy", "LogSoftmaxBackward0"), ("cross_entropy", "NllLossBackward0")],
    ]
    assert list(calls) == [0, 1, 2, 3]


def test_operators_and_properties_go_by_their_names():
    model = nn.Linear(2, 2)
    with wb.graph(model):
        y = model(torch.ones(2, 2))
        z = (1 - y)[0] @ y.T + -y.sum() / 2
        loss = z.sum()
    names = {node.op for node in operations(wb.graph(loss).record)}
    assert names >= {"linear", "rsub", "getitem", "matmul", "T", "neg", "sum", "add"}


def test_lines_are_those_of_the_innermost_code_that_is_not_torchs():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x).relu()  # here

    model = Net()
    with wb.graph(model):
        loss = model(torch.ones(1, 2)).sum()
    nodes = operations(wb.graph(loss).record)
    assert nodes[0].source.text.endswith("# here")
    assert nodes[0].source.function == "forward"
    assert nodes[0].source.filename == __file__
    assert nodes[-1].source.text == "loss = model(torch.ones(1, 2)).sum()"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 2).clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_custom_function_has_the_line_that_applies_it():
    model = nn.Linear(2, 2)
    with wb.graph(model):
        y = model(torch.ones(1, 2))
        y = Identity.apply(y)
        y = Doubled.apply(y)  # applied here
        loss = y.sum()
    nodes = {node.op: node for node in operations(wb.graph(loss).record)}
    assert nodes["Doubled"].source.text.endswith("# applied here")
    assert nodes["Identity"].source is not None  # no torch call inside to see it by
    assert all(node.source is not None for node in nodes.values())


def test_a_checkpointed_line_is_the_one_inside():
    from torch.utils.checkpoint import checkpoint

    model = nn.Linear(2, 2)

    def inner(x):
        return model(x).tanh()  # inner

    with wb.graph(model):
        loss = checkpoint(inner, torch.ones(1, 2), use_reentrant=False).sum()
    (tanh,) = [n for n in operations(wb.graph(loss).record) if n.op == "tanh"]
    assert tanh.source.text.endswith("# inner")


def test_which_files_show_model_code(tmp_path):
    assert shows_model_code("/tmp/ipykernel_12/345.py")
    assert shows_model_code(str(tmp_path / "model.py"))
    assert not shows_model_code(torch.nn.functional.__file__)
    assert not shows_model_code(wb.__file__)
    assert not shows_model_code(threading_file())
    packages = Path(torch.__file__).parent.parent
    assert shows_model_code(str(packages / "torchvision" / "models" / "resnet.py"))
    assert shows_model_code(str(Path(wb.__file__).parent) + "_experiments/model.py")
    assert not shows_model_code("<string>")


def threading_file():
    import threading

    return threading.__file__


def test_op_names():
    assert op_name(torch.Tensor.__rsub__) == "rsub"
    assert op_name(F.max_pool2d) == "max_pool2d"
    assert op_name(torch.Tensor.T.__get__) == "T"
