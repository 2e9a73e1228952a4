"""What a training is made of, there and back."""

from __future__ import annotations

import linecache
import subprocess
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader, TensorDataset

from tests.integration.parallel.support import made
from workbench.experiment import Experiment
from workbench.parallel.transfer.job_pickle import PackingError, cells, pack, unpack


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.arange(16.0), persistent=False)
        self.also = self.table
        self.norm = nn.BatchNorm1d(16)
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.second(self.first(x)) + self.table))


def test_names_shapes_and_what_is_shared_arrive_and_weights_do_not(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Tied, optimizer="adamw")
    experiment.run(steps=2, wait=True)
    training = experiment._training
    training.detach_modes()
    pack(training, tmp_path / "payload")
    weights = sum(p.nbytes for p in experiment.model.parameters())
    assert weights > 1000
    back = unpack(tmp_path / "payload")
    assert back.model.second.weight is back.model.first.weight
    assert back.model.also is back.model.table
    for (name, ours), (also, plain) in zip(
        back.model.named_parameters(), experiment.model.named_parameters(), strict=True
    ):
        assert (name, ours.shape, ours.dtype) == (also, plain.shape, plain.dtype)
        assert ours.requires_grad == plain.requires_grad
    groups = back.optimizer.param_groups
    assert {id(p) for group in groups for p in group["params"]} <= set(
        map(id, back.model.parameters())
    )
    assert not back.optimizer.state
    assert experiment.optimizer.state, "what is here was touched"


def test_a_large_model_makes_a_small_payload(tmp_path: Path) -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(16, 100_000), nn.Linear(100_000, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(x))

    experiment = made(tmp_path / "runs", Large, optimizer="adamw")
    pack(experiment._training, tmp_path / "payload")
    assert (tmp_path / "payload").stat().st_size < 200_000


class Symmetric(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).T


def test_parametrized_layers_arrive_though_torch_pickles_none(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Tied)
    model = experiment.model
    parametrizations.weight_norm(model.head)
    parametrize.register_parametrization(model.second, "weight", Symmetric())
    pack(experiment._training, tmp_path / "payload")
    back = unpack(tmp_path / "payload").model
    assert list(back.state_dict()) == list(model.state_dict())
    assert type(back.head).__name__ == "ParametrizedLinear"
    assert isinstance(back.head, nn.Linear)
    back.load_state_dict(model.state_dict())
    back.table.copy_(model.table)
    x = torch.randn(4, 16)
    torch.testing.assert_close(back.eval()(x), model.eval()(x), rtol=0, atol=0)
    parametrize.remove_parametrizations(back.head, "weight")
    assert type(back.head) is nn.Linear
    assert type(model.head) is not nn.Linear, "what is here was touched"


def test_large_arrays_are_mapped_from_a_file_and_not_pickled(tmp_path: Path) -> None:
    inputs = torch.arange(400_000.0).view(-1, 16)
    labels = torch.arange(len(inputs)) % 5
    experiment = made(tmp_path / "runs", Tied, data=(inputs, labels))
    pack(experiment._training, tmp_path / "payload")
    assert (tmp_path / "payload").stat().st_size < 500_000
    assert (tmp_path / "array-0").stat().st_size == inputs.nbytes
    back, other = (unpack(tmp_path / "payload").cursor.source for _ in range(2))
    assert torch.equal(back.inputs, inputs)
    assert torch.equal(back.targets, labels)
    back.inputs.zero_()  # one rank's own copy of those pages: no other rank sees it
    assert torch.equal(other.inputs, inputs)
    assert torch.equal(unpack(tmp_path / "payload").cursor.source.inputs, inputs)


def test_a_loader_travels_without_its_persistent_workers(tmp_path: Path) -> None:
    inputs = torch.arange(32.0).reshape(16, 2)
    data = TensorDataset(inputs, torch.arange(16) % 2)
    loader = DataLoader(data, 4, num_workers=1, persistent_workers=True)
    experiment = Experiment(
        nn.Linear(2, 2), loader, order="loader", runs=tmp_path / "runs", device="cpu"
    )
    experiment.run(steps=6, wait=True)
    assert loader._iterator is not None
    pack(experiment._training, tmp_path / "payload")
    back: Any = unpack(tmp_path / "payload").cursor.source
    assert back.loader._iterator is None
    assert back.loader.num_workers == 1
    assert torch.equal(torch.cat([x for x, _ in back.loader]), inputs)
    experiment.close()


def test_cells_travel_with_their_source(tmp_path: Path) -> None:
    name = str(tmp_path / "ipykernel_1" / "42.py")
    lines = ["def forward(x):\n", "    return x\n"]
    linecache.cache[name] = (30, None, lines, name)
    try:
        assert cells()[name] == (30, None, lines, name)
    finally:
        del linecache.cache[name]
    assert __file__ not in cells()


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_code_keeps_the_name_of_its_file(tmp_path: Path) -> None:
    """By which a failure is shown at the line of its cell, closures and lambdas of it too."""
    source = "def make():\n    def inner(x):\n        return (lambda y: y)(x)\n    return inner"
    here: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<ipython-input-7>", "exec"), here)
    model = Tied()
    model.hook = here["make"]()
    experiment = made(tmp_path / "runs", lambda: model)
    experiment._training.detach_modes()
    pack(experiment._training, tmp_path / "payload")
    found = unpack(tmp_path / "payload").model.hook.__code__
    inner = [one for one in found.co_consts if isinstance(one, types.CodeType)]
    assert [one.co_filename for one in (found, *inner)] == 2 * ["<ipython-input-7>"]


@pytest.mark.parametrize(
    ("put", "where"),
    [
        (lambda exp: setattr(exp.model, "lock", threading.Lock()), "model.lock is a _thread.lock"),
        (
            lambda exp: setattr(exp.model.head, "log", [Holder(threading.Lock())]),
            r"model.head.log[0].value is a _thread.lock",
        ),
        (
            lambda exp: setattr(exp._training.cursor.source, "rows", (row for row in "ab")),
            "train.rows is a builtins.generator",
        ),
    ],
)
def test_what_cannot_be_pickled_is_named(put: Any, where: str, tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs")
    put(experiment)
    with pytest.raises(PackingError) as caught:
        pack(experiment._training, tmp_path / "payload")
    assert str(caught.value).startswith(where)
    assert not (tmp_path / "payload").exists()


def test_a_module_that_only_this_process_has_is_named(
    ran: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "only_here.py").write_text("from torch import nn\nclass Here(nn.Linear): pass\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import only_here\n"
        "from pathlib import Path\n"
        "from tests.integration.parallel.support import made\n"
        "from workbench.parallel.transfer.job_pickle import pack\n"
        "exp = made(Path(sys.argv[1]) / 'runs', lambda: only_here.Here(16, 5))\n"
        "sys.path.pop(0)\n"
        "pack(exp._training, Path(sys.argv[1]) / 'payload')\n"
    )
    done = ran(code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    with pytest.raises(PackingError, match="the module 'only_here' cannot be imported by a worker"):
        unpack(tmp_path / "payload")
