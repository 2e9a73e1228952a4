from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment.checkpoint.plain_values import DamagedError, NotPlainError, Reader, Writer


def stored(value: Any) -> Any:
    writer = Writer()
    text = json.dumps(writer.encode(value))
    return Reader(writer.tensors.__getitem__).decode(json.loads(text))


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.tuples(st.text())), inner),
        st.sets(st.integers(), max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    found = stored(value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.array([], dtype=np.float16),
        np.array(2.5),
        np.random.RandomState(3).get_state()[1],
        np.array([1 + 2j]),
        np.array([True, False]),
    ],
)
def test_an_array_comes_back_with_its_type(value: Any) -> None:
    found = stored(value)
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert found.tolist() == value.tolist()
    found[...] = 0  # it can be written to


@pytest.mark.parametrize("value", [np.float32(0.1), np.int64(-3), np.bool_(True)])
def test_a_number_of_numpy_comes_back_with_its_type(value: Any) -> None:
    assert type(stored(value)) is type(value)
    assert stored(value) == value


@pytest.mark.parametrize(
    "value",
    [Counter([1, 1, 2]), OrderedDict(b=1, a=2), torch.Size([2, 3]), torch.bfloat16,
     torch.device("cpu"), random.getstate(), {"a": {"b": (1, [2.5])}}, 1 << 100, -(1 << 64),
     float("inf"), 1e-320, 0.1 + 0.2, 3 - 4j, frozenset({1}), deque([1, 2], maxlen=5), deque(),
     {"$": 1, "v": 2}, {1: "a", None: "b"}],
)  # fmt: skip
def test_what_optimizers_and_schedules_keep_comes_back(value: Any) -> None:
    found = stored(value)
    assert found == value
    assert type(found) is type(value)


def test_tensors_come_back_without_their_graph() -> None:
    tensor = (torch.ones(3, requires_grad=True) * 2)[:2]
    found = stored({"a": tensor, "sparse": torch.eye(2).to_sparse()})
    assert found["a"].tolist() == [2.0, 2.0]
    assert not found["a"].requires_grad
    assert torch.equal(found["sparse"].to_dense(), torch.eye(2))


class Own:
    pass


@pytest.mark.parametrize(
    "value",
    [Own(), [Own()], {"a": Own()}, {Own: 1}, Path("a"), np.array([Own()]), np.array(["text"]),
     lambda: None, torch.nn.Parameter(torch.ones(1))],
)  # fmt: skip
def test_everything_else_is_kept_apart(value: Any) -> None:
    with pytest.raises(NotPlainError):
        Writer().encode(value)
    assert Writer().split({"one": value, "two": 2}) == ({"two": 2}, {"one": value})


@pytest.mark.parametrize(
    "value",
    [{"$": "eval", "v": "1"}, {"$": "tensor", "v": 3}, {"$": "dtype", "v": "load"}, {"$": "int"},
     {"$": "array", "v": ["O", [1], None]}, {"$": "dict", "v": [[{"$": "set", "v": []}, 1]]},
     {"$": [1], "v": 1}, {"$": "deque", "v": 3}, {"$": "size", "v": ["a"]}],
)  # fmt: skip
def test_what_it_did_not_write_is_refused(value: Any) -> None:
    with pytest.raises(DamagedError):
        Reader([].__getitem__).decode(value)
