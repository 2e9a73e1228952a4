"""What a training does with gradients, odd inputs and odd parameters, against a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.unit.experiment.experiments import experiment, losses, sgd
from tests.unit.experiment.plain_loop import (
    BATCH,
    CLASSES,
    FEATURES,
    STEPS_PER_EPOCH,
    Pair,
    assert_equal,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment
from workbench.experiment.data.data import DataError
from workbench.experiment.loop.step_guard import NonFiniteError

# -- an optimizer over a part of the model ----------------------------------------------------


class Parts(nn.Module):
    """A body that requires gradients and that nobody trains, and a head that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def norm_of(parameters: Sequence[nn.Parameter]) -> float:
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]).item()


def head_by_hand(epochs: int, clip: float | None) -> tuple[Parts, list[float], list[float]]:
    """Clear and clip all gradients of the model, and train its head."""
    model = seeded(Parts)
    parameters, norms = list(model.parameters()), list[float]()

    def before_update() -> None:
        norms.append(norm_of(parameters))
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)

    optimizer = sgd(model.head.parameters())
    optimizer.zero_grad = lambda set_to_none=True: model.zero_grad()  # type: ignore[method-assign]
    found = plain_loop(
        model, batches(data()), optimizer, epochs=epochs, before_update=before_update
    )
    return model, found, norms


@pytest.mark.parametrize("clip", [None, 0.1])
def test_gradients_outside_the_optimizer_are_those_of_their_step(
    tmp_path: Path, clip: float | None
) -> None:
    """They neither add up from step to step in what is logged, nor in what is clipped."""
    expected, right, norms = head_by_hand(5, clip)
    model = seeded(Parts)
    exp = experiment(tmp_path, model, optimizer=sgd(model.head.parameters()), clip_grad_norm=clip)
    exp.run(epochs=5, wait=True)
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)
    steps, logged = exp.scalars.since("train/gradient_norm", 0)
    assert steps.tolist() == list(range(1, 21))
    assert logged.tolist() == pytest.approx(norms, rel=1e-5)


def test_gradients_outside_the_optimizer_are_clipped_unscaled_under_fp16(tmp_path: Path) -> None:
    """The scale of fp16's losses is in none of the gradients that are clipped together."""
    model, parts = seeded(Parts), seeded(Parts)
    optimizer, parameters = sgd(parts.head.parameters()), list(parts.parameters())
    scaler, norms = torch.amp.GradScaler("cpu"), list[float]()
    for x, y in batches(data()) * 2:
        parts.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(parts(x), y)
        scaler.scale(loss).backward()
        for parameter in parameters:  # all of them, as the loss was scaled for all of them
            parameter.grad.div_(scaler.get_scale())
        norms.append(norm_of(parameters))
        torch.nn.utils.clip_grad_norm_(parameters, 0.1)
        optimizer.step()
    exp = experiment(
        tmp_path, model, optimizer=sgd(model.head.parameters()), clip_grad_norm=0.1, modes="fp16"
    )
    exp.run(epochs=2, wait=True)
    exp.close()
    logged = exp.scalars.since("train/gradient_norm", 0)[1].tolist()
    assert logged == pytest.approx(norms, rel=1e-5)
    torch.testing.assert_close(model.state_dict(), parts.state_dict(), rtol=1e-5, atol=1e-7)


