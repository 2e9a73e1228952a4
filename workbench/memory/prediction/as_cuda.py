"""On the CPU, but allocating as CUDA would: operations that keep other things for backward there.

Dispatch on a GPU takes other ways through PyTorch, and some of them allocate other memory. Here
Python's calls of such operations are sent the way whose allocations are CUDA's:

* ``dropout`` on the CPU keeps a mask of the input's type; on CUDA ``native_dropout`` keeps one of
  booleans (``aten/src/ATen/native/Dropout.cpp``: the fused kernel is taken where the input is on an
  accelerator);
* ``scaled_dot_product_attention`` with dropout has no fused kernel on the CPU, and keeps the
  attention's probabilities; on CUDA the fused kernels drop by themselves, and keep the output and
  one log-sum-exp per row (``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``). The CPU's
  fused kernel without dropout keeps just these;
* under autocast, CUDA computes normalisations and softmax in float32, the CPU in 16 bits where
  their input is (``AT_FORALL_FP32`` and ``AT_FORALL_FP32_SET_OPT_DTYPE`` in
  ``ATen/autocast_mode.h``);
* an optimizer that may choose works on lists of tensors on CUDA (``foreach``), one by one on the
  CPU (``_default_to_fused_or_foreach`` in ``torch/optim/optimizer.py``): its intermediate lists
  live together.

What a step computes changes by it (dropout differently, or not at all), so it is for a copy only.
Calls are caught by a function mode, and in ``torch.nn.functional`` itself where functions of that
module call one another, which no mode sees. Both act on the thread that asked only.
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
WAYS = (DROPOUT, ATTENTION, *IN_FLOAT32, *TO_FLOAT32)
"""Names in ``torch.nn.functional``, and of the operations themselves."""
_HALVES = (torch.float16, torch.bfloat16)
_MOST_HALF_HEAD = 256
"""Elements of a head that the fused kernels for half precision take."""
_ALIGNMENT = 4
"""Elements that a head's size is a multiple of, for the fused kernel that takes float32."""

_lock = threading.Lock()
_users: dict[int, AsCuda] = {}
_replaced: dict[str, Callable[..., Any]] = {}
"""What stood in ``torch.nn.functional``, by name, while there are users."""


@contextmanager
def as_cuda(*, fused_attention: bool = True) -> Generator[AsCuda]:
    """Send this thread's calls the way CUDA would; gives what counts them.

    Args:
        fused_attention: whether attention may take a fused kernel.
    """
    thread, way = threading.get_ident(), AsCuda(fused_attention=fused_attention)
    with _lock:
        if not _users:
            _stand_in()
        _users[thread] = way
    try:
        with way:
            yield way
    finally:
        with _lock:
            del _users[thread]
            if not _users:
                _stand_back()


class AsCuda(TorchFunctionMode):
    """Sends single calls another way; see `as_cuda`."""

    def __init__(self, *, fused_attention: bool) -> None:
        super().__init__()
        self._fused_attention = fused_attention
        self.num_dropouts = 0
        """Calls of dropout that were sent another way."""
        self.num_attentions = 0
        """Calls of attention that were."""
        self.num_casts = 0
        """Calls under autocast that were."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One call, by the name of what is called."""
        del types
        name = getattr(func, "__name__", "")
        if name in WAYS:
            return self.send(name, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def send(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """One call of one of `WAYS`."""
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
        """Dropout with a mask of booleans."""
        named = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
        rate = named.get("p", 0.5)
        is_training = named.get("training", named.get("train", True))
        drops = is_training and 0 < rate < 1 and not named.get("inplace")
        if not drops or not named["input"].numel():
            return func(*args, **kwargs)
        self.num_dropouts += 1
        return torch.native_dropout(named["input"], rate, train=True)[0]

    def _attention(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Attention by a fused kernel, where CUDA has one for it."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        named = dict(zip(names, args, strict=False)) | kwargs
        if named.get("dropout_p") and self._fused_attention and _has_kernel(named["query"]):
            self.num_attentions += 1
            named["dropout_p"] = 0.0
        return func(**named)


def use_foreach(optimizer: torch.optim.Optimizer) -> bool:
    """Let an optimizer work as it would on CUDA by default; whether that is another way than here.

    Optimizers without ``foreach``, and groups that chose for themselves, stay as they are.
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


def _stand_in() -> None:
    """Put the functions below into ``torch.nn.functional``, in the place of what is there."""
    for name in WAYS:
        _replaced[name] = getattr(F, name)
        setattr(F, name, _sent(name, _replaced[name]))


def _stand_back() -> None:
    for name, original in _replaced.items():
        setattr(F, name, original)
    _replaced.clear()


def _sent(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        way = _users.get(threading.get_ident())
        if way is None:
            return original(*args, **kwargs)
        return way.send(name, original, args, kwargs)

    return call
