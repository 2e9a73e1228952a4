"""What is known of compiled code outlives torch's cache of it; where it does not, that is said."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import workbench as wb
from tests.unit.graph.compiled_models import Images, columns, inside, loss_of
from workbench.experiment import Experiment
from workbench.graph.capture import compiled_regions


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A folder for what Inductor makes, of which tests may share what a C++ compiler made."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture
def cold_cache(kernels, monkeypatch):
    """An empty cache of graphs and their code, and no threads of Inductor's that would stay."""
    from torch._inductor import config
    from torch._inductor.utils import clear_caches

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(kernels))
    for graphs in ("aotautograd", "fxgraph"):
        shutil.rmtree(kernels / graphs, ignore_errors=True)
    clear_caches()
    with config.patch(compile_threads=1):
        yield
    clear_caches()


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 2), nn.Sigmoid()))


def test_inductor_and_its_cache_keep_what_is_known(cold_cache):
    model, x = two_layers(), torch.randn(4, 3)
    compiled_regions.watch_compiler()
    found = []
    for _ in range(2):  # the second time from the cache on disk
        step = torch.compile(model)
        compiled_regions.watch_compiler()
        for _ in range(2):  # before the first backward, and after it
            loss = loss_of(step, x)
            record = wb.graph(loss, model=model).record
            loss.backward()
            found.append(columns(record))
            assert not any("compiled" in note for note in record.notes)
        torch._dynamo.reset()
    assert {path for *_, (_, path), _, _ in found[0]} >= {"0", "1.0", "1.1"}
    assert found[0] == found[1] == found[2] == found[3]
    assert counters["aot_autograd"]["autograd_cache_hit"] >= 1


def test_what_torch_dropped_is_said(cold_cache, monkeypatch):
    def refuse(_graph):
        raise RuntimeError

    model, x = two_layers(), torch.randn(4, 3)
    monkeypatch.setattr(compiled_regions, "plain_graph", refuse)
    step = torch.compile(model)
    unwatch(monkeypatch)
    loss_of(step, x).backward()
    live = wb.graph(loss_of(step, x), model=model).record
    torch._dynamo.reset()
    cached = wb.graph(loss_of(torch.compile(model), x), model=model).record
    for record in (live, cached):
        assert {path for _, path in inside(record)} == {""}
        assert sum("torch dropped their modules" in note for note in record.notes) == 1
    assert [op for op, _ in inside(live)] == [op for op, _ in inside(cached)]
    np.testing.assert_array_equal(live.link_from, cached.link_from)
    np.testing.assert_array_equal(live.link_to, cached.link_to)
    np.testing.assert_array_equal(live.inner_ends, cached.inner_ends)


def unwatch(monkeypatch):
    """As if Workbench had not been there when the region was compiled."""
    from torch._functorch._aot_autograd import aot_autograd_result, graph_compile

    plain = aot_autograd_result.serialize_graph_module
    monkeypatch.setattr(graph_compile, "serialize_graph_module", plain)


def test_an_experiment_that_compiles_its_blocks(tmp_path):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(64, 3, 8, 8), torch.zeros(64).long())
    model = Images()
    experiment = Experiment(model, data, batch_size=8, modes="compile", runs=tmp_path)
    try:
        first = wb.graph(experiment).record
        experiment.step(5)
        later = wb.graph(experiment).record
    finally:
        experiment.close()
    assert {path for _, path in inside(first)} >= {f"blocks.{n}.norm" for n in range(3)}
    assert columns(first) == columns(later)