def test_a_parameter_group_that_a_cell_adds_is_trained_from_then_on(tmp_path: Path) -> None:
    """Between runs, and in the course of one; what is added is clipped with the rest."""
    for inside in (False, True):
        expected, model = seeded(Parts), seeded(Parts)
        parameters, steps = list(expected.parameters()), list[int]()
        optimizer = sgd(expected.head.parameters())

        def clear(set_to_none: bool = True, expected: Parts = expected) -> None:
            expected.zero_grad()

        def after_step(
            steps: list[int] = steps,
            optimizer: torch.optim.Optimizer = optimizer,
            expected: Parts = expected,
        ) -> None:
            steps.append(1)
            if len(steps) == 5:
                optimizer.add_param_group({"params": expected.body.parameters(), "lr": 0.01})

        def clip(parameters: list[nn.Parameter] = parameters) -> None:
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)

        optimizer.zero_grad = clear  # type: ignore[method-assign]
        right = plain_loop(
            expected, batches(data()), optimizer, epochs=3, before_update=clip,
            after_step=after_step,
        )  # fmt: skip
        given = sgd(model.head.parameters())
        exp = experiment(tmp_path, model, optimizer=given, clip_grad_norm=0.5)

        def add(given: torch.optim.Optimizer = given, model: Parts = model) -> None:
            given.add_param_group({"params": model.body.parameters(), "lr": 0.01})

        if inside:
            add_at_step(exp, 5, add)
            exp.run(epochs=3, wait=True)
        else:
            exp.run(steps=5, wait=True)
            add()
            exp.run(steps=7, wait=True)
        exp.close()
        assert losses(exp) == right
        assert_equal(model, expected)


def add_at_step(exp: Experiment, step: int, action: Callable[[], None]) -> None:
    """Do it between two steps, as a cell does that hits that moment."""

    def look(event: Any) -> None:
        if getattr(event, "loss", None) is not None and event.step == step:
            action()

    exp.subscribe(look, every_step=True)


