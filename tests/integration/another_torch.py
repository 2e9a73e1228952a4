"""A person's session with a torch that lacks one private name.

Run as a program with names as arguments; for each it prints a line of JSON: what training, graphs,
memory and data types came to. Torch is imported once, and a process is forked for each name before
anything of Workbench is imported and before torch has computed anything.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

_IMPORTED_ONCE = (
    "torch",
    "numpy",
    "IPython",
    "anywidget",
    "ipywidgets",
    "jinja2",
    "matplotlib.figure",
    "psutil",
    "tensorboard.compat.proto.event_pb2",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.utils.tensorboard",
)


def session(name: str) -> dict[str, Any]:
    """What a person gets without ``name``: losses and notes, or the error's text."""
    from contextlib import ExitStack

    import torch
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode

    from tests.unit.torch_private.taken_away import taken_away

    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def data() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(1)
        return torch.randn(24, 4), torch.arange(24) % 2

    def plain() -> list[float]:
        net, (x, y) = model(), data()
        net.register_forward_hook(lambda *_: None).remove()
        with TorchDispatchMode():
            pass
        optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
        for batch in range(3):
            rows = slice(8 * batch, 8 * batch + 8)
            loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    found: dict[str, Any] = {"name": name}
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        if name:
            stack.enter_context(taken_away(name))
        # the first thing: torch itself may be unable to do without it
        found["plain"] = outcome(plain)
        if isinstance(found["plain"], str):
            return found
        try:
            import workbench as wb

            exp = wb.Experiment(
                model(), data(), optimizer="sgd", lr=0.1, batch_size=8, shuffle=False, runs=folder
            )
        except Exception as error:
            found["made"] = f"{type(error).__name__}: {error}"
            return found

        def train() -> list[float]:
            exp.run(steps=3, wait=True)
            return [float(one) for one in exp.scalars.history()["train/loss"]["value"]]

        def of_loss() -> list[str]:
            net, (x, y) = model(), data()
            return [*wb.graph(nn.functional.cross_entropy(net(x), y)).record.notes]

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found["own loop"] = outcome(lambda: own_loop(model(), *data()))
        found["own loop's warnings"] = [str(one.message) for one in warned]
        found["training"] = outcome(train)
        found["training notes"] = list(exp.notes)
        found["graph of a loss"] = outcome(of_loss)
        found["graph of a step"] = outcome(lambda: [*wb.graph(exp).record.notes])
        found["memory"] = outcome(lambda: [*wb.memory(exp).record.notes])
        found["types"] = outcome(lambda: [*wb.dtypes(exp).record.notes])
        found["notes"] = list(exp.notes)
        found["losses after"] = outcome(train)
        exp.close()
    return found


def own_loop(model: Any, x: Any, y: Any) -> list[float]:
    """Losses of a loop of one's own under fp16."""
    import torch

    import workbench as wb

    modes = wb.Modes("fp16")
    modes.prepare(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for inputs, labels in zip(x.split(8), y.split(8), strict=True):
        with modes.forward():
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        with modes.update(loss, optimizer):
            pass
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def outcome(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or the text of what it raises."""
    try:
        return work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(names: list[str]) -> None:
    """Print a line for each name."""
    for module in _IMPORTED_ONCE:
        importlib.import_module(module)
    gc.freeze()  # no process searches for garbage in what all of them share
    for name in names:
        sys.stdout.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        try:
            print(json.dumps(session(name)), flush=True)
        finally:
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
