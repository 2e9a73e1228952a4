"""What an experiment makes of a model that was given compiled.

No step is run here: it is about what is taken out of ``torch.compile(net)``, not about what
Inductor makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.saved_training import snapshot
from tests.unit.experiment.plain_loop import CLASSES, FEATURES, data, seeded, weights
from workbench.experiment import Experiment
from workbench.experiment.recipe.arguments import uncompiled
from workbench.modes.compile import mode as compiling
from workbench.modes.compile.toolchain import Missing


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def compiled(net: nn.Module) -> Any:
    return torch.compile(net, backend="eager")


@pytest.fixture(params=[True, False])
def has_toolchain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether this machine could compile; both are tried on any."""
    missing = Missing(why="There is no C++ compiler.", remedy="Install g++.", short="needs g++")
    found = None if request.param else missing
    monkeypatch.setattr(compiling, "missing_for_compile", lambda device: found)
    return request.param


def experiment(folder: Path, model: Any, **options: Any) -> Experiment:
    return Experiment(model, data(), device="cpu", runs=folder, **options)


def test_a_compiled_model_is_taken_out_of_its_wrapper(tmp_path: Path, has_toolchain: bool) -> None:
    net = seeded(Net)
    exp = experiment(tmp_path, compiled(net))
    assert exp.model is net
    assert exp.name == "Net"
    assert exp.modes == ("compile:whole" if has_toolchain else "fp32"), exp.modes
    plain = list(Net().state_dict())
    assert list(exp.model.state_dict()) == plain
    assert list(snapshot(exp._training)["model"]) == plain
    Net().load_state_dict(snapshot(exp._training)["model"])
    said = [note for note in exp.notes if "the model was given compiled" in note]
    assert len(said) == 1, exp.notes
    if not has_toolchain:
        assert "is trained without" in said[0]
    exp.close()


@pytest.mark.parametrize("modes", ["bf16", "compile", "compile:whole", "compile:blocks+bf16"])
def test_modes_that_are_given_with_it_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: str
) -> None:
    """A choice of regions is the person's; any other mode goes with whole."""
    monkeypatch.setattr(compiling, "missing_for_compile", lambda device: None)
    exp = experiment(tmp_path, compiled(seeded(Net)), modes=modes)
    alone = experiment(tmp_path, seeded(Net), modes=modes)
    expected = alone.modes if "compile" in modes else f"compile:whole+{alone.modes}"
    assert exp.modes == expected
    assert not any("given compiled" in note for note in alone.notes)
    exp.close()
    alone.close()


def test_an_optimizer_over_the_wrappers_parameters_is_over_the_models(tmp_path: Path) -> None:
    net = seeded(Net)
    wrapper = compiled(net)
    optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)
    exp = experiment(tmp_path, wrapper, optimizer=optimizer)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in net.parameters()}
    exp.close()


@pytest.mark.parametrize("made", [Net, lambda: compiled(Net())])
@pytest.mark.parametrize("given", [Net, lambda: compiled(Net())])
def test_a_hot_swap_carries_by_the_names_of_the_module(
    tmp_path: Path, given: Callable[[], Any], made: Callable[[], Any]
) -> None:
    exp = experiment(tmp_path, seeded(given))
    before, other = weights(exp.model), made()
    exp.model = other
    assert exp.model is uncompiled(other)
    assert type(exp.model) is Net
    assert [row.outcome for row in exp.carried] == ["carried"] * 4
    torch.testing.assert_close(weights(exp.model), before, rtol=0, atol=0)
    exp.close()


def test_what_is_not_compiled_stays_what_it_is() -> None:
    class OptimizedModule(nn.Linear):
        """Called like torch's own, and no wrapper."""

    net = Net()
    named = OptimizedModule(2, 2)
    assert uncompiled(net) is net
    assert uncompiled(named) is named
    assert uncompiled(None) is None
    assert uncompiled(compiled(net)) is net
