"""A loop of one's own under `wb.Modes` computes what an experiment computes, to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch.nn import functional as F

import workbench as wb
from workbench.experiment import EpochSampler, Experiment

SEED, BATCH, CLIP = 5, 16, 0.5
SAMPLES, STEPS = 192, 12
SWITCHES = {3: "compile", 6: "bf16", 9: "fp32"}
"""Steps done -> the modes from there on."""


@pytest.fixture(autouse=True)
def _no_pool_of_threads() -> Iterator[None]:
    """Inductor keeps one for good, once it has compiled what was not in its cache."""
    with torch._inductor.config.patch(compile_threads=1):
        yield


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(F.gelu(self.norm(self.layer(x))), 0.1, self.training)


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), Block(), Block(), nn.Linear(16, 5))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 8, generator=generator)
    return x, torch.randint(0, 5, (SAMPLES,), generator=generator)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


class OwnLoop:
    """The loop a person would write, with the five lines in it."""

    def __init__(self, modes: str) -> None:
        self.modes, self.model = wb.Modes(modes), net()
        self.modes.prepare(self.model)
        self.optimizer = adam(self.model.parameters())
        self.rows = EpochSampler(SAMPLES, SEED).indices().split(BATCH)
        self.losses: list[float] = []
        self.skipped: list[int] = []

    def run(self, switches: Mapping[int, str] | None = None) -> OwnLoop:
        x, y = data()
        torch.manual_seed(SEED)
        for step, rows in enumerate(self.rows[:STEPS]):
            if switches and step in switches:
                self.modes.set(switches[step])
            self.optimizer.zero_grad()
            with self.modes.forward():
                loss = F.cross_entropy(self.model(x[rows]), y[rows])
            with self.modes.update(loss, self.optimizer):
                nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.losses.append(loss.item())
            self.skipped += [step] if self.modes.skipped else []
        return self


def experiment(runs: Path, modes: str) -> Experiment:
    return Experiment(
        net(),
        data(),
        optimizer=adam,
        batch_size=BATCH,
        seed=SEED,
        clip_grad_norm=CLIP,
        modes=modes,
        runs=runs,
        device="cpu",
    )


def losses(exp: Experiment) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since("train/loss", 0)[1].tolist()


@pytest.mark.parametrize("modes", ["", "bf16", "fp16", "checkpoint+bf16", "compile+bf16"])
def test_losses_and_weights_are_those_of_an_experiment(tmp_path: Path, modes: str) -> None:
    exp = experiment(tmp_path, modes)
    exp.run(steps=STEPS, wait=True)
    own = OwnLoop(modes).run()
    assert own.losses == losses(exp)
    assert own.losses[-1] < own.losses[0]
    theirs = exp.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in own.model.state_dict().items())
    exp.close()


def test_fp32_is_the_loop_without_modes() -> None:
    x, y = data()
    model = net()
    optimizer = adam(model.parameters())
    expected: list[float] = []
    torch.manual_seed(SEED)
    for rows in EpochSampler(SAMPLES, SEED).indices().split(BATCH)[:STEPS]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        expected.append(loss.item())
    assert OwnLoop("").run().losses == expected


def test_switching_over_compile_and_bf16_and_back_is_what_an_experiment_does(
    tmp_path: Path,
) -> None:
    exp = experiment(tmp_path, "")
    for step in range(STEPS):
        if step in SWITCHES:
            exp.modes = SWITCHES[step]
        exp.run(steps=1, wait=True)
    own = OwnLoop("").run(SWITCHES)
    assert own.losses == losses(exp)
    plain = OwnLoop("").run().losses
    assert own.losses[:3] == plain[:3]
    assert own.losses[3:] != plain[3:]
    assert own.modes.text == "fp32"
    assert not any("_compiled_call_impl" in module.__dict__ for module in own.model.modules())
    exp.close()


def test_a_checkpoint_taken_under_fp16_goes_on_bit_for_bit() -> None:
    whole = OwnLoop("fp16").run(SWITCHES | {3: "fp16", 6: "fp16"})
    first = OwnLoop("fp16")
    first.rows = first.rows[:5]
    first.run()
    saved = copy.deepcopy(
        {
            "model": first.model.state_dict(),
            "optimizer": first.optimizer.state_dict(),
            "modes": first.modes.state_dict(),
            "random": torch.get_rng_state(),
        }
    )
    later = OwnLoop("fp16")
    later.model.load_state_dict(saved["model"])
    later.optimizer.load_state_dict(saved["optimizer"])
    later.modes.load_state_dict(saved["modes"])
    x, y = data()
    torch.set_rng_state(saved["random"])
    for rows in later.rows[5:9]:
        later.optimizer.zero_grad()
        with later.modes.forward():
            loss = F.cross_entropy(later.model(x[rows]), y[rows])
        with later.modes.update(loss, later.optimizer):
            nn.utils.clip_grad_norm_(later.model.parameters(), CLIP)
        later.losses.append(loss.item())
    assert first.losses + later.losses == whole.losses[:9]


def test_graph_and_memory_see_a_step_under_modes() -> None:
    own, (x, y) = OwnLoop("bf16"), data()
    with wb.memory() as memory, wb.graph(own.model), own.modes.forward():
        loss = F.cross_entropy(own.model(x[:BATCH]), y[:BATCH])
    graph = wb.graph(loss)
    with own.modes.update(loss, own.optimizer):
        pass
    types = {node.type for node in graph.record.nodes}
    assert {"AddmmBackward0", "ToCopyBackward0"} <= types, "casts of autocast are in the graph"
    assert memory.record.peak_bytes > 0


class Branches(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if y.sum() > -1e9:
            return y
        return x


@pytest.mark.parametrize("regions", ["whole", "blocks"])
def test_a_break_under_fullgraph_undoes_the_step_and_the_training_goes_on(
    tmp_path: Path, regions: str
) -> None:
    def breaks() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 16), Branches(), Branches(), nn.Linear(16, 5))

    plain, exp = (
        Experiment(breaks(), data(), optimizer=adam, batch_size=BATCH, runs=tmp_path, device="cpu")
        for _ in range(2)
    )
    plain.run(steps=4, wait=True)
    exp.run(steps=2, wait=True)
    exp.modes = f"compile:{regions},fullgraph"
    line = Branches.forward.__code__.co_firstlineno + 2
    with pytest.raises(Exception, match=rf"has one at test_modes_loop\.py:{line} \(`if y\.sum"):
        exp.run(steps=2, wait=True)
    assert exp.step_count == 2
    assert exp.failure is not None
    assert f"or allow breaks: compile:{regions}" in exp.failure.message
    assert exp.failure.source is not None
    assert (exp.failure.source.filename, exp.failure.source.line) == (__file__, line)
    assert [row.line for row in exp.failure.code if row.current] == [line]
    exp.modes = ""
    exp.resume().wait()
    assert losses(exp) == losses(plain), "the step that broke left no trace"
    for one in (plain, exp):
        one.close()


def test_a_break_under_fullgraph_leaves_an_own_loop_that_goes_on() -> None:
    x, y = data()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), Branches(), nn.Linear(16, 5))
    optimizer = adam(model.parameters())
    modes = wb.Modes("compile:whole,fullgraph")
    modes.prepare(model)

    def forward() -> torch.Tensor:
        with modes.forward():
            return F.cross_entropy(model(x[:BATCH]), y[:BATCH])

    with pytest.raises(RuntimeError, match=r"allows no graph break, and Sequential has one at"):
        forward()
    modes.set("fp32")
    first = forward()
    with modes.update(first, optimizer):
        pass
    model.eval()
    with torch.no_grad():
        assert forward() < first


def test_evaluation_under_modes_changes_nothing(tmp_path: Path) -> None:
    class Evaluating(OwnLoop):
        def evaluate(self) -> None:
            self.model.eval()
            with self.modes.forward(), torch.no_grad():
                self.model(data()[0])
            self.model.train()

    own = Evaluating("bf16")
    step: Callable[..., Any] = own.modes.update

    def update_then_evaluate(*args: Any) -> Any:
        own.evaluate()
        return step(*args)

    own.modes.update = update_then_evaluate  # between forward and backward, the worst place
    assert own.run().losses == OwnLoop("bf16").run().losses
