"""What a prediction costs beside a plain step of the same model on the CPU.

Fake tensors cost by the operation, not by the byte: a prediction runs two steps with the batch and
two with twice as many samples, and then a simulated allocator; what a large batch makes longer is
the plain step alone. So a prediction is judged beside one step of the same model under torch's own
`FakeTensorMode`. Times are processor time on one thread.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from tests.benchmarks.table import median, ratio_line, ratios, versions
from tests.benchmarks.test_memory_recorder import CASES, Loop, milliseconds, row
from tests.models.resnet import ResNet
from workbench.experiment import Experiment
from workbench.memory import MemoryProbe
from workbench.memory.prediction.batch_growth_capture import with_determined_growth
from workbench.memory.prediction.predict import predicted_step

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]
ROUNDS = 5
MODELS = {
    **CASES,
    "ResNet-50, 8 x 64 px": lambda: (ResNet(), torch.randn(8, 3, 64, 64)),
    "ResNet-50, 8 x 224 px": lambda: (ResNet(), torch.randn(8, 3, 224, 224)),
}
AT_MOST = 12.0
"""Times a step of the same model under torch's `FakeTensorMode`."""


def on_fake_tensors(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> Callable[[], None]:
    """A step without data, by torch alone."""
    mode, (model, x) = FakeTensorMode(), make()
    without_data = model._apply(mode.from_tensor), mode.from_tensor(x)
    with mode:
        loop = Loop(lambda: without_data)

    def step() -> None:
        with mode:
            loop.plain()

    return step


def experiment(loop: Loop, folder: Path) -> Experiment:
    """In the middle of a training: the optimizer has its state."""
    exp = Experiment(
        loop.model,
        (loop.x, loop.y),
        batch_size=len(loop.x),
        optimizer=loop.optimizer,
        runs=folder,
    )
    exp.run(steps=1, wait=True)
    return exp


@pytest.mark.parametrize("name", MODELS)
def test_a_prediction_beside_a_plain_step(name: str, tmp_path: Path) -> None:
    loop = Loop(MODELS[name])
    exp = experiment(loop, tmp_path)
    record = exp.capture(MemoryProbe()).wait()
    first = milliseconds(lambda: predicted_step(exp, "RTX 4090"))
    gc.collect()
    fake_step = on_fake_tensors(MODELS[name])
    plain, fake, predicted, growth = [], [], [], []
    for _ in range(ROUNDS):
        fake.append(milliseconds(fake_step))
        plain.append(milliseconds(loop.plain))
        predicted.append(milliseconds(lambda: predicted_step(exp, "RTX 4090")))
        growth.append(milliseconds(lambda: with_determined_growth(exp, record)))
    exp.close()
    base = median(plain)
    print(f"\n{name}, {loop.num_operations:,} operations, {versions('torch')}, one thread")
    print(row("plain step, processor time", plain, "ms"))
    print(f"  {'first prediction':34} {first / base:9.3f}  [x plain]")
    print(row("prediction", [value / base for value in predicted], "x plain"))
    print(row("growth of a captured step", [value / base for value in growth], "x plain"))
    each = 1e3 * min(predicted) / loop.num_operations
    print(f"  {'prediction, for each operation':34} {each:9.1f}  [us]")
    print(row("a step on fake tensors", [value / base for value in fake], "x plain"))
    over = ratios(predicted, fake)
    print(" ", ratio_line("prediction over a step on fake tensors", over, AT_MOST))
    assert median(over) <= AT_MOST
