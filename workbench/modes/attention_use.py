"""Whether a model calls ``scaled_dot_product_attention``, read from its code without running it.

The bytecode of every method of every module class is searched for the call, following helper
functions that the user's code calls. Bytecode exists for notebook cells too, where source text may
not be available. Libraries that select their attention function by name (Hugging Face Transformers)
are queried through their configuration. If a module's code cannot be read (TorchScript, C++), the
answer is *unknown*, and nothing is claimed.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any, Literal

from torch import nn
from torch.nn import functional

Answer = Literal["yes", "no", "unknown"]

_CALL = "scaled_dot_product_attention"
_MAX_DEPTH = 4
"""Depth of calls to which helper functions are followed."""

_TORCH_USERS = (nn.MultiheadAttention,)
"""torch's own modules that compute attention; `nn.Transformer*` are built from them."""


def calls_sdpa(model: nn.Module) -> Answer:
    """Whether some module of ``model`` can reach ``scaled_dot_product_attention``."""
    answers = {_module_answer(module) for module in model.modules()}
    if "yes" in answers:
        return "yes"
    return "unknown" if "unknown" in answers else "no"


def configured_attention(model: nn.Module) -> str:
    """The attention a Hugging Face model was built with (``eager``), ``""`` for other models."""
    for module in model.modules():
        chosen = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if isinstance(chosen, str):
            return chosen
    return ""


def _module_answer(module: nn.Module) -> Answer:
    if isinstance(module, _TORCH_USERS):
        return "yes"
    if type(module).__module__.startswith("torch.nn."):
        return "no"
    seen: set[types.CodeType] = set()
    found = False
    for function in _methods(module):
        found = found or _reaches(function, seen, _MAX_DEPTH)
    if found:
        return "yes"
    forward = inspect.getattr_static(module, "forward", None)
    return "no" if isinstance(forward, types.FunctionType) else "unknown"


def _methods(module: nn.Module) -> Iterator[types.FunctionType]:
    for cls in type(module).__mro__:
        if cls.__module__.startswith("torch."):
            continue
        for value in vars(cls).values():
            if isinstance(value, types.FunctionType):
                yield value
    own = module.__dict__.get("forward")
    if isinstance(own, types.FunctionType):
        yield own


def _reaches(function: types.FunctionType, seen: set[types.CodeType], depth: int) -> bool:
    names = set(_names(function.__code__, seen))
    if _CALL in names:
        return True
    values = [function.__globals__.get(name) for name in names]
    return any(_is_sdpa(value, seen, depth) for value in [*values, *_closed_over(function)])


def _is_sdpa(value: Any, seen: set[types.CodeType], depth: int) -> bool:
    if value is functional.scaled_dot_product_attention:
        return True
    if depth == 0 or not isinstance(value, types.FunctionType) or value.__code__ in seen:
        return False
    if (value.__module__ or "").startswith("torch."):  # None for code that was run in a bare dict
        return value is functional.multi_head_attention_forward
    return _reaches(value, seen, depth - 1)


def _names(code: types.CodeType, seen: set[types.CodeType]) -> Iterator[str]:
    seen.add(code)
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, seen)


def _closed_over(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a cell that is filled later
            continue
