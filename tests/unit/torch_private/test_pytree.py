"""Nested containers, as torch walks them."""

from typing import NamedTuple

from workbench.torch_private.pytree import tree_leaves, tree_map, tree_map_only


class Batch(NamedTuple):
    inputs: list[int]
    labels: dict[str, object]


def test_what_is_inside() -> None:
    batch = Batch([1, 2], {"a": 3, "b": (4, None, "five")})
    assert [one for one in tree_leaves(batch) if one is not None] == [1, 2, 3, 4, "five"]
    assert tree_map(str, [1, (2,)]) == ["1", ("2",)]
    assert tree_map_only(int, lambda number: number + 1, batch).labels["b"] == (5, None, "five")
