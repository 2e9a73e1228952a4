"""What a forward changes in modules is put back, whatever way it was changed in."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.plain_loop import BATCH, CLASSES, FEATURES, Pair, batches, data, seeded
from workbench.experiment import Experiment, RunError
from workbench.experiment.state.module_state import MAX_BYTES, ModuleState, held_bytes

LARGE = MAX_BYTES // 4 + 1
"""Numbers of a float32 tensor that is a little larger than what is copied in every step."""


class Keeps(nn.Module):
    """Keeps a buffer, a plain tensor and plain values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.arange(3.0))
        self.queue = torch.arange(4.0)
        self.calls = 0
        self.name = "first"
        self.absent: torch.Tensor | None = None


def seen(module: nn.Module) -> dict[str, object]:
    """Every buffer and attribute by name, tensors as lists of numbers."""
    tables = {**module.__dict__, **module.__dict__["_buffers"]}
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value
        for name, value in tables.items()
        if not isinstance(value, (dict, set))
    }


def in_place(module: Keeps) -> None:
    module.mean.add_(1)
    module.queue[1] = 7


def replaced(module: Keeps) -> None:
    module.mean = module.mean + 1
    module.queue = torch.cat([module.queue[1:], torch.ones(3)])


def in_place_and_replaced(module: Keeps) -> None:
    in_place(module)
    replaced(module)
    in_place(module)


def through_data(module: Keeps) -> None:
    module.mean.data += 1
    module.queue.data = torch.zeros(2)


def resized(module: Keeps) -> None:
    module.mean.resize_(5).fill_(2.0)


def counted(module: Keeps) -> None:
    module.calls += 1
    module.name = "second"


def given_for_the_first_time(module: Keeps) -> None:
    module.absent = torch.ones(2)
    module.cache = torch.ones(2)  # type: ignore[assignment]
    module.seen_at = 3  # type: ignore[assignment]
    module.register_buffer("later", torch.ones(1))


def removed(module: Keeps) -> None:
    del module.calls, module.mean, module.absent


CHANGES: dict[str, Callable[[Keeps], None]] = {
    "in place": in_place,
    "replaced": replaced,
    "in place and replaced": in_place_and_replaced,
    "through .data": through_data,
    "resized": resized,
    "counters": counted,
    "given for the first time": given_for_the_first_time,
    "removed": removed,
}


@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("good_steps", [0, 1, 5])
def test_a_change_is_undone(change: str, exactly: bool, good_steps: int) -> None:
    """After any number of steps that went through and changed the same."""
    module = Keeps()
    state = ModuleState(module)
    for _ in range(good_steps):
        state.remember(exactly=exactly)
        if change != "removed":
            CHANGES[change](module)
    before = seen(module)
    for _ in range(2):  # a step that fails twice is undone twice
        state.remember(exactly=exactly)
        CHANGES[change](module)
        assert state.restore() == ()
        assert seen(module) == before
    assert state.restore() == ()
    assert seen(module) == before


def test_what_went_through_is_never_undone() -> None:
    module = Keeps()
    state = ModuleState(module)
    for calls in range(1, 70):  # past the steps in which tensors are searched for
        state.remember(exactly=False)
        replaced(module)
        module.calls += 1
        assert module.mean.tolist() == [calls, calls + 1, calls + 2]
    state.remember(exactly=False)
    in_place_and_replaced(module)
    state.restore()
    assert (module.calls, module.mean.tolist()) == (69, [69, 70, 71])


def test_the_very_tensor_comes_back_where_another_took_its_place() -> None:
    """Whoever holds it, as an exponential average of the weights does, goes on seeing it."""
    module = Keeps()
    mean, queue = module.mean, module.queue
    state = ModuleState(module)
    state.remember()
    in_place_and_replaced(module)
    state.restore()
    assert module.mean is mean
    assert module.queue is queue


def test_an_attribute_that_appears_later_is_found() -> None:
    module = Keeps()
    state = ModuleState(module)
    for step in range(200):
        if step == 30:
            module.cache = torch.zeros(2)  # type: ignore[assignment]
        state.remember(exactly=False)
        if step >= 30:
            module.cache.add_(1)
    state.remember(exactly=False)
    module.cache.add_(1)
    assert state.restore() == ()
    assert module.cache.tolist() == [170.0, 170.0]


