"""The private parts of torch that show where the memory of a tensor is.

Read in torch 2.13 and verified by ``tests/unit/torch_private/test_tensors.py``. What a class of the
user's may override is read directly from the class that torch's C++ defines; for use while torch
functions are off (`workbench.torch_private.autograd.without_functions`).
"""

# pyright: reportPrivateUsage=false
# (this file exists to hold the private uses)

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from workbench.torch_private.autograd import raw_values, without_dispatch
from workbench.torch_private.lookup import Check, expect, private

_base: Any = torch._C.TensorBase
_data_address: Callable[[torch.Tensor], int] = private("torch._C._data_address")
_get_unwrapped: Callable[[torch.Tensor], torch.Tensor] = private(
    "torch._C._functorch.get_unwrapped"
)

layout_of: Callable[[torch.Tensor], torch.layout] = _base.layout.__get__
num_values: Callable[[torch.Tensor], int] = _base.numel
requires_grad: Callable[[torch.Tensor], bool] = _base.requires_grad.__get__
is_leaf: Callable[[torch.Tensor], bool] = _base.is_leaf.__get__
is_nested: Callable[[torch.Tensor], bool] = _base.is_nested.__get__
is_zero_tensor: Callable[[torch.Tensor], bool] = private("torch._C.TensorBase._is_zerotensor")
"""Whether it represents zeros that are not stored (in forward-mode differentiation)."""

MKLDNN: torch.layout = private("torch._mkldnn")
"""Layout of tensors in oneDNN's own order."""


def version_of(tensor: torch.Tensor) -> int:
    """How often the memory of ``tensor`` was written in place.

    Raises:
        RuntimeError: it was made under ``torch.inference_mode``, and counts no writes: two equal
            answers would not say that it was not written in between.
    """
    return tensor._version


def counted_version(tensor: torch.Tensor) -> int:
    """As `version_of`; -1 of a tensor that counts no writes, for callers that check those apart."""
    return -1 if tensor.is_inference() else tensor._version


