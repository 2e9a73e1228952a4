"""No kind of tensor breaks a capture, and its bytes are right or said to be unknown."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.masked import masked_tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree

import workbench as wb
from workbench.graph.core.tensor_memory import memory_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*MaskedTensors is in prototype stage.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*in beta state.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*a tensor that requires_grad.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*create_graph=True will create.*:UserWarning"),
]


class Wrapper(torch.Tensor):
    """A wrapper subclass in its barest form: torch sees a tensor that has no memory."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = _pytree.tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return _pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class Hidden(Wrapper):
    """Its memory is nowhere to be found."""

    inners: ClassVar[dict[int, torch.Tensor]] = {}

    def __init__(self, inner):
        Hidden.inners[id(self)] = inner

    inner = property(lambda self: Hidden.inners[id(self)])


def refuse(*_):
    raise KeyError("none of your business")


class Refusing(Wrapper):
    untyped_storage = refuse
    __tensor_flatten__ = refuse
    layout = property(refuse)


class Remote(torch.Tensor):
    """An ordinary tensor of a class that has every function of torch fail that only looks."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("untyped_storage", "__get__", "dim", "numel"):
            raise OSError("the storage is in another building")
        return super().__torch_function__(func, types, args, kwargs)


class Saves(torch.autograd.Function):
    """Saves something strange beside the graph."""

    @staticmethod
    def forward(ctx, x, strange):
        ctx.save_for_backward(strange)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


def saving(strange):
    return Saves.apply(torch.ones(3, requires_grad=True), strange).sum()


def ragged(**options):
    return torch.nested.nested_tensor([torch.ones(3, 4), torch.full((5, 4), 2.0)], **options)


def holds(record):
    """(name, shape, bytes) of each saved tensor."""
    text = record.strings
    rows = zip(record.hold_name, record.hold_shape, record.hold_storage, strict=True)
    return [(text[name], text[shape], int(record.storage_bytes[at])) for name, shape, at in rows]


def shapes(record):
    return {node.type: node.shape for node in record.nodes if node.kind == "operation"}


def test_a_strided_nested_tensor_goes_through_a_model():
    model = nn.Linear(4, 6)
    batch = ragged()
    with wb.graph(model) as view:
        model(batch).to_padded_tensor(0.0).pow(2).mean().backward()
    record = view.record
    assert shapes(record)["LinearBackward0"] == "nested"  # torch reports no more of a node
    assert ("self", "2×*×6", 8 * 6 * 4) in holds(record)  # what is padded
    padded = 2 * 5 * 6 * 4
    assert record.saved_bytes == 8 * 6 * 4 + padded
    assert record.input_bytes == 8 * 4 * 4
    assert model.weight.grad is not None
    assert any("ragged" in note for note in record.notes)


def test_a_jagged_nested_tensor_is_its_values_and_offsets():
    model = nn.Linear(4, 6)
    batch = ragged(layout=torch.jagged)
    with wb.graph(model) as view:
        model(batch).sin().to_padded_tensor(0.0).sum().backward()
    record = view.record
    assert shapes(record)["LinearBackward0"] == "2×*×6"
    assert record.saved_bytes == 2 * 8 * 6 * 4  # into the sine, and out of it
    assert record.input_bytes == 8 * 4 * 4 + 3 * 8  # offsets are shared
    assert model.weight.grad is not None


def test_a_masked_tensor_is_its_data_and_its_mask():
    data = masked_tensor(torch.arange(6.0), torch.arange(6) > 2, requires_grad=True)
    record = wb.graph((data * data).sum()).record
    assert record.input_bytes == 6 * 4 + 6
    assert record.saved_bytes == 6  # the product's own mask


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_a_sparse_tensor_is_its_indices_and_values(layout):
    sparse = {
        "coo": lambda dense: dense.to_sparse(),
        "csr": lambda dense: dense.to_sparse_csr(),
        "csc": lambda dense: dense.to_sparse_csc(),
        "bsr": lambda dense: dense.to_sparse_bsr((2, 2)),
        "bsc": lambda dense: dense.to_sparse_bsc((2, 2)),
    }[layout](torch.eye(4))
    expected = {"coo": 2 * 4 * 8 + 4 * 4, "csr": 5 * 8 + 4 * 8 + 4 * 4}
    expected |= {"csc": expected["csr"], "bsr": 3 * 8 + 2 * 8 + 2 * 4 * 4}
    sparse = sparse.clone()  # as large as it need be
    given, made = wb.graph(saving(sparse)).record, wb.graph(saving(sparse.clone())).record
    num_bytes = expected.get(layout, expected["bsr"])
    assert (given.input_bytes, given.saved_bytes) == (num_bytes, 0)
    assert (made.input_bytes, made.saved_bytes) == (0, num_bytes)
    assert not any("not counted" in note for note in made.notes)


def test_a_sparse_weight_is_a_parameter():
    model = nn.Module()
    model.weight = nn.Parameter(torch.eye(3).to_sparse_csr().clone())
    x = torch.randn(3, 4, requires_grad=True)
    record = wb.graph((model.weight @ x).sum(), model=model).record
    assert record.parameter_bytes == 4 * 8 + 3 * 8 + 3 * 4
    assert (record.saved_bytes, record.input_bytes) == (0, x.nbytes)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_an_mkldnn_tensor_is_counted_once():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, dense):
            strange = dense.to_mkldnn()
            ctx.save_for_backward(strange)
            ctx.too = strange.detach()
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2, None

    loss = Twice.apply(torch.ones(3, requires_grad=True), torch.randn(4, 4)).sum()
    record = wb.graph(loss).record
    assert holds(record) == [("tensors", "4×4", 64), ("ctx.too", "4×4", 64)]
    assert record.saved_bytes == 64


def test_a_quantized_tensor_is_its_small_integers():
    x = torch.randn(6)
    record = wb.graph(saving(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8))).record
    assert record.saved_bytes == 6


def test_what_stands_for_a_tensor_inside_grad_and_vmap_is_looked_under():
    seen = {}
    weight = torch.ones(3, requires_grad=True)

    def of_grad(x):
        loss = (x * x.sin()).sum()
        seen["grad"] = wb.graph(loss).record
        return loss

    def of_vmap(x):
        loss = (x * weight).sin().sum()
        seen["vmap"] = wb.graph(loss).record
        return loss

    torch.func.grad(of_grad)(torch.randn(3))
    torch.func.vmap(of_vmap)(torch.randn(5, 3))
    assert seen["grad"].saved_bytes + seen["grad"].input_bytes == 2 * 3 * 4  # x and its sine
    assert shapes(seen["vmap"])["SinBackward0"] == "5×3"  # the whole batch
    assert seen["vmap"].saved_bytes + seen["vmap"].input_bytes == 2 * 5 * 3 * 4
    for record in seen.values():
        assert not any("not counted" in note for note in record.notes)


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_tensors_without_memory_have_the_bytes_that_they_would_have(kind):
    def loss():
        device = "meta" if kind == "meta" else "cpu"
        weight = torch.ones(3, 3, device=device, requires_grad=True)
        return (torch.ones(5, 3, device=device) @ weight).sin().sum()

    if kind == "fake":
        with FakeTensorMode():
            made = loss()
    else:
        made = loss()
    with wb.graph(nn.Linear(1, 1)) as view:
        made.backward()
    record = view.record
    assert record.loss is None
    assert record.saved_bytes == 2 * 5 * 3 * 4
    assert any("take no memory" in note for note in record.notes)
    assert not any("Error" in note for note in record.notes)


def test_a_capture_leaves_sizes_that_are_symbols_alone():
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    x = mode.from_tensor(torch.randn(5, 7))
    weight = mode.from_tensor(torch.randn(7, 3, requires_grad=True))
    with mode:
        loss = (x @ weight).sin().sum()
    num_guards = len(environment.guards)
    record = wb.graph(loss).record
    assert len(environment.guards) == num_guards
    assert not isinstance(x.shape[0], int)
    assert (record.input_bytes, record.saved_bytes) == (5 * 7 * 4, 5 * 3 * 4)
    assert not shapes(record)["SinBackward0"].replace("×", "").isdigit()


@pytest.mark.parametrize(("cls", "known"), [(Wrapper, True), (Refusing, True), (Hidden, False)])
def test_a_wrapper_without_memory_is_its_attributes_or_is_said(cls, known):
    record = wb.graph(saving(cls(torch.randn(6)))).record
    assert record.saved_bytes == (24 if known else 0)
    said = [note for note in record.notes if "not counted" in note]
    assert [cls.__name__ in note for note in said] == ([] if known else [True])


@pytest.mark.parametrize("cls", [Wrapper, Refusing, Hidden])
def test_a_graph_of_wrappers_runs_backward_while_it_is_watched(cls):
    """Their values cannot be read without their class: a look must not follow a null pointer."""
    x = cls(torch.randn(3)).requires_grad_()
    for create_graph in (False, True):
        with wb.graph(nn.Linear(1, 1)) as view:
            (x * x).sum().backward(create_graph=create_graph)
        record = view.record
        assert [node.op for node in record.nodes if node.kind == "operation"] == ["mul", "sum"]
        assert any("could not be" in note and cls.__name__ in note for note in record.notes)


def test_a_class_that_has_looks_fail_cannot_break_a_capture():
    x = torch.randn(3).as_subclass(Remote)
    x.requires_grad_()
    view = wb.graph((x * x).sum())
    assert view.record.input_bytes == 12
    assert shapes(view.record)["MulBackward0"] == "3"
    with wb.graph(nn.Linear(1, 1)) as view:
        (x * x).sum().backward()
    assert view.record.input_bytes == 12


def test_the_parts_of_a_subclass_are_measured_and_nothing_else():
    x = TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_()
    for create_graph in (False, True):
        with wb.graph(nn.Linear(1, 1)) as view:
            loss = (x * 2).sum()
            loss.backward(create_graph=create_graph)
        (leaf,) = [node for node in view.record.nodes if node.kind == "input"]
        assert leaf.gradient_norm == pytest.approx((2 * 3 * 4) ** 0.5)


def test_a_storage_that_was_emptied_is_not_read():
    """As FSDP leaves the parameters of a layer; torch itself reads past the end of it."""
    x = torch.ones(3)
    loss = (torch.full((3,), float("inf"), requires_grad=True) * x).sum()
    x.untyped_storage().resize_(0)
    record = wb.graph(loss).record
    assert record.non_finite is not None
    assert record.saved_bytes == 0


def test_strange_parameters_buffers_and_batches_break_nothing():
    model = nn.Linear(3, 2)
    model.register_buffer("sparse", torch.eye(3).to_sparse_bsr((1, 1)))
    model.register_buffer("hidden", Hidden(torch.ones(3)))
    model.register_buffer("nested", ragged())
    model.register_buffer("dense", torch.eye(3).to_mkldnn())
    strange = [Hidden(torch.ones(2)), ragged(), torch.ones(2).as_subclass(Remote)]
    x, y = torch.randn(5, 3), torch.zeros(5).long()
    with wb.graph(model) as view:
        F.cross_entropy(model(x), y).backward()
    assert len(strange) == 3
    assert view.record.input_bytes == x.nbytes + y.nbytes


def test_zeros_that_are_not_stored_take_no_memory():
    assert memory_of(torch._efficientzerotensor(3)) == ()
    assert memory_of(nn.LazyLinear(3).weight) == ()


def test_a_wrapper_with_a_reference_to_itself_is_looked_at_once():
    strange = Wrapper(torch.randn(6))
    strange.me = strange
    (memory,) = memory_of(strange)
    assert (memory.num_bytes, memory.shape) == (24, (6,))