class Table(nn.Module):
    """Keeps a tensor above what is copied in every step, in a block."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Module()
        self.block.register_buffer("table", torch.zeros(LARGE))


def write(module: Table) -> None:
    module.block.table.add_(1)


def write_data(module: Table) -> None:
    module.block.table.data.add_(1)


def replace_table(module: Table) -> None:
    module.block.table = module.block.table + 1


def values(module: Table) -> tuple[float, float]:
    return float(module.block.table.min()), float(module.block.table.max())


@pytest.mark.parametrize("act", [write, write_data, replace_table])
def test_a_large_tensor_is_put_back_where_the_step_is_undone_in_any_case(
    act: Callable[[Table], None],
) -> None:
    module = Table()
    state = ModuleState(module)
    for _ in range(2):
        state.remember(exactly=True)
        act(module)
        assert state.restore() == ()
        assert values(module) == (0, 0)


def test_a_large_tensor_is_put_back_once_a_step_wrote_it() -> None:
    module = Table()
    state = ModuleState(module)
    for step in range(3):
        state.remember(exactly=False)
        write(module)
        assert values(module) == (step + 1, step + 1)
    state.remember(exactly=False)
    write(module)
    assert state.restore() == ()
    assert values(module) == (3, 3)


def test_a_large_tensor_written_first_by_the_step_that_is_undone_is_named_once() -> None:
    module = Table()
    state = ModuleState(module)
    for _ in range(3):
        state.remember(exactly=False)
    assert state.restore() == ()
    write(module)
    assert state.restore() == ("block.table",)
    assert state.restore() == ()
    for _ in range(2):
        state.remember(exactly=False)
        before = values(module)
        write(module)
        assert state.restore() == ()
        assert values(module) == before


def test_a_large_tensor_that_another_replaces_is_put_back_though_nothing_was_copied() -> None:
    module = Table()
    table = module.block.table
    state = ModuleState(module)
    state.remember(exactly=False)
    replace_table(module)
    assert state.restore() == ()
    assert module.block.table is table
    assert values(module) == (0, 0)


def test_writes_through_data_are_seen_by_values_at_the_next_step_that_has_a_copy() -> None:
    module = Table()
    state = ModuleState(module)
    state.remember(exactly=True)
    write_data(module)
    state.remember(exactly=False)
    write_data(module)
    assert state.restore() == ()
    assert values(module) == (1, 1)


class Features(nn.Module):
    """Keeps the activation of its last forward, as feature extractors do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.feat: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        if self.feat is not None:
            h = h + self.feat.detach()
        self.feat = h
        return h


class Held:
    """A hook, which lives as long as the graph that it is a part of."""

    def __call__(self, *gradients: object) -> None:
        pass


def test_an_activation_kept_on_a_module_is_not_kept_alive() -> None:
    """Neither the tensor nor its graph, once the next forward has put another there."""
    module = Features()
    state = ModuleState(module)
    for _ in range(4):
        state.remember(exactly=False)
        before: list[weakref.ref[object]] = []
        if module.feat is not None:
            assert module.feat.grad_fn is not None
            held = Held()
            module.feat.grad_fn.register_hook(held)
            before = [weakref.ref(module.feat), weakref.ref(held)]
            del held
        module(torch.ones(1, 4))
        gc.collect()
        assert [ref() for ref in before] == [None] * len(before)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_an_activation_that_the_next_forward_reads_comes_back(
    mode: Callable[[], torch.autograd.grad_mode.set_grad_enabled],
) -> None:
    """Whether the step that is undone left another one, or a look at it without gradients did."""
    module = Features()
    state = ModuleState(module)
    for _ in range(3):
        state.remember(exactly=False)
        module(torch.ones(1, 4))
    assert module.feat is not None
    before = module.feat.tolist()
    state.remember(exactly=False)
    with mode():
        module(torch.ones(1, 4))
    state.restore()
    assert module.feat.tolist() == before


def test_an_activation_that_is_set_late_is_not_kept_alive() -> None:
    """In an attribute that was None, or that was not there: not for a single step."""
    for name in ("feat", "later"):
        module = Features()
        state = ModuleState(module)
        for _ in range(10):
            state.remember(exactly=False)
            state.release()
        for _ in range(2):
            setattr(module, name, module.layer(torch.ones(1, 4)))
            state.remember(exactly=False)
            gone = weakref.ref(getattr(module, name))
            setattr(module, name, None)
            assert gone() is None
            state.release()


