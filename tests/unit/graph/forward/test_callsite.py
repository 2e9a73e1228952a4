"""A warning in a graph block names the line that it names outside of one."""

from __future__ import annotations

import inspect
import traceback
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb


def from_cpp(x):
    return (x * 1).grad


def from_cpp_method(x):
    return torch.tensor(x)


def from_python(x):
    return F.softmax(x)


def from_python_deeper(x):
    return F.mse_loss(x, torch.ones(2, 3))


WARNING = (from_cpp, from_cpp_method, from_python, from_python_deeper)


def where(function, x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function(x)
    return [(one.filename, one.lineno, one.category, str(one.message)) for one in seen]


@pytest.mark.parametrize("function", WARNING, ids=lambda one: one.__name__)
def test_a_warning_names_the_users_line(function):
    x = torch.ones(3, requires_grad=True)
    outside = where(function, x)
    with wb.graph(nn.Linear(3, 3)):
        inside = where(function, x)
    line = inspect.getsourcelines(function)[1] + 1
    assert inside == outside
    assert [found[:2] for found in inside] == [(__file__, line)]


def test_two_lines_that_warn_are_both_shown_where_python_shows_a_line_once():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        with wb.graph(nn.Linear(3, 3)):
            for _ in range(2):
                F.softmax(torch.ones(3))
                F.softmax(torch.ones(3))
    assert len({one.lineno for one in seen}) == len(seen) == 2


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 3), (2, 3))])
def test_an_error_shows_the_users_line_once(shapes):
    a, b = map(torch.ones, shapes)
    with pytest.raises(RuntimeError) as caught, wb.graph(nn.Linear(3, 3)):
        a @ b
    own = [frame for frame in traceback.extract_tb(caught.tb) if frame.filename == __file__]
    assert [frame.line for frame in own] == ["a @ b"]
    assert caught.value.__context__ is None


def test_an_error_inside_a_function_of_torch_shows_where_it_happened():
    said = pytest.raises(ValueError, match="Expected input batch_size")
    with said as caught, wb.graph(nn.Linear(3, 3)):
        F.cross_entropy(torch.ones(2, 3), torch.ones(4, dtype=torch.long))
    assert traceback.extract_tb(caught.tb)[-1].name == "cross_entropy"
