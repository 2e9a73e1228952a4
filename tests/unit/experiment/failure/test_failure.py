"""An exception as a record: the user's line, the values on it, and nothing run to find them."""

from __future__ import annotations

import torch
from torch import nn

from workbench.experiment.failure.failure import failure_of
from workbench.experiment.failure.values import describe
from workbench.experiment.state.user_code import is_own_file, is_user_file
from workbench.records import Failure, source_line


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.exit = nn.Linear(4, 2)
        self.width = 7
        self.looked_at = 0

    @property
    def costly(self) -> int:
        self.looked_at += 1
        return 1

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        scale = 2.0
        return self.exit(h.mean((1, 2)) * scale * self.width * self.costly)


def failure_in(call: object) -> Failure:
    try:
        call()  # type: ignore[operator]
    except Exception as error:
        return failure_of(error, step=3)
    raise AssertionError("it did not fail")


def test_the_users_line_comes_first_and_values_are_read_not_computed() -> None:
    net = Net()
    failure = failure_in(lambda: net(torch.zeros(5, 3, 3, dtype=torch.bfloat16)))
    assert failure.title == "test_failure.py:28: RuntimeError"
    assert failure.scope == "Net.forward"
    assert failure.source is not None
    assert failure.source.text.startswith("return self.exit(h.mean(")
    values = {fact.label: fact.value for fact in failure.values}
    assert values["h"] == "[5, 3, 3] bf16"
    assert values["scale"] == "2.0"
    assert values["width"] == "7"
    assert values["exit.weight"] == "[2, 4] fp32"
    assert "costly" not in values
    assert net.looked_at == 1, "the property was run again to describe the failure"
    assert [line.line for line in failure.code] == [26, 27, 28, 29, 30]


def test_causes_are_in_the_text_and_user_frames_are_marked() -> None:
    def outer() -> None:
        try:
            torch.zeros(2).reshape(3)
        except RuntimeError as error:
            raise ValueError("while shaping") from error

    failure = failure_in(outer)
    assert failure.message == "while shaping"
    first, second = failure.traceback.split("\nand then:\n\n")
    assert "RuntimeError: shape '[3]' is invalid" in first
    assert "ValueError: while shaping" in second
    assert all(line.startswith(">") for line in second.splitlines() if ", in " in line)


def test_an_exception_without_a_line_of_the_users() -> None:
    failure = failure_of(SystemExit(3), step=1)
    assert failure.title == "SystemExit"
    assert failure.source is None
    assert failure.code == ()
    assert failure.subtitle == "Step 1 was not applied. Weights are as they were given."


def test_whose_file_it_is() -> None:
    import json

    assert is_user_file(__file__)
    assert is_user_file("/tmp/ipykernel_12/345.py")
    assert is_user_file("<ipython-input-3-abc>")
    assert not is_user_file(torch.__file__)
    assert not is_user_file(json.__file__)
    assert not is_user_file("<frozen importlib._bootstrap>")
    assert not is_user_file(failure_of.__code__.co_filename)
    assert is_own_file(failure_of.__code__.co_filename)


def test_a_source_line_has_its_text() -> None:
    line = source_line(__file__, 1, "<module>")
    assert (line.cell, line.function) == (None, "")
    assert line.text.startswith('"""An exception as a record')
    assert line.label == "test_failure.py:1"


def test_values_are_short() -> None:
    assert describe(torch.zeros(2, 3, dtype=torch.int64)) == "[2, 3] int64"
    assert describe("x" * 100).endswith("(100 characters)")
    assert describe([1, 2]) == "list of 2"
    assert describe(object()) == ""
