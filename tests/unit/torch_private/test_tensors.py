"""Fails loudly when a private torch API that shows where memory is has moved."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from workbench.torch_private import tensors as private
from workbench.torch_private.autograd import raw_values


def test_storage_identity_is_shared_by_views():
    x = torch.ones(4, 4)
    assert private.storage_key(x[0]) == private.storage_key(x)
    assert private.storage_key(x)[1] == 64


def test_memory_is_there_or_it_is_not():
    with FakeTensorMode():
        fake = torch.ones(3)
    emptied = torch.ones(3)
    emptied.untyped_storage().resize_(0)
    assert private.has_memory(torch.ones(3))
    assert not any(map(private.has_memory, (fake, emptied, torch.ones(3, device="meta"))))
    assert private.is_virtual(fake)
    assert not private.is_virtual(torch.ones(3))


def test_reading_memory_copies_none_of_it():
    shared = torch._lazy_clone(torch.ones(3))
    assert private.has_memory(shared)
    assert private.storage_key(shared)[1] == 12
    assert torch._C._is_cow_tensor(shared)


def test_zeros_that_are_not_stored_are_known():
    assert private.is_zero_tensor(torch._efficientzerotensor(3))
    assert not private.is_zero_tensor(torch.zeros(3))


def test_a_symbol_is_read_without_settling_it():
    environment = ShapeEnv()
    x = FakeTensorMode(shape_env=environment).from_tensor(torch.randn(5, 7))
    assert private.known_size(x.shape[0]) == 5
    assert private.storage_key(x)[1] == 140
    assert not environment.guards
    assert private.known_size(3) == 3


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage.*:UserWarning")
def test_what_is_ragged_of_a_nested_tensor():
    rows = [torch.ones(3, 4), torch.ones(5, 4)]
    strided = torch.nested.nested_tensor(rows, requires_grad=True)
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    assert private.nested_shape(strided) == (2, "*", 4)
    assert private.output_sizes((strided * 2).grad_fn._input_metadata[0]) is None
    assert private.output_sizes((jagged * 2).grad_fn._input_metadata[0]) == (2, "*", 4)


@pytest.mark.filterwarnings("ignore:.*in beta state.*:UserWarning")
def test_parts_of_sparse_layouts_are_no_nodes():
    sparse = torch.eye(4).to_sparse_csr().requires_grad_()
    before = torch.autograd._get_sequence_nr()
    parts = private.sparse_parts(sparse)
    assert [part.shape[0] for part in parts] == [5, 4, 4]
    assert not any(part.requires_grad for part in parts)
    assert torch.autograd._get_sequence_nr() == before
    assert private.sparse_parts(torch.ones(3)) is None


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_the_memory_of_onednn_has_an_address_and_a_size():
    dense = torch.eye(4).to_mkldnn()
    assert private.mkldnn_memory(dense) == private.mkldnn_memory(dense.detach())
    assert private.mkldnn_memory(dense)[1] == 64
    assert private.mkldnn_memory(torch.ones(3)) is None


def test_a_tensor_inside_a_transform_is_unwrapped():
    seen = []
    torch.func.vmap(lambda x: seen.append(private.unwrapped(x).shape) or x)(torch.ones(5, 3))
    assert seen == [(5, 3)]


@pytest.mark.parametrize("number", [2.0, 2, True, 1j])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_a_python_number_is_known_from_a_tensor(number, default):
    x = torch.ones(3, requires_grad=True)
    torch.set_default_dtype(default)
    try:
        (saved,) = raw_values((x * number).grad_fn, "_raw_saved_other")
        assert private.is_wrapped_number(saved)
        assert not private.is_wrapped_number(saved.clone())
        with torch.no_grad():
            assert private.is_wrapped_number(saved)
        with torch.inference_mode():
            assert not private.is_wrapped_number(torch.tensor(number))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_a_tensor_of_any_type_is_no_number():
    dtypes = [one for one in vars(torch).values() if isinstance(one, torch.dtype)]
    dtypes = [dtype for dtype in dtypes if not str(dtype).startswith(("torch.q", "torch.bits"))]
    assert len(dtypes) > 15
    for dtype in dtypes:
        assert not private.is_wrapped_number(torch.empty((), dtype=dtype)), dtype


def test_how_often_it_was_written() -> None:
    x = torch.zeros(3)
    before = private.version_of(x)
    x[:2].add_(1)  # a view shares the count
    assert private.version_of(x) == before + 1
    with torch.inference_mode():
        uncounted = torch.zeros(1)
    assert private.counted_version(x) == private.version_of(x)
    assert private.counted_version(uncounted) == -1
    with pytest.raises(RuntimeError):  # -1 == -1 would read as "not written"
        private.version_of(uncounted)


def test_the_layout_of_onednn() -> None:
    assert torch.ones(2, 2).to_mkldnn().layout is private.MKLDNN