def test_nothing_is_kept_of_what_was_before_a_step_that_went_through() -> None:
    module = Keeps()
    state = ModuleState(module)
    for _ in range(5):
        state.remember(exactly=False)
        gone = weakref.ref(module.queue)
        replaced(module)
        state.release()
        before = seen(module)
        assert state.restore() == ()
        assert seen(module) == before
        state.remember(exactly=False)
        assert gone() is None
        state.release()


def test_a_large_tensor_of_a_plain_attribute_is_not_kept_alive_and_is_named() -> None:
    """Attention weights that are kept for a look: twice their memory for nothing."""
    module = Keeps()
    state = ModuleState(module)
    for _ in range(10):
        module.queue = torch.zeros(LARGE)
        state.remember(exactly=False)
        gone = weakref.ref(module.queue)
        module.queue = torch.ones(LARGE)
        assert gone() is None
        state.release()
    state.remember(exactly=False)
    module.queue = torch.zeros(LARGE)
    assert state.restore() == ("queue",)
    state.remember(exactly=True)
    before = module.queue
    module.queue = torch.ones(LARGE)
    assert state.restore() == ()
    assert module.queue is before


def test_a_large_tensor_of_a_plain_attribute_that_is_written_is_put_back() -> None:
    module = Keeps()
    module.queue = torch.zeros(LARGE)
    state = ModuleState(module)
    for _ in range(5):
        state.remember(exactly=False)
        module.queue.add_(1)
        state.release()
    state.remember(exactly=False)
    module.queue.add_(1)
    assert state.restore() == ()
    assert module.queue.unique().tolist() == [5]


