"""Compiled code runs as it always does while it is recorded, and its buffers are seen."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import PyCodeCache

from workbench.memory import memory
from workbench.memory.recording.undispatched_memory import OP, undispatched_memory
from workbench.modes.compile.toolchain import missing_for_compile
from workbench.records import CATEGORIES, MemoryRecord
from workbench.torch_private.memory import generated_modules

MISSING = missing_for_compile(torch.device("cpu"))
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING.why if MISSING else "")


@pytest.fixture(scope="module", autouse=True)
def _inductors_threads():
    """Inductor keeps a pool of threads for good; start them all before a test is watched."""
    if get_compile_threads() == 1:
        return
    pool = AsyncCompile.pool()
    barrier = threading.Barrier(pool._max_workers)
    list(pool.map(lambda _: barrier.wait(timeout=120), range(pool._max_workers)))


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4)
    )


def train(net: nn.Module, steps: int, captured: set[int]) -> tuple[list[float], list[MemoryRecord]]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(3))
    losses, records = [], []
    for number in range(steps):
        optimizer.zero_grad()
        if number in captured:
            with memory() as mem:
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
            records.append(mem.record)
        else:
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses, records


def test_recording_recompiles_nothing_and_changes_no_loss():
    expected, _ = train(torch.compile(model()), 6, set())
    plain = copy.deepcopy(dict(counters))
    torch._dynamo.reset()
    counters.clear()
    losses, records = train(torch.compile(model()), 6, {2, 4})
    assert losses == expected
    assert len(records) == 2
    assert counters["frames"] == plain["frames"] == {"total": 1, "ok": 1}
    assert counters["stats"]["unique_graphs"] == plain["stats"]["unique_graphs"] == 1
    assert not counters["recompiles"]


def test_a_capture_after_warm_up_adds_no_frame():
    net = torch.compile(model())
    train(net, 2, set())
    before = copy.deepcopy(dict(counters))
    train(net, 3, {1})
    assert dict(counters) == before


def test_the_first_call_may_be_compiled_while_recorded():
    expected, _ = train(torch.compile(model()), 3, set())
    torch._dynamo.reset()
    losses, records = train(torch.compile(model()), 3, {0})
    assert losses == expected
    assert records[0].peak_bytes > 0


def test_buffers_of_compiled_code_are_counted_and_told_apart():
    net = torch.compile(model())
    train(net, 2, set())
    _, (record,) = train(net, 1, {0})
    assert OP in record.strings
    assert "activations" in {CATEGORIES[c] for c in record.block_category}
    unknown = record.block_category == CATEGORIES.index("unknown")
    assert not unknown.any()


class Residual(nn.Module):
    """A block of the user's own: torch's containers stay eager when compiled in place."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def test_compiled_blocks_keep_their_module_paths_and_user_lines():
    torch.manual_seed(0)
    net = nn.Sequential(Residual(), Residual(), nn.Linear(16, 4))
    net[1].compile()
    train(net, 2, set())
    assert counters["stats"]["unique_graphs"] == 1
    before = copy.deepcopy(dict(counters))
    _, (record,) = train(net, 1, {0})
    assert dict(counters) == before
    buffers = (record.block_op == record.strings.index(OP)).nonzero()[0]
    assert {record.strings[record.block_module[row]] for row in buffers} == {"1"}
    assert {source.filename for source in record.sources} <= {__file__}


def test_dynamo_compiles_nothing_of_ours_where_it_leaves_a_region_eager():
    # a container compiled in place runs eagerly with Dynamo looking at every Python call
    net = model()
    net.compile()
    train(net, 2, set())
    before = copy.deepcopy(dict(counters))
    train(net, 1, {0})
    assert dict(counters) == before


def test_a_wrapped_models_paths_are_the_users_own():
    net = torch.compile(model())
    train(net, 2, set())
    _, (record,) = train(net, 1, {0})
    assert "0.weight" in record.strings
    assert all("_orig_mod" not in name for name in record.strings)


def test_the_generated_modules_are_left_as_they_were():
    net = torch.compile(model())
    train(net, 1, set())
    before = [vars(module).get("empty_strided_cpu") for module in generated_modules()]
    assert any(before)
    resize = vars(torch.UntypedStorage).get("resize_")  # torch's own MemTracker leaves one behind
    with undispatched_memory():
        assert [vars(m).get("empty_strided_cpu") for m in generated_modules()] != before
    assert [vars(m).get("empty_strided_cpu") for m in generated_modules()] == before
    assert vars(torch.UntypedStorage).get("resize_") is resize


def test_inductor_still_binds_its_allocator_by_name_in_every_module():
    net = torch.compile(model())
    train(net, 1, set())
    assert isinstance(PyCodeCache.modules, list)
    assert any(hasattr(module, "empty_strided_cpu") for module in PyCodeCache.modules)


def test_a_resized_storage_is_seen_at_once():
    with memory() as mem:
        tensor = torch.zeros(256)
        storage = tensor.untyped_storage()
        storage.resize_(0)
        torch.zeros(1)
        storage.resize_(2048)
    totals = mem.record.series().sum(axis=0).tolist()
    assert totals == [0, 1024, 0, 4, 0, 2048]
