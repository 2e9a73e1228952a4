from __future__ import annotations

import copy
import gc
import importlib.util
import logging
import pickle
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from workbench.modes import ModeSet, StepTimings, refresh
from workbench.modes.effects.badges import badge
from workbench.modes.precision import float8, low_precision
from workbench.modes.precision.float8 import EMULATED, MULTIPLES, VALUES, float8_choice, product
from workbench.modes.precision.low_precision import LayerRow, low_precision_layers
from workbench.modes.precision.mode import Precision

torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed"
)


class Doubles(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def mixed() -> nn.Module:
    """Two layers that qualify, and one of every kind that does not."""
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "first": nn.Linear(64, 64),
            "plain": nn.Linear(64, 32, bias=False),
            "head": nn.Linear(64, 10),
            "odd": nn.Linear(24, 32),
            "subclass": Doubles(64, 64),
            "parametrized": parametrizations.weight_norm(nn.Linear(64, 64)),
            "wide": nn.Linear(64, 64, dtype=torch.float64),
            "attention": nn.MultiheadAttention(64, 4),
            "conv": nn.Conv2d(16, 16, 3),
        }
    )
    model["own"] = nn.Linear(64, 64)
    model["own"].forward = lambda x: x
    return model


def trained(value: str, model: nn.Module, x: torch.Tensor) -> ModeSet:
    modes = ModeSet.parse(value, "cpu")
    modes.attach(model)
    with modes.forward_context():
        loss = model(x).float().square().mean()
    modes.backward(loss)
    return modes


@pytest.fixture
def probed_anew() -> Iterator[None]:
    refresh()
    yield
    refresh()


# -- what is converted --------------------------------------------------------------------------


def test_every_linear_layer_has_a_row_with_the_reason_it_is_left_alone() -> None:
    rows = {row.path: row for row in low_precision_layers(mixed(), "fp8")}
    assert rows["first"] == LayerRow("first", (64, 64), True, "")
    assert rows["plain"].converted
    assert {path: row.reason for path, row in rows.items() if not row.converted} == {
        "head": "is 10 × 64, and both have to be multiples of 16",
        "odd": "is 32 × 24, and both have to be multiples of 16",
        "subclass": "is a Doubles, which may compute in its own way",
        "parametrized": "is a ParametrizedLinear, which may compute in its own way",
        "wide": "has a weight in float64",
        "attention.out_proj": (
            "is a NonDynamicallyQuantizableLinear, which may compute in its own way"
        ),
        "own": "has a forward of its own",
    }


def test_a_weight_made_by_the_older_weight_norm_is_left_alone() -> None:
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(64, 64))
    (row,) = low_precision_layers(layer, "fp8")
    assert row.reason == "recomputes its weight in every step"


@pytest.mark.parametrize(("value", "multiple"), MULTIPLES.items())
def test_sides_must_be_multiples_of_what_the_format_takes(value: str, multiple: int) -> None:
    fits = nn.Linear(3 * multiple, multiple)
    short = nn.Linear(3 * multiple, multiple - 8)
    assert low_precision_layers(fits, value)[0].converted
    assert f"multiples of {multiple}" in low_precision_layers(short, value)[0].reason


@pytest.mark.parametrize(
    ("value", "outputs", "inputs", "small"),
    [
        ("fp8", 1024, 4096, True),
        ("fp8", 1040, 16, False),
        ("fp8", 16, 4112, False),
        ("fp8-rowwise", 2048, 8192, True),
        ("fp8-rowwise", 8192, 1024, True),
        ("fp8-rowwise", 4096, 2048, True),
        ("fp8-rowwise", 4112, 2048, False),
        ("mxfp8", 4096, 4096, False),
    ],
)
def test_where_the_format_is_native_small_layers_are_left_alone(
    value: str, outputs: int, inputs: int, small: bool
) -> None:
    layer = nn.Linear(inputs, outputs, device="meta")
    assert ("too small" in low_precision_layers(layer, value, native=True)[0].reason) is small
    assert low_precision_layers(layer, value, native=False)[0].converted