class Grows(nn.Module):
    """Makes its head in a forward, when it sees how many features there are."""

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 8), None
        self.at, self.calls = at, 0
        self.groups: list[dict[str, Any]] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x).relu()
        if self.head is None and self.calls == self.at:
            # drawn apart: a rehearsal or a guard must not be what decides on its weights
            with torch.random.fork_rng():
                torch.manual_seed(4)
                self.head = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, CLASSES))
            if self.groups is not None:
                self.groups[0]["params"].extend(self.head.parameters())
        self.calls += 1
        return h[:, :CLASSES] if self.head is None else self.head(h)


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("joins", [True, False])
def test_a_head_that_is_made_in_a_forward_is_cleared_and_clipped(
    tmp_path: Path, clip: float | None, at: int, joins: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it joins a group of the optimizer or none."""

    def made() -> tuple[Grows, torch.optim.Optimizer]:
        model = seeded(lambda: Grows(at))
        optimizer = plain_sgd(model.parameters())
        if joins:
            model.groups = optimizer.param_groups
        return model, optimizer

    expected, optimizer = made()
    optimizer.zero_grad = lambda set_to_none=True: expected.zero_grad()  # type: ignore[method-assign]
    norms: list[float] = []

    def before_update() -> None:
        norms.append(norm_of(list(expected.parameters())))
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(expected.parameters(), clip)

    right = plain_loop(expected, batches(data()), optimizer, epochs=2, before_update=before_update)
    model, optimizer = made()
    exp = experiment(tmp_path, model, optimizer=optimizer, clip_grad_norm=clip)
    exp.run(epochs=2, wait=True)
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)
    logged = exp.scalars.since("train/gradient_norm", 0)[1].tolist()
    assert logged == pytest.approx(norms, rel=1e-5)
    assert caplog.text == ""


@pytest.mark.parametrize("inside", [True, False])
def test_parameters_that_a_cell_puts_into_a_group_are_cleared(tmp_path: Path, inside: bool) -> None:
    """Of a temperature that only a loss has, which has gathered gradients before."""

    def made() -> tuple[nn.Linear, nn.Parameter, Callable[..., torch.Tensor]]:
        heat = nn.Parameter(torch.tensor(1.5))
        return seeded(linear), heat, lambda logits, y: F.cross_entropy(logits * heat, y)

    expected, heat, loss = made()
    optimizer, steps = sgd(expected.parameters()), list[int]()

    def after_step() -> None:
        steps.append(1)
        if len(steps) == 3:
            optimizer.param_groups[0]["params"].append(heat)

    right = plain_loop(
        expected, batches(data()), optimizer, epochs=2, loss_of=loss, after_step=after_step,
        before_update=lambda: None if len(steps) >= 3 else setattr(heat, "grad", None),
    )  # fmt: skip
    model, own, loss = made()
    given = sgd(model.parameters())
    exp = experiment(tmp_path, model, optimizer=given, loss=loss)

    def join() -> None:
        given.param_groups[0]["params"].append(own)

    if inside:
        add_at_step(exp, 3, join)
        exp.run(epochs=2, wait=True)
    else:
        exp.run(steps=3, wait=True)
        join()
        exp.run(steps=5, wait=True)
    exp.close()
    assert losses(exp) == right
    assert torch.equal(own, heat)


def test_a_module_that_is_put_in_between_runs_is_guarded(tmp_path: Path) -> None:
    def made() -> nn.Sequential:
        return nn.Sequential(nn.Identity(), nn.Linear(FEATURES, CLASSES))

    def exchange(model: nn.Sequential) -> None:
        model[0] = nn.BatchNorm1d(FEATURES, affine=False)

    expected, optimizer, steps = seeded(made), None, list[int]()
    optimizer = sgd(expected.parameters())

    def after_step() -> None:
        steps.append(1)
        if len(steps) == 3:
            exchange(expected)

    right = plain_loop(expected, batches(data()), optimizer, epochs=2, after_step=after_step)
    model = seeded(made)
    exp = experiment(tmp_path, model)
    exp.run(steps=3, wait=True)
    exchange(model)

    def fails(*_: Any) -> None:
        if exp.step_count == 4 and not failed:
            failed.append(1)
            raise ValueError("once")

    failed: list[int] = []
    model[1].register_forward_hook(fails)
    with pytest.raises(ValueError, match="once"):
        exp.run(steps=5, wait=True)
    exp.run(steps=4, wait=True)
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)


def test_parameters_that_only_the_optimizer_has_are_cleared_and_clipped(
    tmp_path: Path,
) -> None:
    """A temperature that a loss closes over, say: it is in no module."""

    def made() -> tuple[nn.Linear, nn.Parameter, Callable[..., torch.Tensor]]:
        heat = nn.Parameter(torch.tensor(1.5))
        return seeded(linear), heat, lambda logits, y: F.cross_entropy(logits * heat, y)

    expected, heat, loss = made()
    both = [*expected.parameters(), heat]
    right = plain_loop(
        expected, batches(data()), sgd(both), epochs=2, loss_of=loss,
        before_update=lambda: torch.nn.utils.clip_grad_norm_(both, 0.3),
    )  # fmt: skip
    model, own, loss = made()
    optimizer = sgd([*model.parameters(), own])
    exp = experiment(tmp_path, model, optimizer=optimizer, loss=loss, clip_grad_norm=0.3)
    exp.run(epochs=2, wait=True)
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)
    assert torch.equal(own, heat)


# -- parameters of other kinds ----------------------------------------------------------------


class Complex(nn.Module):
    """A complex weight, read out as magnitudes, and a real one behind it."""

    def __init__(self, real: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, CLASSES, dtype=torch.complex64))
        self.head = nn.Linear(CLASSES, CLASSES) if real else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((x.to(self.weight.dtype) @ self.weight).abs())


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_complex_parameters_train(tmp_path: Path, real: bool, clip: float | None) -> None:
    expected, model = (seeded(lambda: Complex(real)) for _ in range(2))

    def clipped() -> None:
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(expected.parameters(), clip)

    right = plain_loop(
        expected, batches(data()), sgd(expected.parameters()), epochs=2, before_update=clipped
    )
    exp = experiment(tmp_path, model, clip_grad_norm=clip)
    exp.run(epochs=2, wait=True)
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    ("value", "word"), [(complex(0, float("nan")), "NaN"), (complex(0, float("inf")), "infinite")]
)
def test_a_complex_gradient_that_is_not_finite_is_refused(
    tmp_path: Path, real: bool, value: complex, word: str
) -> None:
    """In its imaginary part alone, with a finite loss: weights stay those of the last good step."""
    expected, model = (seeded(lambda: Complex(real)) for _ in range(2))
    right = plain_loop(expected, batches(data())[:3], sgd(expected.parameters()))
    exp = experiment(tmp_path, model)

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return torch.full_like(gradient, value) if exp.step_count == 3 else gradient

    model.weight.register_hook(spoil)
    with pytest.raises(NonFiniteError, match=f"gradients are {word}"):
        exp.run(epochs=1, wait=True)
    assert (exp.status, exp.step_count) == ("nan", 3)
    assert losses(exp)[:3] == right
    assert_equal(model, expected)
    exp.close()


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8, sparse=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(words).mean(1))


def text() -> Pair:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 50, (64, 5), generator=generator), torch.arange(64) % CLASSES


def plain_sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def test_sparse_gradients_train(tmp_path: Path) -> None:
    expected, model = seeded(Words), seeded(Words)
    norms: list[float] = []

    def measure() -> None:
        dense = [p.grad.to_dense() for p in expected.parameters()]
        norms.append(torch.nn.utils.get_total_norm(dense).item())

    right = plain_loop(
        expected, batches(text()), plain_sgd(expected.parameters()), epochs=2,
        before_update=measure,
    )  # fmt: skip
    exp = experiment(tmp_path, model, text(), optimizer=plain_sgd)
    exp.run(epochs=2, wait=True)
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)
    logged = exp.scalars.since("train/gradient_norm", 0)[1].tolist()
    assert logged == pytest.approx(norms, rel=1e-5)


def test_a_sparse_gradient_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    expected, model = seeded(Words), seeded(Words)
    plain_loop(expected, batches(text())[:2], plain_sgd(expected.parameters()))
    exp = experiment(tmp_path, model, text(), optimizer=plain_sgd)
    model.embedding.weight.register_hook(
        lambda gradient: gradient * (float("nan") if exp.step_count == 2 else 1.0)
    )
    with pytest.raises(NonFiniteError, match="gradients are NaN"):
        exp.run(epochs=1, wait=True)
    assert exp.step_count == 2
    assert_equal(model, expected)
    exp.close()


# -- inputs of another type -------------------------------------------------------------------


class Pixels(nn.Module):
    """What it does to its input first is up to it."""

    def __init__(self, first: Callable[[torch.Tensor], torch.Tensor], then: str = "linear") -> None:
        super().__init__()
        self.first, self.then = first, then
        self.conv = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(36 if then == "linear" else 8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.then == "full":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if self.then == "own":
            raise RuntimeError("a fault of the model's own")
        x = self.first(x)
        h = x if self.then == "linear" else self.conv(x)
        return self.head(h.flatten(1))


def as_they_are(x: torch.Tensor) -> torch.Tensor:
    return x


def images(dtype: torch.dtype, shape: tuple[int, ...] = (1, 6, 6)) -> Pair:
    x = torch.arange(32 * 36).reshape(32, *shape) % 256
    return x.to(dtype), torch.arange(32) % CLASSES


@pytest.mark.parametrize("then", ["linear", "conv"])
@pytest.mark.parametrize("modes", ["", "bf16"])
@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (torch.float64, r"the inputs are float64 \[16, 1, 6, 6\] and the model's weights float32: "
                        r"give x.float\(\)"),
        (torch.uint8, r"the inputs are uint8 \[16, 1, 6, 6\], images as bytes it seems, and the "
                      r"model's weights are float32: give x.float\(\) / 255"),
    ],
)  # fmt: skip
def test_inputs_of_another_type_are_answered_in_a_sentence(
    tmp_path: Path, dtype: torch.dtype, words: str, modes: str, then: str
) -> None:
    model = seeded(lambda: Pixels(as_they_are, then))
    exp = experiment(tmp_path, model, images(dtype), modes=modes)
    with pytest.raises(DataError, match=words) as said:
        exp.run(epochs=1, wait=True)
    assert isinstance(said.value.__cause__, RuntimeError)
    assert exp.step_count == 0
    exp.close()


def test_inputs_of_another_type_that_the_model_takes_are_no_fault(tmp_path: Path) -> None:
    for dtype, convert in (
        (torch.float64, lambda x: x.float()),
        (torch.uint8, lambda x: x.float() / 255),
    ):
        expected, model = (seeded(lambda convert=convert: Pixels(convert)) for _ in range(2))
        right = plain_loop(expected, batches(images(dtype)), sgd(expected.parameters()))
        exp = experiment(tmp_path, model, images(dtype))
        exp.run(epochs=1, wait=True)
        exp.close()
        assert losses(exp) == right
        assert_equal(model, expected)
    expected, model = (seeded(linear).double() for _ in range(2))
    pair = data()[0].double(), data()[1]
    right = plain_loop(expected, batches(pair), sgd(expected.parameters()))
    exp = experiment(tmp_path, model, pair)
    exp.run(epochs=1, wait=True)
    exp.close()
    assert losses(exp) == right


@pytest.mark.parametrize("dtype", [torch.float64, torch.uint8])
@pytest.mark.parametrize(
    ("then", "kind", "words"),
    [
        ("own", RuntimeError, "a fault of the model's own"),
        ("conv", RuntimeError, "cannot be multiplied|size mismatch"),
        ("full", torch.OutOfMemoryError, "Tried to allocate 2.00 GiB"),
    ],
)
def test_another_error_of_a_model_that_converts_its_inputs_stays_what_it_is(
    tmp_path: Path, dtype: torch.dtype, then: str, kind: type[Exception], words: str
) -> None:
    """A wrong shape or a full card is not answered with advice on types."""
    model = seeded(lambda: Pixels(lambda x: x.float() / 255, then))
    exp = experiment(tmp_path, model, images(dtype))
    with pytest.raises(kind, match=words) as raised:
        exp.run(epochs=1, wait=True)
    assert not isinstance(raised.value, DataError)
    exp.close()


def test_indices_of_an_embedding_are_no_floats(tmp_path: Path) -> None:
    """Advice to make them float32 would be wrong; torch's own words stay."""
    x, y = text()
    exp = experiment(tmp_path, Words(), (x.double(), y), optimizer=plain_sgd)
    with pytest.raises(RuntimeError, match="scalar types: Long, Int"):
        exp.run(epochs=1, wait=True)
    exp.close()


# -- fp16, and a step that gives the optimizer nothing ----------------------------------------


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(FEATURES, CLASSES)
        self.b = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(x) if x[0, 0] > 0 else self.a(x)


def of_branches() -> Pair:
    """Every other batch takes the branch that the optimizer does not hold."""
    x, y = data()
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0]).repeat_interleave(BATCH)
    return torch.cat([x[:, :1].abs() * signs[:, None], x[:, 1:]], 1), y


