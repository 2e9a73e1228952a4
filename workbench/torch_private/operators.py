"""Classes of ``torch.ops`` and of operators that users define (`torch.library.custom_op`)."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.torch_private.lookup import Check, expect, is_missing, private

if TYPE_CHECKING:
    from torch._library import custom_ops
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
else:
    custom_ops = private("torch._library.custom_ops")
    HigherOrderOperator = private("torch._ops.HigherOrderOperator")
    OpOverload = private("torch._ops.OpOverload")
    OpOverloadPacket = private("torch._ops.OpOverloadPacket")

__all__ = [
    "CHECKS",
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


# -- checks ---------------------------------------------------------------------------------


def _check_classes() -> None:
    import torch

    add: Any = torch.ops.aten.add
    expect(isinstance(add, OpOverloadPacket), "an operator has another class")
    expect(isinstance(add.Tensor, OpOverload), "an overload has another class")
    expect(type(add).__module__ == OPERATORS, "operators are of another module")
    expect(not is_missing(HigherOrderOperator), "operators on functions have no class")


def _check_custom() -> None:
    listed: Any = custom_ops
    expect(hasattr(listed.OPDEFS, "values"), "custom operators are not listed")
    expect(hasattr(listed.CustomOpDef, "register_kernel"), "custom operators have no class")


def _check_schema() -> None:
    import torch

    add = torch.ops.aten.add_.Tensor
    expect(name_of(add) == "add_", "an operator has another name")
    written = [one.name for one in schema_arguments(add) if is_written(one)]
    expect(written == ["self"], f"add_ writes to {written}")


CHECKS = (
    Check(
        (
            "torch._ops.OpOverload",
            "torch._ops.OpOverloadPacket",
            "torch._ops.HigherOrderOperator",
        ),
        "operators among the attributes of a model",
        _check_classes,
    ),
    Check(
        ("torch._library.custom_ops.OPDEFS", "torch._library.custom_ops.CustomOpDef"),
        "operators that a cell defines",
        _check_custom,
    ),
    Check(("torch._ops.OpOverload._schema",), "what an operator writes to", _check_schema),
)
