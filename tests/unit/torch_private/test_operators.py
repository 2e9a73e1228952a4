"""What operators say of themselves."""

import torch

from workbench.torch_private import operators


def test_names_and_what_is_written() -> None:
    add = torch.ops.aten.add_.Tensor
    assert operators.name_of(add) == "add_"
    written = {one.name for one in operators.schema_arguments(add) if operators.is_written(one)}
    assert written == {"self"}
    plain = torch.ops.aten.add.Tensor
    assert not any(map(operators.is_written, operators.schema_arguments(plain)))


def test_their_classes() -> None:
    assert isinstance(torch.ops.aten.add.Tensor, operators.OpOverload)
    assert isinstance(torch.ops.aten.add, operators.OpOverloadPacket)
    assert isinstance(torch.ops.higher_order.cond, operators.HigherOrderOperator)
    assert type(torch.ops.aten.add).__module__ == operators.OPERATORS
    assert type(torch.ops).__module__ in operators.MODULES
    assert type(torch.classes).__module__ in operators.MODULES


def test_one_that_a_user_defines_is_listed() -> None:
    @torch.library.custom_op("workbench_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    assert isinstance(twice, operators.custom_ops.CustomOpDef)
    assert operators.custom_ops.OPDEFS["workbench_tests::twice"] is twice
