"""Models to compile, and an oracle: the backward graph as a backend of ours is handed it."""

from __future__ import annotations

import operator

import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from workbench.records import GraphRecord


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Images(nn.Module):
    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(3, 8), Block(8, 8), Block(8, 8)])
        self.head = nn.Linear(8, 10)
        self.breaks = breaks

    def forward(self, x):
        x = self.blocks[0](x)
        if self.breaks:
            torch._dynamo.graph_break()
        x = self.blocks[1](x)
        if self.breaks:
            torch._dynamo.graph_break()
        return self.head(self.blocks[2](x).mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


CASES = {
    "cnn": (Images, (4, 3, 8, 8)),
    "transformer": (Words, (4, 6, 16)),
}


def loss_of(model, x):
    return F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long))


class Oracle:
    """A backend that runs eagerly and keeps the graphs that AOTAutograd hands its compilers."""

    def __init__(self) -> None:
        self.backwards: list[GraphModule] = []
        self.backend = aot_autograd(fw_compiler=self._forward, bw_compiler=self._backward)

    @staticmethod
    def _forward(graph, _inputs):
        return make_boxed_func(graph.forward)

    def _backward(self, graph, _inputs):
        self.backwards.append(graph)
        return make_boxed_func(graph.forward)


def calls(graph: GraphModule):
    """The calls of a backward graph that compute tensors."""
    nodes = (node for node in graph.graph.nodes if node.op == "call_function")
    return [node for node in nodes if node.target is not operator.getitem]


def ops(graph: GraphModule) -> list[str]:
    return [str(node.target).split(".")[1] for node in calls(graph)]


def lane(node) -> str | None:
    """The innermost module of a node below ``self``, by its name alone; None where it has none."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0].removeprefix("L['self']").lstrip(".")
    return path.replace("[", ".").replace("]", "")


def inside(record: GraphRecord) -> list[tuple[str, str]]:
    """(operation, module) of every row of the inside."""
    names = [record.modules[row].path for row in record.inner_module]
    return list(zip([record.strings[row] for row in record.inner_op], names, strict=True))


def columns(record: GraphRecord) -> list[tuple[object, ...]]:
    text = record.strings
    return [
        (text[op], text[shape], text[dtype], module, source, ends)
        for op, shape, dtype, module, source, ends in zip(
            record.inner_op,
            record.inner_shape,
            record.inner_dtype,
            inside(record),
            record.inner_source.tolist(),
            record.inner_ends.tolist(),
            strict=True,
        )
    ]