@torchao
@pytest.mark.parametrize("value", ["fp8", "fp8-rowwise"])
def test_the_rule_for_small_layers_is_torchaos(value: str) -> None:
    from torchao.float8.float8_linear_utils import _auto_filter_for_recipe

    theirs = _auto_filter_for_recipe({"fp8": "tensorwise", "fp8-rowwise": "rowwise"}[value], [])
    sides = (16, 1024, 1040, 2048, 2064, 4096, 4112)
    for outputs in sides:
        for inputs in sides:
            layer = nn.Linear(inputs, outputs, device="meta")
            (row,) = low_precision_layers(layer, value, native=True)
            assert row.converted is theirs(layer, "layer"), (outputs, inputs)


def test_an_unknown_value_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="'fp4'; valid values are: fp8, fp8-rowwise, mxfp8"):
        low_precision_layers(nn.Linear(16, 16), "fp4")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Conv2d(3, 3, 3), "Conv2d has no linear layer, and fp8 converts no other; use bf16"),
        (nn.Linear(16, 10), "fp8 converts no layer of Linear: it is 10 × 16, and both have to"),
        (
            nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)),
            r"its layer '1' is 2 × 8, .* \(and 1 more are left alone\); use bf16",
        ),
    ],
)
def test_a_model_without_a_layer_to_convert_is_refused(model: nn.Module, words: str) -> None:
    import re

    assert re.search(words, ModeSet.parse("fp8", "cpu").refusal(model))
    assert ModeSet.parse("bf16", "cpu").refusal(model) == ""


def test_a_torchao_that_cannot_be_loaded_is_refused_before_the_model_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(value: str, *, native: bool) -> None:
        raise ImportError("libcudart.so.13: cannot open shared object file\nand more")

    monkeypatch.setattr(low_precision, "product", broken)
    problem = ModeSet.parse("checkpoint+fp8", "cpu").refusal(nn.Linear(16, 16))
    assert problem == (
        "fp8 needs torchao, which failed to load: ImportError: libcudart.so.13: cannot open "
        "shared object file; use bf16"
    )


# -- what is offered ----------------------------------------------------------------------------


@torchao
@pytest.mark.parametrize("value", VALUES)
def test_emulation_is_said_in_the_choice_and_in_the_badge(value: str, cpu: torch.device) -> None:
    choice = {choice.value: choice for choice in Precision.choices(cpu)}[value]
    assert choice.available
    assert choice.why == f"Emulated: numerics only, slower: this CPU has no {value} arithmetic."
    modes = ModeSet.parse(value, cpu)
    shown = badge(modes["precision"], modes, StepTimings(), nn.Linear(16, 16))
    assert shown.detail.startswith(EMULATED)
    timings = StepTimings()
    for text, seconds in (("fp32", 0.01), (value, 0.05)):
        timings.first_step(text, 1.0)
        for number in range(40):
            timings.add(text, seconds + number * 1e-5)
    measured = badge(modes["precision"], modes, timings, nn.Linear(16, 16))
    assert "slower" in measured.text
    assert measured.detail.startswith(EMULATED)


def test_without_torchao_it_is_disabled_with_the_pip_line(
    probed_anew: None, monkeypatch: pytest.MonkeyPatch, cpu: torch.device
) -> None:
    plain = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torchao" else plain(name)
    )
    for value in VALUES:
        choice = {choice.value: choice for choice in Precision.choices(cpu)}[value]
        assert not choice.available
        assert "torchao is not installed" in choice.why
        assert choice.commands == ('pip install "torchao>=0.18,<0.19"',)
    problem = ModeSet.parse("fp8", cpu).unavailable()
    assert problem is not None
    assert 'pip install "torchao>=0.18,<0.19"' in problem


