"""A model whose code was mended after it had failed: what is said, and what is swapped in.

Cells are executed in a ``__main__`` of the test's own, as IPython executes a notebook's.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from workbench.experiment import Experiment, RunError
from workbench.panel.channel.commands import execute

IMPORTS = "import torch\nfrom torch import nn\n"
NET = """
class Net(nn.Module):
    def __init__(self{given}):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = self.made()

    def made(self):
        return nn.Linear({width}, 2)

    def forward(self, x):
        return self.last(self.first(x).relu())
"""
BROKEN, MENDED = NET.format(given="", width=16), NET.format(given="", width=8)


class Cells:
    """A notebook without a kernel."""

    def __init__(self, main: ModuleType) -> None:
        self.space: dict[str, Any] = main.__dict__
        self.run(IMPORTS)

    def run(self, *codes: str) -> None:
        for code in codes:
            exec(code, self.space)

    def failed(self, model: str = "Net()", **settings: Any) -> Experiment:
        """An experiment whose first step has failed."""
        x, y = torch.randn(64, 4), torch.arange(64) % 2
        made = eval(model, self.space)
        exp = Experiment(made, (x, y), batch_size=16, device="cpu", epochs=1, **settings)
        exp.run()
        with pytest.raises(RunError, match=r"cannot be multiplied"):
            exp.wait()
        assert exp.newer_model is None
        return exp


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return Cells(main)


def swapped(exp: Experiment) -> Experiment:
    """As the panel's button does it."""
    execute(exp, "swap_in", {})
    exp.wait()
    return exp


def test_resuming_with_what_init_has_built_fails_and_says_so(cells: Cells) -> None:
    cells.run(BROKEN)
    exp = cells.failed()
    cells.run(MENDED)
    assert exp.newer_model is not None
    assert exp.newer_model.text == (
        "The model that failed is the old one: Net would build it differently now."
    )
    assert exp.newer_model.code == "exp.model = Net()"
    exp.resume_from_failure()
    with pytest.raises(RunError, match=r"differently now\. exp\.model = Net\(\)$"):
        exp.wait()
    first = exp.model.first  # pyright: ignore[reportAttributeAccessIssue]
    assert swapped(exp).status == "finished"
    assert exp.step_count == 4
    assert exp.newer_model is None
    assert {row.outcome for row in exp.carried if row.name.startswith("first")} == {"carried"}
    assert exp.model.first is not first  # pyright: ignore[reportAttributeAccessIssue]


def test_what_has_the_name_of_the_old_one_is_swapped_in(cells: Cells) -> None:
    cells.run(NET.format(given=", *, depth", width=16), "model = Net(depth=1)")
    exp = cells.failed("model")
    cells.run(NET.format(given=", *, depth", width=8))
    assert exp.newer_model is not None
    assert exp.newer_model.code == ""
    assert exp.newer_model.text.endswith("Swap in a new one: exp.model = Net(...)")
    with pytest.raises(RuntimeError, match=r"Swap in a new one: exp\.model = Net\(\.\.\.\)"):
        execute(exp, "swap_in", {})
    cells.run("model = Net(depth=1)")
    assert exp.newer_model.code == "exp.model = model"
    assert swapped(exp).model is cells.space["model"]
    assert exp.status == "finished"


def test_an_instance_of_the_new_class_is_found_by_whatever_name(cells: Cells) -> None:
    cells.run(BROKEN)
    exp = cells.failed()
    cells.run(MENDED, "better = Net()")
    assert exp.newer_model is not None
    assert exp.newer_model.code == "exp.model = better"
    cells.run("another = Net()")
    assert exp.newer_model is not None
    assert exp.newer_model.code == "exp.model = Net()", "neither is preferred to the other"


def test_a_model_without_a_class_of_its_own_is_found_by_its_name(cells: Cells) -> None:
    cell = "model = nn.Sequential(nn.Linear(4, 8), nn.Linear({}, 2))"
    cells.run(cell.format(16))
    exp = cells.failed("model")
    cells.run(cell.format(8))
    assert exp.newer_model is not None
    assert exp.newer_model.text == (
        "The model that failed is the old one: model is another Sequential now."
    )
    assert swapped(exp).status == "finished"


