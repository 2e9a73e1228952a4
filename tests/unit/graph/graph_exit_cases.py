"""Ways in which a forward loses the gradient of a parameter, one function each.

In each the line that ends in ``# exit`` is the one to be named.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Branch(nn.Module):
    """``lost`` feeds the result only through ``forward``'s way of cutting; ``main`` always does."""

    def __init__(self, join) -> None:
        super().__init__()
        self.main, self.lost = nn.Linear(4, 4), nn.Linear(4, 4)
        self.join = join

    def forward(self, x):
        return self.join(self, self.main(x), x)


def detach(self, h, x):
    return h + self.lost(x).detach()  # exit


def data(self, h, x):
    return h + self.lost(x).data  # exit


def detach_in_place(self, h, x):
    y = self.lost(x)
    y.detach_()  # exit
    return h + y


def copied(self, h, x):
    return h + torch.tensor(self.lost(x))  # exit


def item(self, h, x):
    return h * self.lost(x).sum().item()  # exit


def numpy(self, h, x):
    return h + torch.from_numpy(self.lost(x).detach().numpy())  # exit


def through_data(self, h, x):
    y = torch.zeros_like(h, requires_grad=True) * 2
    y.data.copy_(self.lost(x))  # exit
    return h + y


def into_a_buffer(self, h, x):
    buffer = torch.zeros(2, *h.shape)
    buffer[0] = self.lost(x).detach()  # exit
    return h + buffer[0]


def into_a_view_of_a_buffer(self, h, x):
    buffer = torch.zeros(2, *h.shape)
    row = buffer[0]
    row.add_(self.lost(x).detach())  # exit
    return h + buffer.sum(0)


def argmax(self, h, x):
    return h + self.lost(x).argmax(1, keepdim=True)  # exit


def comparison(self, h, x):
    return h * (self.lost(x) > 0)  # exit


def cast(self, h, x):
    return h + self.lost(x).long()  # exit


def indices_only(self, h, x):
    _, index = self.lost(x).max(1, keepdim=True)  # exit
    return h + index


class Hard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = (x > 0).float()
        ctx.mark_non_differentiable(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return None


def custom_function(self, h, x):
    return h * Hard.apply(self.lost(x))  # exit


def first_order_gradient(self, h, x):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(self.lost(x).square().sum(), x)  # exit
    return h + gradient


def no_grad(self, h, x):
    with torch.no_grad():
        y = F.linear(x, self.lost.weight, self.lost.bias).relu()  # exit
    return h + y


def inference_mode(self, h, x):
    with torch.inference_mode():
        y = F.linear(x, self.lost.weight, self.lost.bias)  # exit
    return h + y.clone()


def copied_into_a_parameter(self, h, x):
    with torch.no_grad():
        self.main.weight.copy_(self.lost.weight * 2)  # exit
        self.main.weight.add_(self.lost.bias)
    return F.linear(x, self.main.weight)


def thrown_away(self, h, x):
    F.linear(x, self.lost.weight, self.lost.bias)  # exit
    return h


def only_logged(self, h, x):
    y = F.linear(x, self.lost.weight, self.lost.bias)  # exit
    self.last = y.detach()
    return h


GRAPH_EXITS = [
    (detach, "detached", "`detach`"),
    (data, "detached", "`.data`"),
    (detach_in_place, "detached", "`detach_`"),
    (copied, "detached", "`tensor`"),
    (item, "detached", "`item`"),
    (numpy, "detached", "a NumPy array"),
    (through_data, "detached", "through `.data`"),
    (into_a_buffer, "detached", "`detach`"),
    (into_a_view_of_a_buffer, "detached", "`detach`"),
    (argmax, "not_differentiable", "`argmax`"),
    (comparison, "not_differentiable", "`gt`"),
    (cast, "not_differentiable", "int64"),
    (indices_only, "not_differentiable", "`max`"),
    (custom_function, "not_differentiable", "custom Function `Hard`"),
    (first_order_gradient, "not_differentiable", "create_graph=True"),
    (no_grad, "no_grad", "under torch.no_grad()"),
    (inference_mode, "no_grad", "under torch.inference_mode()"),
    (copied_into_a_parameter, "no_grad", "under torch.no_grad()"),
    (thrown_away, "off_path", "`linear`"),
    (only_logged, "off_path", "`detach`"),
]