@pytest.mark.parametrize(
    ("installed", "usable"),
    [("0.18.0", True), ("0.18.3+cpu", True), ("0.17.0", False), ("0.19.0.dev1", False)],
)
def test_only_the_version_that_was_tested_is_used(
    probed_anew: None,
    monkeypatch: pytest.MonkeyPatch,
    cpu: torch.device,
    installed: str,
    usable: bool,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(float8, "version", lambda _: installed)
    choice = float8_choice("fp8", cpu)
    assert choice.available is usable
    assert usable or installed in choice.why


@torchao
def test_asking_what_is_offered_does_not_import_torchao(ran) -> None:
    program = (
        "import sys, torch; from workbench.modes.precision.mode import Precision; "
        "print([c.available for c in Precision.choices(torch.device('cpu'))][-3:]); "
        "assert 'torchao' not in sys.modules"
    )
    done = ran(program)
    assert (done.returncode, done.stdout.strip()) == (0, "[True, True, True]"), done.stderr


# -- what is computed ---------------------------------------------------------------------------


def rounded(values: torch.Tensor, dtype: torch.dtype, *, dim: int | None) -> torch.Tensor:
    """``values`` as scaled 8-bit floats: one scale for all, or a power of two along ``dim``."""
    largest = values.abs().amax() if dim is None else values.abs().amax(dim, keepdim=True)
    scale = torch.finfo(dtype).max / largest.double().clamp(min=1e-12)
    if dim is not None:
        scale = 2.0 ** scale.log2().floor()
    limit = torch.finfo(dtype).max
    return (
        (values.double() * scale).clamp(-limit, limit).float().to(dtype).double() / scale
    ).float()


def blocks_of_32(values: torch.Tensor) -> torch.Tensor:
    """MX along the last side: scale 2**ceil(log2(largest / 448)) for each block of 32."""
    blocks = values.reshape(*values.shape[:-1], -1, 32).double()
    largest = blocks.abs().amax(-1, keepdim=True)
    scale = 2.0 ** (largest / 448).clamp(min=2.0**-127).log2().ceil()
    return (
        ((blocks / scale).float().to(torch.float8_e4m3fn).double() * scale)
        .reshape(values.shape)
        .float()
    )


def expected(value: str, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> tuple[Any, ...]:
    """Output, gradient of the input and of the weight, from the definition of the format."""
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    if value == "fp8":
        qx, qw, qg = (rounded(t, d, dim=None) for t, d in ((x, e4m3), (w, e4m3), (g, e5m2)))
        return qx @ qw.t(), qg @ qw, qg.t() @ qx
    if value == "fp8-rowwise":

        def q(t: torch.Tensor, dim: int) -> torch.Tensor:
            return rounded(t, e4m3, dim=dim)

        return q(x, 1) @ q(w, 1).t(), q(g, 1) @ q(w, 0), q(g, 0).t() @ q(x, 0)
    b = blocks_of_32
    return b(x) @ b(w).t(), b(g) @ b(w.t()).t(), b(g.t()) @ b(x.t()).t()


@torchao
@pytest.mark.parametrize("value", VALUES)
def test_products_are_those_of_the_formats_definition(value: str) -> None:
    """An oracle of a few lines, independent of torchao's; what is left is bf16's rounding."""
    torch.manual_seed(0)
    x = (torch.randn(64, 96) * torch.logspace(-2, 2, 96)).bfloat16()
    w = (torch.randn(32, 96) / 10).bfloat16()
    g = (torch.randn(64, 32) * torch.logspace(-3, 0, 32)).bfloat16()
    inputs, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
    out = product(value, native=False)(inputs, weight)
    out.backward(g)
    wanted = expected(value, x.float(), w.float(), g.float())
    for found, right in zip((out, inputs.grad, weight.grad), wanted, strict=True):
        error = (found.float() - right).norm() / right.norm()
        assert error < 4e-3, (value, float(error))


@torchao
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("shape", [(64,), (1, 64), (33, 64), (2, 5, 64), (0, 64)])
def test_any_number_of_rows_will_do(value: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 32)
    x = torch.randn(shape)
    wanted = layer(x)
    wanted.square().sum().backward()
    gradient = layer.weight.grad
    layer.zero_grad()
    modes = ModeSet.parse(value, "cpu")
    modes.attach(layer)
    with modes.forward_context():
        out = layer(x)
    modes.backward(out.float().square().sum())
    assert out.shape == wanted.shape
    assert layer.weight.grad.dtype == torch.float32
    if x.numel():
        assert out.dtype == torch.bfloat16
        assert (out.float() - wanted).norm() < 0.08 * wanted.norm()
        assert (layer.weight.grad - gradient).norm() < 0.15 * gradient.norm()


@torchao
def test_outside_of_autocast_types_stay_as_they_are() -> None:
    """As a person calls the model between two steps."""
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 10))
    x = torch.randn(4, 64)
    wanted = model(x)
    for value in VALUES:
        modes = ModeSet.parse(value, "cpu")
        modes.attach(model)
        with torch.no_grad():
            out = model(x)
        modes.detach(model)
        assert out.dtype == torch.float32
        assert 0 < (out - wanted).abs().max() < 0.1


