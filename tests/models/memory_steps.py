"""Training steps that make accounts of memory hard: each a function that runs one step."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

Step = Callable[[], object]
WIDTH = 128


def mlp(depth: int = 3, width: int = WIDTH, classes: int = 10) -> nn.Sequential:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def batch(size: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, WIDTH), torch.arange(size) % 10


def plain(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None, size: int = 256
) -> Step:
    """Forward, backward, step; every other case is this with one thing changed."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    x, y = batch(size)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def gradient_accumulation() -> Step:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = batch()

    def step() -> None:
        optimizer.zero_grad()
        for part, labels in zip(x.chunk(4), y.chunk(4), strict=True):
            (F.cross_entropy(model(part), labels) / 4).backward()
        optimizer.step()

    return step


def gradients_zeroed_and_kept() -> Step:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = batch()

    def step() -> None:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()

    return step


def in_place_operations() -> Step:
    return plain(
        nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH), nn.Hardtanh(inplace=True), nn.Linear(WIDTH, 10),
        )
    )  # fmt: skip


class Tied(nn.Module):
    """One table embeds and scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WIDTH, 64)
        self.score = nn.Linear(64, WIDTH, bias=False)
        self.score.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(self.embed(x.abs().long() % WIDTH)).mean(1)


def shared_parameters() -> Step:
    return plain(Tied(), size=16)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(mlp(1, classes=WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def reentrant_checkpointing() -> Step:
    return plain(Checkpointed(reentrant=True), size=1024)


def checkpointing() -> Step:
    return plain(Checkpointed(reentrant=False), size=1024)


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(x).float()


def autocast() -> Step:
    return plain(Autocast())


def for_loop_optimizer() -> Step:
    model = mlp()
    return plain(model, torch.optim.AdamW(model.parameters(), foreach=False), 8)


def foreach_optimizer() -> Step:
    model = mlp()
    return plain(model, torch.optim.AdamW(model.parameters(), foreach=True), 8)


def fused_optimizer() -> Step:
    """Its step allocates nothing once its state is there."""
    model = mlp()
    return plain(model, torch.optim.AdamW(model.parameters(), fused=True), 8)


class Gate(torch.autograd.Function):
    """``x * exp(x)`` with what its backward needs saved by hand."""

    @staticmethod
    def forward(ctx, x):
        power = x.exp()
        ctx.save_for_backward(x, power)
        return x * power

    @staticmethod
    def backward(ctx, grad):
        x, power = ctx.saved_tensors
        return grad * (power + x * power)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(Gate.apply(self.first(x)))


def custom_function() -> Step:
    return plain(Gated())


def clipped_gradients() -> Step:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = batch(8)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def scaled_gradients() -> Step:
    """Momentum is updated in place: this step allocates nothing either."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    x, y = batch(8)

    def step() -> None:
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def moving_average() -> Step:
    model = mlp()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    inner = plain(model, size=8)

    def step() -> None:
        inner()
        average.update_parameters(model)

    return step


def step_by_hand() -> Step:
    model = mlp()
    x, y = batch(8)

    def step() -> None:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01 * parameter.grad)

    return step


def evaluation() -> Step:
    model = mlp()
    x, _ = batch()

    def step() -> None:
        with torch.no_grad():
            model(x).argmax(1)

    return step


def optimizer_with_a_closure() -> Step:
    """Two steps of LBFGS: each runs several forwards and backwards inside itself."""
    model = mlp(1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=3)
    x, y = batch()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    def step() -> None:
        optimizer.step(closure)
        optimizer.step(closure)

    return step


def everything_made_inside() -> Step:
    def step() -> None:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            x, y = torch.randn(256, WIDTH), torch.randint(0, 10, (256,))
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return step


def gradient_penalty() -> Step:
    """A gradient of a gradient, with respect to an input made for the purpose."""
    model = mlp(2)
    optimizer = torch.optim.AdamW(model.parameters())
    data, _ = batch()

    def step() -> None:
        optimizer.zero_grad()
        x = data.clone().requires_grad_()
        out = model(x).sum()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        (out + slope.pow(2).mean()).backward()
        optimizer.step()

    return step


def gradients_asked_for() -> Step:
    model = mlp()
    x, y = batch(8)
    parameters = list(model.parameters())

    def step() -> None:
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient, alpha=-0.01)

    return step


def gradients_per_sample() -> Step:
    model = mlp(1, 32)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    x, y = torch.randn(32, 32), torch.arange(32) % 10

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    return lambda: vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)


def shuffled_loader() -> Step:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(*batch()), batch_size=128, shuffle=True)

    def step() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return step


def two_models_against_each_other() -> Step:
    maker, judge = mlp(2, classes=WIDTH), mlp(2, classes=1)
    makers, judges = (torch.optim.Adam(model.parameters()) for model in (maker, judge))
    noise, real = batch()[0], batch()[0]

    def step() -> None:
        judges.zero_grad()
        fake = maker(noise)
        (judge(fake.detach()).mean() - judge(real).mean()).backward()
        judges.step()
        makers.zero_grad()
        (-judge(fake).mean()).backward()
        makers.step()

    return step


STEPS = (
    gradient_accumulation, gradients_zeroed_and_kept, in_place_operations, shared_parameters,
    reentrant_checkpointing, checkpointing, autocast, for_loop_optimizer, foreach_optimizer,
    fused_optimizer, custom_function, clipped_gradients, scaled_gradients, moving_average,
    step_by_hand, evaluation, optimizer_with_a_closure, everything_made_inside, gradient_penalty,
    gradients_asked_for, gradients_per_sample, shuffled_loader, two_models_against_each_other,
)  # fmt: skip


def ready(make: Callable[[], Step]) -> Step:
    """The step after one of its kind, without gradients: optimizer state is there already."""
    torch.manual_seed(0)
    step = make()
    step()
    for item in gc.get_objects():
        if type(item) is nn.Parameter:
            item.grad = None
    gc.collect()
    return step