def branches_by_hand(epochs: int) -> tuple[Branches, list[float], float]:
    """As torch's examples of AMP do it; its scaler would refuse a step without any gradient."""
    model = seeded(Branches)
    optimizer, scaler, found = sgd(model.b.parameters()), torch.amp.GradScaler("cpu"), list[float]()
    torch.manual_seed(0)
    for x, y in batches(of_branches()) * epochs:
        model.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if any(p.grad is not None for p in model.b.parameters()):
            scaler.step(optimizer)
            scaler.update()
        found.append(loss.item())
    return model, found, scaler.get_scale()


def test_a_step_without_any_gradient_of_the_optimizers_under_fp16(tmp_path: Path) -> None:
    expected, right, scale = branches_by_hand(3)
    model = seeded(Branches)
    exp = experiment(
        tmp_path, model, of_branches(), optimizer=sgd(model.b.parameters()), modes="fp16"
    )
    exp.run(epochs=3, wait=True)
    exp.close()
    assert (exp.status, exp.step_count) == ("finished", 12)
    assert losses(exp) == right
    assert_equal(model, expected)
    assert exp.scalars.last("precision/scale") == [scale]
    assert exp.scalars.last("precision/skipped") == [0.0]


def test_the_same_in_a_loop_of_ones_own() -> None:
    expected, right, _ = branches_by_hand(3)
    model = seeded(Branches)
    optimizer, modes, found = sgd(model.b.parameters()), wb.Modes("fp16"), list[float]()
    modes.prepare(model)
    for x, y in batches(of_branches()) * 3:
        model.zero_grad()
        with modes.forward():
            loss = F.cross_entropy(model(x), y)
        with modes.update(loss, optimizer):
            pass
        found.append(loss.item())
    assert found == right
    assert_equal(model, expected)


