"""The estimate from a record, held against a real checkpointed forward, byte for byte."""

from __future__ import annotations

import json
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.unit.graph.conftest import Block, EarlyExit
from tests.unit.graph.measured_checkpoint import measure_checkpointing
from workbench.graph.questions.checkpoint_savings import checkpoint_saving


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True))
        self.block1, self.block2 = Block(8, 8), Block(8, 16)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 5))

    def forward(self, x):
        return self.head(self.pool(self.block2(self.block1(self.stem(x)))))


class PreNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.out(y)
        return x + self.mlp(self.norm2(x))


class Separate(nn.Module):
    """Three linear layers of one input, and a residual beside the last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.join = Join(width)

    def forward(self, x):
        y = F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
        return self.join(y, x)


class Join(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, y, x):
        return self.norm(self.dense(y) * x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.blocks = nn.Sequential(PreNorm(16), PreNorm(16))
        self.torchs = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.separate = Separate(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.separate(self.torchs(self.blocks(self.embed(x)))).mean(1))


def conv_net():
    return ConvNet(), torch.randn(4, 3, 16, 16)


def transformer():
    return Transformer(), torch.randn(4, 7, 6)


CASES = [
    *((conv_net, path) for path in ("", "stem", "block1", "block1.norm", "block2", "pool", "head")),
    *((transformer, path) for path in ("", "blocks", "blocks.0", "blocks.1.mlp", "blocks.0.norm1")),
    *((transformer, path) for path in ("embed", "torchs", "torchs.self_attn", "head")),
    *((transformer, f"separate{path}") for path in ("", ".query", ".value", ".join")),
]


@pytest.mark.parametrize(
    ("build", "path"), CASES, ids=[f"{build.__name__}-{path or 'model'}" for build, path in CASES]
)
def test_the_estimate_is_what_checkpointing_frees(build, path):
    model, x = build()
    y = torch.randint(0, 5, (4,))
    with wb.graph(model):
        loss = F.cross_entropy(model(x), y)
    estimate = checkpoint_saving(wb.graph(loss).record, path)
    del loss
    measured = measure_checkpointing(
        model, path, lambda: F.cross_entropy(model(x), y), repetitions=1
    )
    assert estimate.freed_bytes == measured.freed_bytes
    assert estimate.forward_s is not None


@pytest.mark.parametrize("path", ["block1", "block2", "aux", "head"])
def test_an_early_exit(path):
    model, x, y = EarlyExit(), torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))

    def step():
        late, early = model(x)
        return F.cross_entropy(late, y) + 0.3 * F.cross_entropy(early, y)

    with wb.graph(model):
        loss = step()
    estimate = checkpoint_saving(wb.graph(loss).record, path)
    del loss
    measured = measure_checkpointing(model, path, step)
    assert estimate.freed_bytes == measured.freed_bytes
    assert measured.num_calls == 1
    assert 0 < measured.forward_range_s[0] <= measured.forward_s <= measured.forward_range_s[1]


def test_a_saving_names_the_mode_that_makes_it(record):
    (model, x), y = conv_net(), torch.randint(0, 5, (4,))
    with wb.graph(model):
        loss = F.cross_entropy(model(x), y)
    saving = wb.graph(loss).checkpoint_saving("block2")
    assert not saving.is_checkpointed
    del loss
    modes = wb.Modes(saving.mode)
    modes.prepare(model)
    with modes.forward(), wb.graph(model):
        loss = F.cross_entropy(model(x), y)
    assert wb.graph(loss).checkpoint_saving("block2").is_checkpointed
    modes.remove()
    assert checkpoint_saving(record, "").mode == ""


def test_the_text_says_what_is_freed_and_what_stays(record):
    said = str(checkpoint_saving(record, "block1"))
    assert said.startswith("Checkpointing `block1` would free ")
    assert "held by nodes outside" in said
    assert said.endswith("by the captured forward.")


def test_a_path_that_is_no_text_is_refused(record):
    with pytest.raises(TypeError, match=r"qualified name of a module.*got 3"):
        checkpoint_saving(record, 3)


def test_an_unknown_module_lists_close_ones(record, early_exit):
    with pytest.raises(ValueError, match=r"no module 'block3'.*'block"):
        checkpoint_saving(record, "block3")
    with pytest.raises(ValueError, match=r"no module 'block3'.*'block"):
        measure_checkpointing(early_exit, "block3", lambda: torch.ones(()))


class Stateful(nn.Module):
    """Draws random numbers, counts in a buffer, rebinds a buffer, works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Dropout(0.5))
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count = self.count + 1
        return self.inner(self.norm(x)) * random.random()