def storage_identity(storage: torch.UntypedStorage) -> int:
    """Return what identifies a storage for as long as anything holds it."""
    return storage._cdata


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` as class `torch.Tensor`, without a graph; no node is created."""
    with torch.no_grad():
        own = tensor if type(tensor) is torch.Tensor else _base.as_subclass(tensor, torch.Tensor)
        return _base.detach(own)


def storage_key(tensor: torch.Tensor) -> tuple[int, int]:
    """Return (identity, bytes) of the storage of ``tensor``; the identity is valid while it lives.

    Raises:
        NotImplementedError: the tensor has no storage.
        ValueError: the tensor belongs to a lazy module that has not run.
    """
    storage: torch.UntypedStorage = _base.untyped_storage(tensor)
    return storage._cdata, known_size(storage.nbytes()) or 0


def has_memory(tensor: torch.Tensor) -> bool:
    """Return whether its storage really has memory. Copies nothing, and accepts every wrapper."""
    return _data_address(tensor) != 0


def is_virtual(tensor: torch.Tensor) -> bool:
    """Return whether its storage is on the device ``meta``, as that of a fake tensor is."""
    return _base.untyped_storage(tensor).device.type == "meta"


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a tensor represents in `torch.func.grad` or `vmap`, one transform further out."""
    return _get_unwrapped(tensor)


RAGGED = "*"
"""Size of a dimension of a nested tensor that differs from row to row, as in torch's manual."""


def known_size(size: Any) -> int | None:
    """Return a size as a number, also of a symbol, without specialising it; None if unknown.

    `int` of a symbol would specialise it for the program that is traced.
    """
    if isinstance(size, int):
        return size
    return known_size(getattr(size.node, "hint", None)) if isinstance(size, torch.SymInt) else None


def output_sizes(metadata: Any) -> tuple[Any, ...] | None:
    """Return the sizes of one output; None for a nested one in C++, for which torch gives none.

    A size may be a symbol, or `RAGGED`.
    """
    if not metadata.is_nested_tensor:
        return metadata.shape
    if metadata.is_cpp_nested_tensor:
        return None
    return tuple(RAGGED if isinstance(size, torch.SymInt) else size for size in metadata.shape)


def nested_shape(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the sizes of a C++ nested tensor, some of them `RAGGED`."""
    return tuple(_nested_size(tensor, dim) for dim in range(_base.dim(tensor)))


def _nested_size(tensor: torch.Tensor, dim: int) -> Any:
    try:
        return _base.size(tensor, dim)
    except RuntimeError:  # "is irregular and does not have a size"
        return RAGGED


_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_coo: ("_indices", "_values"),
}


def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """Return indices and values of a sparse tensor, without a graph; None for any other layout."""
    names = _COMPRESSED.get(layout_of(tensor))
    if names is None:
        return None
    with torch.no_grad():
        return [as_plain(getattr(_base, name)(tensor)) for name in names]


def mkldnn_memory(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return (address, bytes) of the memory of a oneDNN tensor; None for any other tensor."""
    if not cast(bool, _base.is_mkldnn.__get__(tensor)):
        return None
    calls: Any = torch.ops.mkldnn
    with torch.no_grad():
        return int(calls.data_ptr(tensor)), int(calls._nbytes(tensor))


_GIVES_WAY = {
    **dict.fromkeys((torch.float16, torch.float32, torch.float64), (torch.bfloat16,) * 2),
    torch.bfloat16: (torch.float16,) * 2,
    **dict.fromkeys((torch.uint8, torch.int16, torch.int32, torch.int64), (torch.int8,) * 2),
    torch.int8: (torch.uint8,) * 2,
    **dict.fromkeys((torch.complex64, torch.complex128), (torch.float16, torch.complex32)),
}
"""dtype of a number -> a dtype that takes precedence over a Python number, and the resulting dtype;
a tensor does not give way."""


def is_wrapped_number(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is what torch made of a Python number, as in ``x * 2.0``.

    Nodes save it, but it is not passed to any saved-tensor hook (``SavedVariable::register_hooks``
    and ``get_default_hooks`` in ``torch/csrc/autograd/saved_variable.cpp``). It is in host memory,
    even if ``x`` is on a GPU.
    """
    if _base.dim(tensor) or type(tensor) is not torch.Tensor:
        return False
    if tensor.dtype is torch.bool:
        return not _is_handed_to_hooks(tensor)
    if tensor.dtype not in _GIVES_WAY:
        return False
    other, result = _GIVES_WAY[tensor.dtype]
    return torch.result_type(tensor, torch.empty((), dtype=other)) is result


def _is_handed_to_hooks(tensor: torch.Tensor) -> bool:
    """Let a node save it, to find out: type promotion cannot distinguish a bool from a tensor."""
    seen: list[torch.Tensor] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        seen.append(value)
        return value

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value)
    try:
        # the last context begins when it is created, not when it is entered
        with (
            torch.inference_mode(mode=False),
            torch.enable_grad(),
            hooks,
            without_dispatch(),
        ):
            torch.ones((), device=tensor.device, requires_grad=True).mul(tensor)
    except RuntimeError:  # hooks are forbidden here, as inside `torch.func.grad`
        return True
    return bool(seen)


# -- checks ---------------------------------------------------------------------------------


def _values() -> torch.Tensor:
    return torch.ones(4, device="cpu", dtype=torch.float32)


def _check_versions() -> None:
    tensor = _values()
    before = version_of(tensor)
    tensor[:2].add_(1)
    expect(version_of(tensor) == before + 1, "a write through a view is not counted")
    with torch.inference_mode():
        uncounted = _values()
    expect(counted_version(uncounted) == -1, "a tensor of inference mode counts writes")


def _check_storages() -> None:
    tensor = _values()
    expect(storage_key(tensor) == storage_key(tensor[1:]), "a view has another storage")
    expect(storage_key(tensor)[1] == 16, "a storage has another size")
    own = storage_identity(tensor.untyped_storage())
    expect(own == storage_key(tensor)[0], "one storage has two identities")
    expect(own != storage_identity(_values().untyped_storage()), "two storages have one identity")


def _check_memory() -> None:
    tensor = _values()
    expect(has_memory(tensor), "a tensor has no memory")
    expect(not has_memory(torch.ones(4, device="meta")), "a tensor on meta has memory")
    tensor.untyped_storage().resize_(0)
    expect(not has_memory(tensor), "a storage without bytes has memory")


def _check_zeros() -> None:
    expect(not is_zero_tensor(_values()), "stored numbers count as zeros")
    make: Any = getattr(torch, "_efficientzerotensor", None)
    if make is not None:
        expect(is_zero_tensor(make(3, device="cpu")), "zeros that are not stored are not seen")


def _check_unwrapped() -> None:
    seen: list[torch.Tensor] = []

    def inspect(value: torch.Tensor) -> torch.Tensor:
        seen.append(unwrapped(value))
        return value

    plain = _values()
    cast(Any, torch.func.vmap)(inspect)(plain)
    expect(storage_key(seen[0]) == storage_key(plain), "a wrapper has another tensor inside")


def _check_layouts() -> None:
    eye = torch.eye(2, device="cpu", dtype=torch.float32)
    sparse = eye.to_sparse_coo()
    parts = sparse_parts(sparse)
    expect(parts is not None and [part.shape[-1] for part in parts] == [2, 2], "parts are others")
    if torch.backends.mkldnn.is_available():
        dense = eye.to_mkldnn()
        expect(dense.layout is MKLDNN, "a tensor of oneDNN has another layout")
        expect((mkldnn_memory(dense) or (0, 0))[1] == 16, "a tensor of oneDNN has another size")


def _check_numbers() -> None:
    for number in (2.0, True):
        node: Any = (_values().requires_grad_() * number).grad_fn
        (saved,) = raw_values(node, "_raw_saved_other")
        expect(is_wrapped_number(saved), "a Python number is taken for a tensor")
        expect(not is_wrapped_number(saved.clone()), "a tensor is taken for a Python number")


def _check_nested() -> None:
    leaf = torch.ones(2, 2, device="cpu", requires_grad=True)
    node: Any = (leaf * 2).grad_fn
    sizes = output_sizes(node._input_metadata[0])
    expect(tuple(sizes or ()) == (2, 2), "an output has other sizes")
    expect(node._input_metadata[0].is_cpp_nested_tensor is False, "a plain output is nested")


CHECKS = (
    Check(
        ("torch._C.TensorBase._version",),
        "writes in place",
        _check_versions,
        concerns=("training", "graphs", "parallel"),
        vital_for=("training", "graphs"),
    ),
    Check(
        ("torch._C.StorageBase._cdata",),
        "which tensors share memory",
        _check_storages,
        concerns=("graphs", "memory"),
        vital_for=("graphs", "memory"),
    ),
    Check(
        ("torch._C._data_address",), "tensors without memory", _check_memory, concerns=("graphs",)
    ),
    Check(
        ("torch._C.TensorBase._is_zerotensor",),
        "zeros that are not stored",
        _check_zeros,
        concerns=("graphs",),
    ),
    Check(
        ("torch._C._functorch.get_unwrapped",),
        "tensors inside torch.func",
        _check_unwrapped,
        concerns=("graphs",),
    ),
    Check(
        (
            "torch._C.TensorBase._indices",
            "torch._C.TensorBase._values",
            *(("torch._mkldnn",) if torch.backends.mkldnn.is_available() else ()),
        ),
        "the memory of sparse tensors and of oneDNN's",
        _check_layouts,
        concerns=("graphs", "memory"),
    ),
    Check(
        ("torch.autograd.graph.Node._raw_saved_other",),
        "Python numbers in a graph",
        _check_numbers,
        concerns=("graphs",),
    ),
    Check(
        (
            "torch._C._autograd._InputMetadata.is_nested_tensor",
            "torch._C._autograd._InputMetadata.is_cpp_nested_tensor",
        ),
        "shapes of nested tensors",
        _check_nested,
        concerns=("graphs",),
        vital_for=("graphs",),
    ),
)