# -- an exception once weights have been written ----------------------------------------------


def average(mean: dict[str, torch.Tensor], model: nn.Module) -> None:
    for name, value in model.named_parameters():
        mean[name] = mean.get(name, value).detach() * 0.5 + value.detach() * 0.5


@pytest.mark.parametrize("bad", [3, 4, 8])
def test_a_step_that_was_applied_is_not_applied_again(tmp_path: Path, bad: int) -> None:
    """A hook raises once after the update: also where an epoch ends, and a schedule steps."""
    expected, model = seeded(linear), seeded(linear)
    optimizer, plain = sgd(model.parameters()), sgd(expected.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(plain, 2, 0.5)
    right = plain_loop(expected, batches(data()), plain, epochs=2, after_step=schedule.step)
    steps: list[int] = []

    def hook(*_: Any) -> None:
        steps.append(1)
        if len(steps) == bad:
            raise KeyError("the average")

    optimizer.register_step_post_hook(hook)
    exp = experiment(
        tmp_path,
        model,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
        schedule_every="step",
        val=data(16),
    )
    with pytest.raises(KeyError, match="the average"):
        exp.run(epochs=2, wait=True)
    assert (exp.step_count, exp.status) == (bad, "exception")
    assert exp.failure is not None
    assert exp.failure.step == bad
    assert f"Weights and optimizer are those of step {bad}" in exp.failure.subtitle
    assert "after the update" in exp.failure.subtitle
    assert exp.message == f"step {bad}: KeyError after its update, which counts; run stopped"
    exp.resume()
    exp.wait()
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)
    assert exp.scalars.since("val/loss", 0)[0].tolist() == [4, 8]