def test_the_model_is_left_as_it_was():
    model, x = Stateful(), torch.randn(8, 4)
    forward, buffers = model.inner.forward, dict(model.named_buffers())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    versions = {name: value._version for name, value in model.named_parameters()}
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    batch = x.clone()
    measured = measure_checkpointing(model, "inner", lambda: model(x).sum())
    assert measured.freed_bytes > 0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(buffers[name] is value for name, value in model.named_buffers())
    assert versions == {name: value._version for name, value in model.named_parameters()}
    assert torch.equal(torch_state, torch.get_rng_state())
    assert random.getstate() == python_state
    assert model.inner.forward == forward
    assert "forward" not in vars(model.inner)
    assert not model.inner._forward_pre_hooks
    assert not model._forward_pre_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(batch, x)


def test_a_step_that_fails_leaves_the_model_as_it_was():
    model = Stateful()
    before = model.norm.running_mean.clone()

    def step():
        model(torch.ones(2, 4))
        raise KeyError("no such batch")

    with pytest.raises(KeyError):
        measure_checkpointing(model, "inner", step)
    assert torch.equal(before, model.norm.running_mean)
    assert "forward" not in vars(model.inner)


def test_steps_that_cannot_be_measured_say_so(classifier, batch):
    x, _ = batch

    def backward():
        loss = classifier(x).sum()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match="must not call backward"):
        measure_checkpointing(classifier, "0", backward)
    with pytest.raises(ValueError, match="return the loss"):
        measure_checkpointing(classifier, "0", lambda: classifier(x).sum().item())
    with pytest.raises(ValueError, match="did not run '0'"):
        measure_checkpointing(classifier, "0", lambda: classifier[2](torch.ones(1, 4)).sum())
    with pytest.raises(ValueError, match="at least 1"):
        measure_checkpointing(classifier, "0", backward, repetitions=0)


def test_a_compiled_module_is_refused(classifier):
    classifier.compile(backend="eager")
    with pytest.raises(ValueError, match="the model is compiled"):
        measure_checkpointing(classifier, "0", lambda: torch.ones(()))


def test_a_module_that_is_called_often_keeps_the_inputs_of_every_call():
    """A record does not distinguish calls, so it promises more than the measured forward frees."""
    model, x = nn.ModuleDict({"cell": nn.GRUCell(4, 4)}), torch.randn(2, 4)

    def step():
        state = torch.zeros(2, 4)
        for _ in range(5):
            state = model["cell"](x, state)
        return state.sum()

    measured = measure_checkpointing(model, "cell", step)
    assert measured.num_calls == 5
    with wb.graph(model):
        loss = step()
    estimate = checkpoint_saving(wb.graph(loss).record, "cell")
    assert estimate.freed_bytes >= measured.freed_bytes


@pytest.mark.parametrize("name", ["conv_net", "transformer"])
def test_the_figures_that_the_browser_is_held_to(name):
    from tests.unit.graph.checkpoint_fixtures import FOLDER, freed

    record = wb.graph(FOLDER / f"checkpoint-{name}.safetensors").record
    assert freed(record) == json.loads((FOLDER / f"checkpoint-{name}.json").read_text())
