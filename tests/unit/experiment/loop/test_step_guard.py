"""The guard: what it sees, what it puts back, and that it changes no bit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from workbench.experiment.loop.step_guard import Guard, NonFiniteError

CPU = torch.device("cpu")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def test_it_puts_back_buffers_and_random_state() -> None:
    net = model()
    guard = Guard(net, CPU)
    guard.remember()
    first = net(torch.ones(3, 4))
    guard.restore()
    assert torch.equal(net(torch.ones(3, 4)), first)
    guard.restore()
    assert net[1].num_batches_tracked == 0  # type: ignore[index]


def test_torchs_private_kernel_is_there_and_changes_no_bit() -> None:
    net = model()
    net(torch.randn(8, 4)).square().sum().backward()
    before = [p.grad.clone() for p in net.parameters()]  # type: ignore[union-attr]
    Guard(net, CPU).check_gradients(scaled=False)
    for old, p in zip(before, net.parameters(), strict=True):
        assert p.grad is not None
        assert torch.equal(old.view(torch.int32), p.grad.view(torch.int32))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_anywhere_is_seen_once(bad: float) -> None:
    net = model()
    guard = Guard(net, CPU)
    net(torch.randn(8, 4)).sum().backward()
    last = list(net.parameters())[-1]
    assert last.grad is not None
    last.grad[2] = bad
    word = "NaN" if math.isnan(bad) else "infinite"
    with pytest.raises(NonFiniteError, match=f"gradients are {word}"):
        guard.check_gradients(scaled=False)
    guard.check_gradients(scaled=True)  # a scaler deals with it
    last.grad[2] = 0.0
    guard.check_gradients(scaled=False)


def test_mixed_types_and_sparse_gradients_are_looked_at_too() -> None:
    net = nn.ModuleDict({"e": nn.Embedding(5, 3, sparse=True), "l": nn.Linear(3, 2).double()})
    guard = Guard(net, CPU)
    out = net["l"](net["e"](torch.tensor([1, 1, 4])).double())
    out.sum().backward()
    guard.check_gradients(scaled=False)
    gradient = net["e"].weight.grad
    assert isinstance(gradient, torch.Tensor)
    net["e"].weight.grad = gradient * math.inf
    with pytest.raises(NonFiniteError):
        guard.check_gradients(scaled=False)


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_the_loss_is_read_on_the_cpu(value: float, word: str) -> None:
    guard = Guard(model(), CPU)
    assert guard.check_loss(torch.tensor(0.5)) == 0.5
    with pytest.raises(NonFiniteError, match=f"loss is {word}"):
        guard.check_loss(torch.tensor(value))


class Keeps(nn.Module):
    """Replaces a buffer, writes another, counts, and takes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("m", torch.zeros(2))
        self.register_buffer("n", torch.zeros(2))
        self.calls = 0

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        self.m = self.m + 1
        self.n.mul_(0.5).add_(self.m)
        self.calls += 1
        return x.sum() * self.m.sum()


def kept(module: Keeps) -> tuple[list[float], list[float], int]:
    return module.m.tolist(), module.n.tolist(), module.calls


@pytest.mark.parametrize("exactly", [True, False])
def test_it_puts_back_what_a_forward_replaced_and_counted(exactly: bool) -> None:
    """In the model and in a loss that is a module."""
    net, loss = Keeps(), Keeps()
    guard = Guard(net, CPU, loss=loss)
    for good in range(1, 4):
        guard.remember(exactly=exactly)
        net(torch.ones(1))
        loss(torch.ones(1), torch.ones(1))
        before = kept(net)
        assert before[0] == [good, good]
        for _ in range(2):
            guard.remember(exactly=exactly)
            net(torch.ones(1))
            loss(torch.ones(1), torch.ones(1))
            loss(torch.ones(1), torch.ones(1))
            assert guard.restore() == ()
            assert kept(net) == kept(loss) == before


def test_it_names_what_it_could_not_put_back() -> None:
    net = nn.Sequential(Keeps())
    net[0].register_buffer("table", torch.zeros(1_100_000))
    guard = Guard(net, CPU)
    guard.remember(exactly=False)
    net[0].table[0] = 1
    assert guard.restore() == ("0.table",)
    assert guard.restore() == ()


class Complex(nn.Module):
    """A complex weight next to a real one."""

    def __init__(self, conjugate: bool) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.ones(3))
        self.conjugate = conjugate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        phase = self.phase.conj() if self.conjugate else self.phase
        return torch.view_as_real(phase * x).sum() + self.scale.sum()


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (complex(math.inf, 0), "infinite"),
        (complex(0, -math.inf), "infinite"),
        (complex(math.nan, 0), "NaN"),
        (complex(math.inf, math.nan), "NaN"),
    ],
)
def test_complex_gradients_are_looked_at_and_not_changed(
    conjugate: bool, bad: complex, word: str
) -> None:
    net = Complex(conjugate)
    guard = Guard(net, CPU)
    net(torch.ones(3) * (1 + 2j)).backward()
    gradient = net.phase.grad
    assert gradient is not None
    before = torch.view_as_real(gradient.resolve_conj()).clone()
    guard.check_gradients(scaled=False)
    assert torch.equal(torch.view_as_real(gradient.resolve_conj()), before)
    gradient[1] = bad
    for _ in range(2):
        with pytest.raises(NonFiniteError, match=f"gradients are {word}"):
            guard.check_gradients(scaled=False)
    gradient[1] = 0
    guard.check_gradients(scaled=False)


def test_one_nan_among_infinite_gradients_is_called_nan() -> None:
    net = model()
    guard = Guard(net, CPU)
    net(torch.randn(8, 4)).sum().backward()
    for at, parameter in enumerate(net.parameters()):
        assert parameter.grad is not None
        parameter.grad.fill_(math.nan if at == 1 else math.inf)
    with pytest.raises(NonFiniteError, match="gradients are NaN") as raised:
        guard.check_gradients(scaled=False)
    assert (raised.value.what, raised.value.word) == ("gradients", "NaN")


def test_a_gradient_of_another_kind_that_comes_later_is_looked_at() -> None:
    """A branch of the model that no step has taken before."""
    net = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2).double()})
    guard = Guard(net, CPU)
    net["a"](torch.ones(1, 2)).sum().backward()
    guard.check_gradients(scaled=False)
    net["b"](torch.ones(1, 2).double()).sum().backward()
    guard.check_gradients(scaled=False)
    assert net["b"].bias.grad is not None
    net["b"].bias.grad[0] = math.inf  # type: ignore[index]
    with pytest.raises(NonFiniteError, match="gradients are infinite"):
        guard.check_gradients(scaled=False)
    net["b"].bias.grad[0] = 1e300  # type: ignore[index]
    guard.check_gradients(scaled=False)


def test_only_the_parameters_it_is_given_are_looked_at() -> None:
    net = model()
    some = list(net.parameters())[:1]
    guard = Guard(net, CPU, some)
    net(torch.randn(8, 4)).sum().backward()
    last = list(net.parameters())[-1]
    assert last.grad is not None
    last.grad.fill_(math.nan)
    guard.check_gradients(scaled=False)
    some.append(last)  # as a parameter group that is added
    with pytest.raises(NonFiniteError):
        guard.check_gradients(scaled=False)


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (-math.inf, "infinite")])
def test_how_it_is_said(value: float, word: str) -> None:
    assert str(NonFiniteError("loss", value)) == f"loss is {word}"
    assert str(NonFiniteError("gradients", value)) == f"gradients are {word}"