class Halfway(torch.optim.Optimizer):
    """Plain SGD that raises once, before parameter ``at`` of its third step."""

    def __init__(self, parameters: Any, at: int) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.at, self.steps = at, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for group in self.param_groups:
            for at, p in enumerate(group["params"]):
                if self.steps == 3 and at == self.at:
                    raise ValueError("half-way")
                p.add_(p.grad, alpha=-0.1)


@pytest.mark.parametrize("at", [0, 1])
def test_an_update_that_raises_in_its_middle_says_how_far_it_went(tmp_path: Path, at: int) -> None:
    """Nothing was written: the step is undone and its batch comes again. Something was: it is said.

    A loop that a person goes on with after such an exception has the same weights.
    """
    expected, model = seeded(linear), seeded(linear)
    right: list[float] = []
    for number, (x, y) in enumerate(batches(data())):
        loss = F.cross_entropy(expected(x), y)
        expected.zero_grad()
        loss.backward()
        right.append(loss.item())
        with torch.no_grad():
            for index, p in enumerate(expected.parameters()):
                if not (at and number == 2 and index >= at):
                    p.add_(p.grad, alpha=-0.1)
    exp = experiment(tmp_path, model, optimizer=Halfway(model.parameters(), at))
    with pytest.raises(ValueError, match="half-way"):
        exp.run(epochs=1, wait=True)
    assert exp.failure is not None
    if at:
        assert exp.step_count == 3
        assert "1 of 2 parameters with a gradient had been written" in exp.failure.subtitle
        assert exp.message == "step 3: ValueError in the middle of its update; run stopped"
    else:
        assert exp.step_count == 2
        assert "Step 3 was not applied" in exp.failure.subtitle
    exp.resume()
    exp.wait()
    exp.close()
    assert losses(exp) == right
    assert_equal(model, expected)


def test_a_batch_that_was_applied_is_not_left_out_once_more(tmp_path: Path) -> None:
    model = seeded(linear)
    optimizer, steps = sgd(model.parameters()), list[int]()

    def hook(*_: Any) -> None:
        steps.append(1)
        if len(steps) == 2:
            raise KeyError("once")

    optimizer.register_step_post_hook(hook)
    exp = experiment(tmp_path, model, optimizer=optimizer)
    with pytest.raises(KeyError):
        exp.run(epochs=1, wait=True)
    exp._training.cursor.skip()  # as a failure's button does
    exp.resume()
    exp.wait()
    exp.close()
    assert exp.step_count == STEPS_PER_EPOCH