def test_a_block_inside_is_looked_at_too(cells: Cells) -> None:
    cells.run(BROKEN, "model = nn.Sequential(nn.Identity(), Net())")
    exp = cells.failed("model")
    cells.run(MENDED)
    assert exp.newer_model is not None
    assert exp.newer_model.text == (
        "The model that failed is the old one: Net would build it differently now. "
        "Swap in a new one: exp.model = Sequential(...)"
    )


@pytest.mark.parametrize(
    "edit",
    [
        ("", "\n\n\n"),
        ("self.last(self.first(x).relu())", "self.first(x)[:, :2]"),
        ("    def forward", "    '''Says more.'''\n\n    def forward"),
    ],
    ids=["its place", "forward", "a text"],
)
def test_what_builds_the_same_is_not_newer(cells: Cells, edit: tuple[str, str]) -> None:
    cells.run(BROKEN)
    exp = cells.failed()
    cells.run(BROKEN.replace(*edit, 1))
    assert exp.newer_model is None


def test_a_mended_forward_is_taken_without_a_swap(cells: Cells) -> None:
    cells.run(BROKEN)
    exp = cells.failed()
    cells.run(BROKEN.replace("self.last(self.first(x).relu())", "self.first(x)[:, :2]"))
    exp.resume_from_failure()
    exp.wait()
    assert exp.status == "finished"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("WIDTH = 16", "WIDTH = 8"),
        ("@staticmethod\n    def width(): return 16", "@staticmethod\n    def width(): return 8"),
    ],
)
def test_what_init_reads_of_the_class_counts(cells: Cells, before: str, now: str) -> None:
    use = "self.width()" if "def width" in before else "self.WIDTH"
    code = NET.format(given="", width=use).replace("    def __init__", "    {}\n    def __init__")
    cells.run(code.replace("{}", before))
    exp = cells.failed()
    cells.run(code.replace("{}", now))
    assert exp.newer_model is not None
    assert swapped(exp).status == "finished"


@pytest.mark.parametrize("again", ["reload", "autoreload"])
def test_a_class_of_a_persons_file_that_is_loaded_again(
    cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """`importlib.reload` makes a new class; autoreload gives the old one the new functions."""
    file = tmp_path / "their_net.py"
    file.write_text(IMPORTS + BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_net", raising=False)
    module: Any = importlib.import_module("their_net")
    cells.run("from their_net import Net")
    exp = cells.failed()
    old = module.Net
    file.write_text(IMPORTS + MENDED + "# another size: the cache of its code is stale\n")
    importlib.reload(module)
    if again == "autoreload":
        for name in ("__init__", "made"):
            getattr(old, name).__code__ = getattr(module.Net, name).__code__
        module.Net = old
    assert exp.newer_model is not None
    assert exp.newer_model.code == "exp.model = Net()"
    assert swapped(exp).status == "finished"


def test_a_new_class_that_cannot_be_built_says_why(cells: Cells) -> None:
    cells.run(BROKEN)
    exp = cells.failed()
    cells.run(MENDED.replace("return nn.Linear(8, 2)", "raise ValueError('not yet')"))
    with pytest.raises(ValueError, match="not yet"):
        exp.swap_in_newer_model()
    assert exp.status == "exception"


def test_a_non_finite_batch_is_replayed_with_the_newer_model(cells: Cells) -> None:
    code = BROKEN.replace("Linear(16", "Linear(8").replace(".relu())", ".relu()) * self.scale")
    code = code.replace("self.last = ", "self.scale = {}\n        self.last = ")
    cells.run(code.format("float('inf')"))
    x, y = torch.randn(64, 4), torch.arange(64) % 2
    model = cells.space["Net"]()
    exp = Experiment(model, (x, y), batch_size=16, device="cpu", epochs=1)
    exp.run()
    with pytest.raises(RunError, match="NaN"):
        exp.wait()
    assert exp.status == "nan"
    cells.run(code.format("1.0"))
    assert swapped(exp).step_count == 4, "no batch is left out"


def test_there_is_none_without_a_failure(cells: Cells) -> None:
    cells.run(MENDED)
    x, y = torch.randn(64, 4), torch.arange(64) % 2
    exp = Experiment(cells.space["Net"](), (x, y), batch_size=16, device="cpu")
    cells.run(NET.format(given="", width=9))
    assert exp.newer_model is None
    with pytest.raises(RuntimeError, match="no newer model"):
        exp.swap_in_newer_model()
