"""``with wb.memory() as mem``: what a person sees of any code they put inside."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from workbench.memory import memory
from workbench.records import CATEGORIES


def by_category(record) -> dict[str, int]:
    totals = dict.fromkeys(CATEGORIES, 0)
    for category, size in zip(record.block_category, record.block_bytes, strict=True):
        totals[CATEGORIES[category]] += int(size)
    return totals


def blocks(record, category: str):
    strings = record.strings
    rows = np.flatnonzero(record.block_category == CATEGORIES.index(category))
    return [
        (int(record.block_bytes[r]), strings[record.block_op[r]], strings[record.block_name[r]],
         strings[record.block_module[r]])
        for r in rows
    ]  # fmt: skip


class Two(nn.Module):
    """Two linear layers: 4 -> 8 -> 2, with a ReLU. Parameters: 32 + 8 + 16 + 2 floats."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 2)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


def train_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss = model(torch.ones(16, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()


def test_every_category_of_a_small_model_by_hand():
    model = Two()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    with memory() as mem:
        train_once(model, optimizer)
    totals = by_category(mem.record)
    parameters = 4 * (32 + 8 + 16 + 2)
    assert totals["parameters"] == parameters
    assert totals["gradients"] == parameters
    assert totals["optimizer"] == 2 * parameters + 4 * 4  # two moments, and four step counts
    assert totals["buffers"] == 3 * 4 + 16 * 4 * 4  # the buffer, and the batch given to the model
    # relu's result (saved by relu and by last), the logits (saved by pow), and the loss
    assert totals["activations"] == 16 * 8 * 4 + 16 * 2 * 4 + 4
    assert totals["unknown"] == 0


def test_names_operations_and_modules_are_told():
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, foreach=False)
    with memory() as mem:
        train_once(model, optimizer)
    parameters = blocks(mem.record, "parameters")
    assert (128, "", "first.weight", "first") in parameters
    gradients = {name: (op, module) for _, op, name, module in blocks(mem.record, "gradients")}
    assert gradients["last.weight.grad"] == ("aten.mm", "last")
    assert {name for _, _, name, _ in blocks(mem.record, "optimizer")} == {
        f"{layer}.{kind}.momentum_buffer"
        for layer in ("first", "last")
        for kind in ("weight", "bias")
    }
    assert [phase.name for phase in mem.record.phases] == ["forward", "backward", "optimizer"]


def test_the_users_line_is_told():
    model = Two()
    with memory() as mem:
        model(torch.ones(2, 4))
    texts = {source.text for source in mem.record.sources}
    assert "return self.last(self.first(x).relu())" in texts
    assert all(source.filename == __file__ for source in mem.record.sources)


def test_a_backward_block_names_the_line_of_its_forward():
    model = Two()
    with memory() as mem:
        model(torch.ones(2, 4)).sum().backward()
    record = mem.record
    row = record.strings.index("aten.threshold_backward")
    block = int(np.flatnonzero(record.block_op == row)[0])
    source = record.sources[record.block_source[block]]
    assert source.text == "return self.last(self.first(x).relu())"


def test_gradients_cleared_inside_the_block_are_still_gradients():
    model = Two()
    with memory() as mem:
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
            model.zero_grad(set_to_none=True)
    assert by_category(mem.record)["gradients"] == 2 * 4 * (32 + 8 + 16 + 2)
    assert int(mem.record.series()[CATEGORIES.index("gradients"), -1]) == 0


def test_accumulated_gradients_are_counted_once():
    model = Two()
    with memory() as mem:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
    assert by_category(mem.record)["gradients"] == 4 * (32 + 8 + 16 + 2)


def test_two_models_keep_their_paths_apart():
    encoder, head = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))
    with memory() as mem:
        kept = head(encoder(torch.ones(2, 4)))  # noqa: F841
    modules = {module for *_, module in blocks(mem.record, "activations")}
    assert modules == {"0", "Sequential.0"}


def test_a_loss_module_is_the_loss():
    model, loss = nn.Linear(4, 2), nn.CrossEntropyLoss()
    with memory() as mem:
        loss(model(torch.ones(2, 4)), torch.zeros(2, dtype=torch.long)).backward()
    assert "loss" in {module for *_, module in blocks(mem.record, "activations")}


def test_code_without_a_model_has_no_phase_and_no_guess():
    with memory() as mem:
        kept = torch.ones(256) * 2
    assert mem.record.phases == ()
    assert by_category(mem.record)["unknown"] == 2048
    assert kept.numel() == 256


def test_nothing_allocated_is_said_not_drawn():
    with memory() as mem:
        pass
    assert "Nothing was allocated or freed on cpu" in str(mem)
    html = mem._repr_mimebundle_()[0]["text/html"]
    assert "Nothing was allocated" in html
    assert "peak" not in html
    assert mem.record.peak_event == -1


def test_a_lazy_layer_that_nobody_called_takes_no_memory():
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "later": nn.LazyLinear(8)})
    with memory() as mem:
        Through(model)(torch.ones(2, 4)).sum().backward()
    assert mem.record.notes == ()
    names = {name for _, _, name, _ in blocks(mem.record, "parameters")}
    assert names == {"model.used.weight", "model.used.bias"}


class Through(nn.Module):
    def __init__(self, model: nn.ModuleDict) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model["used"](x)


def test_state_of_an_optimizer_under_a_name_of_its_own():
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    optimizer.state["k_total"] = 3
    optimizer.state["scale"] = torch.ones(5)
    optimizer.state["sums"] = {"norm": torch.ones(6)}
    with memory() as mem:
        train_once(model, optimizer)
    assert mem.record.notes == ()
    state = {(size, name, module) for size, _, name, module in blocks(mem.record, "optimizer")}
    assert {(20, "scale", ""), (24, "norm", "")} <= state
    assert (128, "first.weight.momentum_buffer", "first") in state


def test_hostile_module_names_reach_the_record_and_no_view_breaks():
    name = "<script>alert(1)</script>\n" + "x" * 10_000
    model = nn.Sequential()
    model.add_module(name, nn.Linear(4, 4))
    with memory() as mem:
        model(torch.ones(64, 4)).sum().backward()
    assert name in mem.record.strings
    html = mem._repr_mimebundle_()[0]["text/html"]
    assert "<script" not in html
    assert len(html) < 40_000
    assert max(map(len, str(mem).splitlines())) < 250
    mem.figure().canvas.draw()


def test_checkpointing_recomputes_in_backward_under_the_modules_name():
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Block()
    with memory() as mem:
        model(torch.ones(32, 64)).sum().backward()
    record = mem.record
    backward = next(phase for phase in record.phases if phase.name == "backward")
    relu = np.flatnonzero(record.block_op == record.strings.index("aten.relu"))
    starts = sorted(record.block_start[relu].tolist())
    assert len(starts) == 2
    assert starts[0] < backward.start <= starts[1] < backward.end
    assert {record.strings[i] for i in record.block_module[relu]} == {"inner.1"}


def test_autocast_casts_are_seen():
    model = nn.Linear(64, 64)
    with memory() as mem, torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(8, 64)).sum()
    assert any(op == "aten._to_copy" for _, op, _, _ in blocks(mem.record, "activations")) or any(
        op == "aten._to_copy" for _, op, _, _ in blocks(mem.record, "temporaries")
    )
