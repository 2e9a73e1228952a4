from __future__ import annotations

import numpy as np

from workbench.graph.core.module_owners import NOWHERE, OUTSIDE, ModuleTree, owners_by_sequence
from workbench.records import GraphModule

TREE = ModuleTree(
    [
        GraphModule(path="", cls="Net", parent=-1, forward_s=None),
        GraphModule(path="a", cls="Block", parent=0, forward_s=None),
        GraphModule(path="a.conv", cls="Conv2d", parent=1, forward_s=None),
        GraphModule(path="b", cls="Block", parent=0, forward_s=None),
        GraphModule(path="other", cls="Net", parent=-1, forward_s=None),
    ]
)


def test_the_last_change_at_or_before_a_number_owns_it():
    # the model runs from 10, its child from 12 to 14; two changes at one number: the later one
    owners = owners_by_sequence(
        np.array([-1, 9, 10, 11, 12, 13, 14, 20]), at=[10, 12, 14, 14], owner=[0, 1, 0, OUTSIDE]
    )
    assert owners.tolist() == [NOWHERE, NOWHERE, 0, 0, 1, 1, OUTSIDE, OUTSIDE]


def test_no_trace_knows_nothing():
    assert owners_by_sequence(np.array([3, 4]), [], []).tolist() == [NOWHERE, NOWHERE]


def test_the_smallest_module_that_contains_several():
    assert TREE.common([2, 1]) == 1
    assert TREE.common([2, 3]) == 0
    assert TREE.common([2, 4]) == NOWHERE
    assert TREE.container(2) == 1
    assert TREE.container(0) == 0
