"""With a torch that lacks a private name, nothing is wrong in silence.

Training gives plain PyTorch's numbers or says why it cannot; a capture has a note that names what
is missing, or says that there is none and why; whatever does not need the name is as ever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from workbench.torch_private.self_check import FILES, Feature, checks_of

FEATURES: tuple[Feature, ...] = ("training", "graphs", "memory", "types")
SHOWN = {
    "training": ("training",),
    "graphs": ("graph of a loss", "graph of a step"),
    "memory": ("memory",),
    "types": ("types",),
}


def names_of(feature: Feature) -> set[str]:
    checks = [check for file in FILES[feature] for check in checks_of(file)]
    return {
        name for check in checks if feature in (check.concerns or [feature]) for name in check.names
    }


NAMES = sorted(set().union(*map(names_of, FEATURES)))
SOME = (
    "torch._foreach_copy_",
    "torch.autograd.graph._engine_run_backward",
    "torch.overrides._get_current_function_mode_stack",
    "torch._C.TensorBase._version",
    "torch.autograd.graph.Node._input_metadata",
    "torch.autograd.function.BackwardCFunction._forward_cls",
    "torch._C._current_autograd_node",
    "torch.utils.flop_counter.flop_registry",
)
"""Of each kind one: with a slower way, one of each feature, vital and not."""


@cache
def sessions(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What became of a session without each name; "" with all of them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.another_torch", "", *names],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


def test_with_all_names_nothing_is_said() -> None:
    found = sessions(SOME)[""]
    assert found["training"] == found["plain"]
    assert found["notes"] == []
    assert not says_so(found)
    assert len(found["own loop"]) == 3


@pytest.mark.parametrize("name", SOME)
def test_without_a_name_nothing_is_wrong_in_silence(name: str) -> None:
    found = sessions(SOME)
    assert isinstance(found[name]["plain"], list), "torch itself cannot do without it"
    judge(found[name], found[""])


@pytest.mark.fuzz
@pytest.mark.parametrize("name", NAMES)
def test_without_any_name_nothing_is_wrong_in_silence(name: str) -> None:
    found = sessions(tuple(NAMES))
    if isinstance(found[name]["plain"], str):
        pytest.skip(f"torch itself cannot do without it: {found[name]['plain']}")
    judge(found[name], found[""])


def judge(found: dict[str, Any], whole: dict[str, Any]) -> None:
    """Compare a session without a name to one with all of them."""
    name, trains = found["name"], isinstance(found["training"], list)
    for feature in FEATURES:
        uses = name in names_of(feature)
        for shown in SHOWN[feature]:
            result = found[shown]
            if not uses and (result == whole[shown] or says_so(result)):
                continue
            if isinstance(result, str):
                assert name in result or not trains, shown
            elif shown == "training":
                assert result == found["plain"]
                assert any(name in note for note in found["training notes"])
            else:
                assert any(name in note for note in result), shown
    if isinstance(found["own loop"], str):
        assert name in found["own loop"]
    else:
        assert found["own loop"] == whole["own loop"]
        warned = any(name in text for text in found["own loop's warnings"])
        assert warned or name not in names_of("training")
    if trains:
        assert any(name in note for note in found["notes"])
        assert found["losses after"] == whole["losses after"]
    else:
        assert name in found["training"]


def says_so(result: Any) -> bool:
    return "tested with torch" in str(result)