# -- what becomes of the model ------------------------------------------------------------------


@torchao
@pytest.mark.parametrize("value", VALUES)
def test_switching_off_leaves_the_model_exactly_as_it_was(value: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 10))
    called: list[str] = []
    model[0].register_forward_hook(lambda *_: called.append("hook"))
    model[0].register_full_backward_hook(lambda *_: called.append("backward"))
    parts, tensors = list(model.modules()), dict(model.state_dict(keep_vars=True))
    states = [dict(part.__dict__) for part in parts]
    x = torch.randn(4, 64, requires_grad=True)
    before = model(x)
    called.clear()
    modes = trained(value, model, x)
    assert called == ["hook", "backward"]
    assert list(model.modules()) == parts
    now = model.state_dict(keep_vars=True)
    assert list(now) == list(tensors)
    assert all(now[name] is tensor for name, tensor in tensors.items())
    modes.detach(model)
    assert [dict(part.__dict__) for part in parts] == states
    assert torch.equal(model(x), before)


@torchao
def test_tied_weights_stay_tied_and_get_both_gradients() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(32, 64)
            self.head = nn.Linear(64, 32, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(tokens))

    model = Tied()
    modes = trained("fp8", model, torch.tensor([1, 2, 3]))
    assert model.head.weight is model.table.weight
    assert "forward" in model.head.__dict__
    gradient = model.table.weight.grad
    assert (gradient[1:4].norm(dim=1) > gradient[4:].norm(dim=1).max()).all()
    modes.detach(model)
    assert "forward" not in model.head.__dict__


@torchao
def test_a_forward_that_the_user_sets_meanwhile_is_kept() -> None:
    model = nn.Sequential(nn.Linear(32, 32))
    modes = ModeSet.parse("fp8", "cpu")
    modes.attach(model)
    mine = model[0].__dict__["forward"] = lambda x: x
    modes.detach(model)
    assert model[0].__dict__["forward"] is mine


@torchao
def test_a_copy_computes_as_the_model_does_and_a_pickle_is_plain() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64)), torch.randn(4, 64)
    modes = ModeSet.parse("mxfp8", "cpu")
    modes.attach(model)
    with modes.forward_context(), torch.no_grad():
        twin = copy.deepcopy(model)
        assert torch.equal(twin(x), model(x))
        twin[0].weight.zero_()
        assert model(x).abs().max() > 0, "the copy has weights of its own"
    loaded = pickle.loads(pickle.dumps(model))
    modes.detach(model)
    assert torch.equal(loaded(x), model(x))
    assert low_precision_layers(loaded, "mxfp8")[0].converted, "and can be converted again"


@torchao
def test_nothing_keeps_the_model_alive() -> None:
    model = nn.Sequential(nn.Linear(32, 32))
    modes = ModeSet.parse("fp8", "cpu")
    modes.attach(model)
    gone = weakref.ref(model[0])
    del model
    gc.collect()
    assert gone() is None
    modes.detach(nn.Linear(1, 1))


@torchao
def test_torchaos_import_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), float8._quiet():
        logging.getLogger("torchao").warning("Failed to load _C.so")
        logging.getLogger("torchao.kernel.intmm").warning("no triton")
        logging.getLogger("torchao.kernel").error("this is kept")
    assert [record.message for record in caplog.records] == ["this is kept"]
    assert logging.getLogger("torchao").level == logging.NOTSET


class Raced(dict[str, Any]):
    """What another thread takes an entry out of, while Python goes through it."""

    def items(self) -> Any:
        found = list(super().items())
        self.pop("/nowhere", None)
        return found


def test_panel_and_cell_may_search_for_torchao_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two threads met that showed an experiment: the cell raised a `KeyError`."""
    raced = Raced(sys.path_importer_cache)
    raced["/nowhere"] = None
    monkeypatch.setattr(sys, "path_importer_cache", raced)
    is_there = importlib.util.find_spec("torchao") is not None
    assert is_there == (not float8._missing())
    assert "/nowhere" not in raced
