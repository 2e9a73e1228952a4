"""Input, output and compute types of one operation.

Values and product may differ. ``tf32`` multiplies float32 values with 10 bits of mantissa.
torchao's tensors in 8 bits report their dtype as bfloat16, as which they can be used everywhere,
and are multiplied in the type that they hold; if the hardware has no such product, they report that
it is emulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.torch_private.dispatch import has_formula
from workbench.torch_private.pytree import tree_leaves

UNKNOWN = ""
MIXED = " + "
_CASTS = frozenset(("aten._to_copy", "aten.copy_", "aten.to"))
_MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "_unsafe_view", "alias", "clone", "contiguous", "copy_", "_to_copy", "to", "lift_fresh",
        "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones",
        "new_full", "new_empty_strided", "fill_", "zero_", "set_", "resize_", "record_stream",
        "_reshape_alias", "_local_scalar_dense", "is_same_size", "_foreach_zero_", "_foreach_copy_",
    )
)  # fmt: skip
"""Operations that pass on or store values and compute none."""
_ATTENTION = "aten._scaled_dot_product"
"""Prefix of fused attention, for which torch has no FLOP formula on a CPU."""
_HELD = ("_data", "qdata")
"""Attributes in which torchao's tensors keep their values in 8 bits."""


@dataclass(frozen=True)
class Types:
    """The types of one call, as text."""

    cast: bool
    takes: str
    gives: str
    computes: str
    emulated: bool


def types_of(operation: Any, args: Any, kwargs: Any, out: Any) -> Types | None:
    """Return the types of a call, or None if it computes nothing in floating point."""
    name = str(operation._overloadpacket)
    if operation.is_view:
        return None
    taken = _floats((args, kwargs))
    given = _floats(out)
    if not taken or not (given or has_formula(operation)):
        return None
    if name in _CASTS:
        return _cast(name, args, taken, given)
    if name in _MOVES:
        return None
    takes, gives = _words(taken), _words(given)
    if has_formula(operation) or name.startswith(_ATTENTION):
        computes, emulated = _product(operation, taken)
    else:
        # a number that became a tensor does not determine in which type the others are computed
        deciding = [one for one in taken if one.ndim] or taken
        computes = MIXED.join(sorted({_word(one) for one in (*deciding, *given)}))
        emulated = False
    return Types(
        cast=False, takes=takes, gives=gives, computes=computes, emulated=emulated
    )  # gives, computes, emulated)


def _cast(
    name: str, args: Any, taken: list[torch.Tensor], given: list[torch.Tensor]
) -> Types | None:
    source = args[1] if name == "aten.copy_" else taken[0]
    if not isinstance(source, torch.Tensor) or not given or source.dtype == given[0].dtype:
        return None
    return Types(
        cast=True,
        takes=_word(source),
        gives=_word(given[0]),
        computes=UNKNOWN,
        emulated=False,
    )


def _floats(values: Any) -> list[torch.Tensor]:
    return [
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
    ]


def _words(tensors: list[torch.Tensor]) -> str:
    return ", ".join(dict.fromkeys(map(_word, tensors)))


def _word(tensor: torch.Tensor) -> str:
    held = _held(tensor)
    return str((tensor if held is None else held).dtype).removeprefix("torch.")


def _held(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the 8-bit values inside one of torchao's tensors."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return None
    found = (getattr(tensor, name, None) for name in _HELD)
    return next((one for one in found if isinstance(one, torch.Tensor)), None)


def _product(operation: Any, taken: list[torch.Tensor]) -> tuple[str, bool]:
    """Return the type of the multiplied values, and whether the product is emulated.

    Only the first two matrices are multiplied: a bias has one dimension, and the other inputs and
    outputs of fused attention (the sums of its rows, in float32) are not.
    """
    eight = [one for one in taken if _held(one) is not None]
    if eight:
        words = sorted({_word(one) for one in eight})
        return MIXED.join(words), any(map(_is_emulated, eight))
    words = {_word(one) for one in [one for one in taken if one.ndim > 1][:2] or taken}
    if words == {"float32"}:
        return _float32_product(operation, taken[0].device.type), False
    return MIXED.join(sorted(words)), False


def _is_emulated(tensor: Any) -> bool:
    if str(getattr(tensor, "kernel_preference", "")).upper().endswith("EMULATED"):
        return True
    settings = getattr(tensor, "_linear_mm_config", None)
    parts = (getattr(settings, name, None) for name in ("output", "grad_input", "grad_weight"))
    return any(getattr(part, "emulate", False) for part in parts)


def _has_tf32() -> bool:
    """Whether the current GPU is from NVIDIA with compute capability 8.0 or higher."""
    return torch.version.cuda is not None and torch.cuda.get_device_capability() >= (8, 0)


def _float32_product(operation: Any, device: str) -> str:
    """Return ``float32``, or the type in which this process makes torch multiply float32."""
    of_convolution = "conv" in str(operation._overloadpacket)
    backends: Any = torch.backends
    if device == "cuda" and _has_tf32():
        chosen = (backends.cudnn.conv if of_convolution else backends.cuda.matmul).fp32_precision
    elif device == "cpu":
        chosen = (backends.mkldnn.conv if of_convolution else backends.mkldnn.matmul).fp32_precision
    else:
        return "float32"
    return str(chosen) if chosen in ("tf32", "bf16") else "float32"