def test_what_is_written_in_every_step_is_held_up_to_a_limit_and_named_beyond() -> None:
    """A copy of a large queue would take longer than the step does."""
    module = nn.Module()
    for name in ("first", "second"):
        module.register_buffer(name, torch.zeros(held_bytes(torch.device("cpu")) // 4 - 9))
    state = ModuleState(module)
    for _ in range(5):
        state.remember(exactly=False)
        module.first.add_(1)
        module.second.add_(1)
        state.release()
    state.remember(exactly=False)
    module.first.add_(1)
    module.second.add_(1)
    assert state.restore() == ("second",)
    assert (module.first.max(), module.second.max()) == (5, 6)
    state.remember(exactly=True)
    module.second.add_(1)
    assert state.restore() == ()
    assert module.second.max() == 6


def test_tensors_that_are_replaced_in_every_step_cost_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Keeps()
    module.register_buffer("table", torch.zeros(LARGE))
    state = ModuleState(module)

    def step(number: int) -> None:
        replaced(module)
        module.queue = torch.full((number % 3 + 1,), float(number))
        module.table = module.table + 1

    for number in range(3):
        state.remember(exactly=False)
        step(number)
        state.release()
    monkeypatch.setattr(state, "_find_tensors", lambda: pytest.fail("searched"))
    for number in range(3, 20):
        state.remember(exactly=False)
        before = seen(module)
        step(number)
        module.mean.add_(1)
        module.queue.add_(1)
        if number % 2:
            assert state.restore() == ()
            assert seen(module) == before
        state.release()


def test_containers_are_put_back() -> None:
    module = Keeps()
    module.seen = [1, [2]]  # type: ignore[assignment]
    state = ModuleState(module)
    state.remember(exactly=True)
    module.seen.append(3)
    module.seen[1].append(4)
    state.restore()
    assert module.seen == [1, [2]]
    module.seen.append(5)
    state.remember(exactly=False)
    module.seen.append(6)
    state.restore()
    assert module.seen == [1, [2], 5]  # and not what was before another step


def test_an_activation_that_nothing_replaced_is_left_as_it_is() -> None:
    module = Features()
    state = ModuleState(module)
    for _ in range(2):
        state.remember(exactly=False)
        module(torch.ones(1, 4))
    feat = module.feat
    state.remember(exactly=False)
    state.restore()
    assert module.feat is feat
    with torch.no_grad():
        module(torch.ones(1, 4))  # as a validation
    feat = module.feat
    for _ in range(2):
        state.remember(exactly=False)
        state.restore()
        assert module.feat is feat


def test_a_large_activation_is_neither_kept_nor_removed() -> None:
    module = Features()
    state = ModuleState(module)
    large = torch.ones(LARGE // 4, 4)
    for _ in range(3):
        state.remember(exactly=False)
        module.feat = None
        module(large)
    state.remember(exactly=False)
    assert module.feat is not None
    before = weakref.ref(module.feat)
    module.feat = None
    with torch.no_grad():
        module(large)
    gc.collect()
    assert before() is None
    state.restore()
    assert isinstance(module.feat, torch.Tensor)


def test_several_models_and_nested_modules_that_share_one() -> None:
    shared = Keeps()
    first, second = nn.Sequential(shared, Keeps()), nn.Sequential(nn.Sequential(shared))
    state = ModuleState(first, second)
    modules = [first[0], first[1], second[0]]
    before = [seen(module) for module in modules]
    state.remember(exactly=False)
    for module in (shared, first[1]):
        assert isinstance(module, Keeps)
        in_place_and_replaced(module)
        counted(module)
    assert state.restore() == ()
    assert [seen(module) for module in modules] == before


def test_training_flags_parameters_and_submodules_are_not_touched() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = ModuleState(model)
    state.remember()
    model.eval()
    with torch.no_grad():
        model[0].weight.fill_(3.0)
    model[0].bias = nn.Parameter(torch.full((2,), 4.0))
    added = nn.ReLU()
    model.add_module("2", added)
    state.restore()
    assert [module.training for module in model[:2]] == [False, False]
    assert not model.training
    assert bool((model[0].weight == 3).all())
    assert bool((model[0].bias == 4).all())
    assert model[2] is added


def test_nothing_is_put_back_before_anything_was_remembered() -> None:
    module = Keeps()
    state = ModuleState(module)
    in_place_and_replaced(module)
    before = seen(module)
    assert state.restore() == ()
    assert seen(module) == before


def test_a_tensor_that_torch_refuses_to_write_does_not_keep_others_from_coming_back() -> None:
    module = Keeps()
    module.register_buffer("ones", torch.ones(1).expand(8))
    state = ModuleState(module)
    state.remember()
    in_place(module)
    module.ones = torch.zeros(8)
    state.restore()
    assert module.mean.tolist() == [0, 1, 2]
    assert module.ones.tolist() == [1.0] * 8


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_do_not_keep_others_from_coming_back(layout: torch.layout) -> None:
    module = Keeps()
    module.queue = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)
    queue = module.queue
    state = ModuleState(module)
    for _ in range(2):
        state.remember()
        module.mean.add_(1)
        module.queue = torch.nested.nested_tensor([torch.ones(1)], layout=layout)
        state.restore()
        assert module.mean.tolist() == [0, 1, 2]
        assert module.queue is queue


def test_lazy_buffers_are_left_alone_until_they_are_there() -> None:
    model = nn.Sequential(nn.LazyBatchNorm1d())
    state = ModuleState(model)
    state.remember()
    model(torch.randn(4, 3))
    before = model[0].running_mean.clone()
    state.remember(exactly=False)
    model(torch.randn(4, 3))
    state.restore()
    assert torch.equal(model[0].running_mean, before)


# -- in whole experiments ---------------------------------------------------------------------

BAD = 5
"""The batch that fails, from 0: in the second epoch, at four batches an epoch."""


class Everything(nn.Module):
    """Its logits depend on all that a module can keep between two forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.queue = torch.zeros(FEATURES)
        self.calls = 0
        self.last: torch.Tensor | None = None
        self.head = nn.Linear(FEATURES, CLASSES)
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        self.steps = self.steps + 1
        self.mean.mul_(0.5).add_(x.detach().mean(0), alpha=0.5)
        self.queue = torch.roll(self.queue, 1) + self.mean
        self.calls += 1
        out = self.head(h + self.mean + self.queue) * (1 + 0.1 * self.steps) + 0.01 * self.calls
        if self.last is not None:
            out = out + 0.1 * self.last.detach()
        self.last = out.mean(0)
        if self.fails and not bool(x.isfinite().all()):
            raise ValueError("not this one")
        return out


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def by_hand(model: nn.Module, steps: list[Pair]) -> list[float]:
    """Losses of a plain loop over these batches."""
    optimizer, losses = sgd(model), list[float]()
    model.train()
    torch.manual_seed(0)
    for x, y in steps:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses(exp: Experiment) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since("train/loss", 0)[1].tolist()


def kept(model: Everything) -> dict[str, object]:
    assert model.last is not None
    return {
        **{name: value.tolist() for name, value in model.named_buffers()},
        "queue": model.queue.tolist(),
        "calls": model.calls,
        "last": model.last.tolist(),
    }


def spoilt() -> Pair:
    x, y = data()
    x[BATCH * 1 + 3, 2] = torch.nan  # in the second batch of every epoch
    return x, y


@pytest.mark.parametrize("fails", [False, True], ids=["NaN", "exception"])
def test_a_refused_step_leaves_no_trace_and_the_run_goes_on_as_without_it(
    tmp_path: Path, fails: bool
) -> None:
    """The loop to compare with never saw the batch."""
    all_batches = batches(spoilt())
    good = [one for at, one in enumerate(all_batches) if at != 1]
    expected = by_hand(judge := seeded(Everything), good * 2)
    half = seeded(Everything)
    by_hand(half, good + good[:1])
    model = seeded(Everything)
    model.fails = fails
    exp = Experiment(
        model, spoilt(), optimizer=sgd(model), batch_size=BATCH, shuffle=False, epochs=2,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    with pytest.raises(RunError):
        exp.run().wait(60)
    first = seeded(Everything)
    by_hand(first, good[:1])
    assert kept(model) == kept(first)
    if fails:
        exp._training.cursor.skip()
        exp.resume()
    else:
        exp.resume_from_failure()
    with pytest.raises(RunError):
        exp.wait(60)
    assert exp.step_count == 4
    assert kept(model) == kept(half)
    if fails:
        exp._training.cursor.skip()
        exp.resume().wait(60)
    else:
        exp.resume_from_failure().wait(60)
    assert losses(exp) == expected
    assert kept(model) == kept(judge)
    torch.testing.assert_close(model.state_dict(), judge.state_dict(), rtol=0, atol=0)
    exp.close()


def test_a_step_that_raises_and_is_repeated_counts_once(tmp_path: Path) -> None:
    expected = by_hand(judge := seeded(Everything), batches(data()) * 2)
    model = seeded(Everything)
    exp = Experiment(
        model, data(), optimizer=sgd(model), batch_size=BATCH, shuffle=False, epochs=2,
        runs=tmp_path, device="cpu",
    )  # fmt: skip

    def once(module: nn.Module, inputs: object, output: object) -> None:
        if exp.step_count == BAD and not raised:
            raised.append(BAD)
            raise ValueError("once")

    raised: list[int] = []
    hook = model.register_forward_hook(once)
    with pytest.raises(RunError, match="once"):
        exp.run().wait(60)
    exp.resume().wait(60)
    hook.remove()
    assert raised == [BAD]
    assert losses(exp) == expected
    assert kept(model) == kept(judge)
    exp.close()


@pytest.mark.parametrize("mode", ["attention:math", "bf16"])
def test_a_switch_of_modes_and_back_counts_each_step_once(tmp_path: Path, mode: str) -> None:
    model = seeded(Everything)
    exp = Experiment(
        model, data(), optimizer=sgd(model), batch_size=BATCH, shuffle=False, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    for modes in ("", mode, "", mode):
        exp.modes = modes
        exp.run(steps=3, wait=True)
    assert (int(model.steps), model.calls, exp.step_count) == (12, 12, 12)
    assert int(model.norm.num_batches_tracked) == 12  # type: ignore[arg-type]
    if mode == "attention:math":  # which changes no number of a model without attention
        expected = by_hand(judge := seeded(Everything), batches(data()) * 3)
        assert losses(exp) == expected
        assert kept(model) == kept(judge)
    exp.close()


def test_a_table_that_cannot_be_put_back_is_said(tmp_path: Path) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.zeros(LARGE))
            self.head = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not bool(x.isfinite().all()):
                self.table[0] += 1
            return self.head(x)

    exp = Experiment(
        Writes(), spoilt(), batch_size=BATCH, shuffle=False, runs=tmp_path, device="cpu"
    )
    with pytest.raises(RunError):
        exp.run().wait(60)
    assert any("step 2 was undone, except for what it wrote into table" in one for one in exp.notes)
    exp.close()
