"""One peer draws ResNet-50 in a process of its own: some replace functions of torch for good.

``python -m tests.benchmarks.graph_peers NAME ROUNDS`` prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F

from tests.models.resnet import ResNet

PEERS_FOLDER = Path(__file__).parents[2] / ".cache" / "peers"
"""Where peers are found that cannot be installed beside our tests: torchvista's wheel brings a
package called ``tests``. ``pip install --no-deps --target .cache/peers torchvista``."""
sys.path.append(str(PEERS_FOLDER))


@dataclass(frozen=True)
class Drawn:
    """What came out: nodes (0 where it does not say), and bytes of the text or page with them."""

    nodes: int
    output: int


class Scene:
    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = ResNet()
        self.x, self.y = torch.randn(1, 3, 224, 224), torch.zeros(1).long()

    def loss(self) -> torch.Tensor:
        return F.cross_entropy(self.model(self.x), self.y)


def workbench(scene: Scene) -> Drawn:
    import workbench as wb

    with wb.graph(scene.model):
        loss = scene.loss()
    view = wb.graph(loss)
    return Drawn(len(view.record.node_type), len(view.record.to_bytes()))


def torchviz(scene: Scene) -> Drawn:
    from torchviz import make_dot

    dot = make_dot(scene.loss(), params=dict(scene.model.named_parameters()), show_saved=True)
    nodes = sum("[label=" in line or "fillcolor" in line for line in dot.body if "->" not in line)
    return Drawn(nodes, len(dot.source))


def torchview(scene: Scene) -> Drawn:
    from torchview import draw_graph

    drawn = draw_graph(scene.model, input_data=scene.x, expand_nested=True, depth=9, mode="train")
    dot = drawn.visual_graph
    nodes = sum("[label=" in line for line in dot.body if "->" not in line)
    return Drawn(nodes, len(dot.source))


def torchlens(scene: Scene) -> Drawn:
    import torchlens as tl

    trace = tl.trace(scene.model, scene.x)
    drawn = Drawn(len(trace.layers), 0)
    trace.cleanup()
    return drawn


def torchvista(scene: Scene) -> Drawn:
    from torchvista import trace_model

    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "graph.html"
        trace_model(
            scene.model, scene.x, collapse_modules_after_depth=9, export_format="html",
            export_path=str(path),
        )  # fmt: skip
        files = list(Path(folder).iterdir())
        return Drawn(0, sum(file.stat().st_size for file in files))


PEERS: dict[str, Callable[[Scene], Drawn]] = {
    "workbench": workbench,
    "torchviz": torchviz,
    "torchview": torchview,
    "torchlens": torchlens,
    "torchvista": torchvista,
}
DISTRIBUTION = {"workbench": "torch-workbench"}


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Each drawing between two plain forwards of the loss, in processor time of the one thread."""
    scene, draw = Scene(), PEERS[name]
    started = time.process_time()
    drawn = draw(scene)
    first_ms = 1e3 * (time.process_time() - started)
    plain, whole = [timed(scene.loss)], []
    for _ in range(rounds):
        whole.append(timed(lambda: draw(scene)))
        plain.append(timed(scene.loss))
    beside = [(a + b) / 2 for a, b in pairwise(plain)]
    return {
        "version": version(DISTRIBUTION.get(name, name)),
        "first_ms": first_ms,
        "extra_ms": [a - b for a, b in zip(whole, beside, strict=True)],
        "plain_ms": beside,
        "nodes": drawn.nodes,
        "output_bytes": drawn.output,
    }


def timed(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return 1e3 * (time.process_time() - started)


if __name__ == "__main__":
    print("RESULT" + json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
