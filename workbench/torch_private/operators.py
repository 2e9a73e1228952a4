"""Classes of ``torch.ops`` and of operators that users define (`torch.library.custom_op`)."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

from torch._library import custom_ops
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = [
    "MODULES",
    "OPERATORS",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "custom_ops",
    "is_written",
    "name_of",
    "schema_arguments",
]

OPERATORS = "torch._ops"
"""The module of their classes."""
MODULES = (OPERATORS, "torch._classes")
"""Modules of the classes that ``torch.ops`` and ``torch.classes`` are."""


def schema_arguments(operator: Any) -> list[Any]:
    """The arguments of an operator as its schema has them: ``name``, ``alias_info``."""
    return operator._schema.arguments


def name_of(operator: Any) -> str:
    """``add_`` of ``aten::add_``."""
    return operator._schema.name.split("::")[1]


def is_written(argument: Any) -> bool:
    """Whether an operator writes into this argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write
