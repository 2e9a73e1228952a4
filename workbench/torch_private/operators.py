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
"""Module of their classes."""
MODULES = (OPERATORS, "torch._classes")
"""Modules of the classes of ``torch.ops`` and ``torch.classes``."""


def schema_arguments(operator: Any) -> list[Any]:
    """Return the arguments in an operator's schema, which have ``name`` and ``alias_info``."""
    return operator._schema.arguments


def name_of(operator: Any) -> str:
    """Return ``add_`` for ``aten::add_``."""
    return operator._schema.name.split("::")[1]


def is_written(argument: Any) -> bool:
    """Return whether an operator writes to this argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write
