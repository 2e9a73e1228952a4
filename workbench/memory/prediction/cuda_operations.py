"""Running on the CPU with CUDA's allocations: operations that keep other tensors for backward.

Dispatch on a GPU takes other paths through PyTorch, and some of them allocate other memory. Here
Python's calls of such operations are sent along a path whose allocations are those of CUDA:

* ``dropout`` on the CPU keeps a mask of the input's dtype; on CUDA ``native_dropout`` keeps a mask
  of booleans (``aten/src/ATen/native/Dropout.cpp``: the fused kernel is used if the input is on an
  accelerator);
* ``scaled_dot_product_attention`` with dropout has no fused kernel on the CPU, and keeps the
  attention's probabilities; on CUDA the fused kernels apply dropout themselves, and keep the output
  and one log-sum-exp per row (``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``). The CPU's
  fused kernel without dropout keeps exactly these;
* under autocast, CUDA computes normalisations and softmax in float32, the CPU in 16 bits if their
  input is (``AT_FORALL_FP32`` and ``AT_FORALL_FP32_SET_OPT_DTYPE`` in ``ATen/autocast_mode.h``);
* an optimizer that is free to choose works on lists of tensors on CUDA (``foreach``), one by one on
  the CPU (``_default_to_fused_or_foreach`` in ``torch/optim/optimizer.py``): its intermediate lists
  are alive at the same time.

This changes what a step computes (dropout differs, or is not applied), so it is only for a copy.
Calls are intercepted by a function mode, and in ``torch.nn.functional`` itself where functions of
that module call one another, which no mode sees. Both act only on the thread that entered
`as_cuda`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own abbreviation
from torch.overrides import TorchFunctionMode

DROPOUT, ATTENTION = "dropout", "scaled_dot_product_attention"
IN_FLOAT32 = ("layer_norm", "group_norm", "rms_norm")
"""Under CUDA's autocast their inputs are cast to float32."""
TO_FLOAT32 = ("softmax", "log_softmax")
"""Under CUDA's autocast their results are float32."""
OPERATIONS = (DROPOUT, ATTENTION, *IN_FLOAT32, *TO_FLOAT32)
"""Names in ``torch.nn.functional``, and of the operations themselves."""
_HALVES = (torch.float16, torch.bfloat16)
_MOST_HALF_HEAD = 256
"""The largest head size that the fused kernels for half precision accept."""
_ALIGNMENT = 4
"""The head size must be a multiple of this for the fused kernel that accepts float32."""

_lock = threading.Lock()
_users: dict[int, CudaOperations] = {}
_replaced: dict[str, Callable[..., Any]] = {}
"""The original functions of ``torch.nn.functional``, by name, while there are users."""


@contextmanager
def as_cuda(*, fused_attention: bool = True) -> Generator[CudaOperations]:
    """Send this thread's calls along CUDA's paths; yields the object that counts them.

    Args:
        fused_attention: whether attention may use a fused kernel.
    """
    thread, operations = threading.get_ident(), CudaOperations(fused_attention=fused_attention)
    with _lock:
        if not _users:
            _patch_functional()
        _users[thread] = operations
    try:
        with operations:
            yield operations
    finally:
        with _lock:
            del _users[thread]
            if not _users:
                _restore_functional()


class CudaOperations(TorchFunctionMode):
    """Send single calls along another path; see `as_cuda`."""

    def __init__(self, *, fused_attention: bool) -> None:
        super().__init__()
        self._fused_attention = fused_attention
        self.num_dropouts = 0
        """Calls of dropout that were redirected."""
        self.num_attentions = 0
        """Calls of attention that were redirected."""
        self.num_casts = 0
        """Calls under autocast that were redirected."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Handle one call, by the name of the function called."""
        del types
        name = getattr(func, "__name__", "")
        if name in OPERATIONS:
            return self.redirect(name, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def redirect(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Handle one call of one of `OPERATIONS`."""
        if name == DROPOUT:
            return self._dropout(func, args, kwargs)
        if name == ATTENTION:
            return self._attention(func, args, kwargs)
        given = args[0] if args else kwargs.get("input")
        if not torch.is_autocast_enabled("cpu") or not _is_half(given):
            return func(*args, **kwargs)
        self.num_casts += 1
        if name in IN_FLOAT32:
            return func(*map(_float, args), **{key: _float(kwargs[key]) for key in kwargs})
        chosen = (*args, *kwargs.values())
        if not any(isinstance(value, torch.dtype) for value in chosen):
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)

    def _dropout(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Apply dropout with a mask of booleans."""
        named = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
        rate = named.get("p", 0.5)
        is_training = named.get("training", named.get("train", True))
        drops = is_training and 0 < rate < 1 and not named.get("inplace")
        if not drops or not named["input"].numel():
            return func(*args, **kwargs)
        self.num_dropouts += 1
        return torch.native_dropout(named["input"], rate, train=True)[0]

    def _attention(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute attention with a fused kernel, if CUDA has one for it."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        named = dict(zip(names, args, strict=False)) | kwargs
        if named.get("dropout_p") and self._fused_attention and _has_kernel(named["query"]):
            self.num_attentions += 1
            named["dropout_p"] = 0.0
        return func(**named)


def use_foreach(optimizer: torch.optim.Optimizer) -> bool:
    """Let an optimizer work as on CUDA by default; return whether that differs from the CPU.

    Optimizers without ``foreach``, and groups with a choice of their own, are not changed.
    """
    changed = False
    for group in optimizer.param_groups:
        is_free = "foreach" in group and group["foreach"] is None
        if is_free and not group.get("fused") and not group.get("differentiable"):
            group["foreach"] = changed = True
    return changed


def _has_kernel(query: torch.Tensor) -> bool:
    size = query.shape[-1]
    if query.dtype in _HALVES:
        return size <= _MOST_HALF_HEAD
    return query.dtype is torch.float32 and size % _ALIGNMENT == 0


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _HALVES


def _float(value: Any) -> Any:
    return value.float() if _is_half(value) else value


def _patch_functional() -> None:
    """Replace functions of ``torch.nn.functional`` by the functions below."""
    for name in OPERATIONS:
        _replaced[name] = getattr(F, name)
        setattr(F, name, _redirected(name, _replaced[name]))


def _restore_functional() -> None:
    for name, original in _replaced.items():
        setattr(F, name, original)
    _replaced.clear()


def _redirected(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        operations = _users.get(threading.get_ident())
        if operations is None:
            return original(*args, **kwargs)
        return operations.redirect(name, original, args, kwargs)

    return call
