# ruff: noqa: D102, D103, PLR0917, S101 - a script that makes pictures to look at, not a library
"""Makes graph records to look at: shapes of well-known networks, and one long chain.

Usage: python graph_records.py OUT_FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from workbench.records import GraphModule, GraphRecord, SourceLine


class Builder:
    """Collects nodes call by call and packs them into a record."""

    def __init__(self, title: str, model: str) -> None:
        self.title, self.model = title, model
        self.strings: dict[str, int] = {}
        self.modules: dict[str, tuple[str, int, int]] = {"": (model, -1, 0)}
        self.rows: list[tuple[int, ...]] = []
        self.edges: list[tuple[int, int, int]] = []
        self.sources: list[SourceLine] = []
        self.parameter_bytes = 0

    def text(self, value: str) -> int:
        return self.strings.setdefault(value, len(self.strings))

    def module(self, path: str, cls: str = "Module") -> int:
        if path not in self.modules:
            parent = -1 if path == "loss" else self.module(path.rpartition(".")[0])
            self.modules[path] = (cls if path != "loss" else "", parent, len(self.modules))
        return self.modules[path][2]

    def op(
        self,
        name: str,
        path: str,
        inputs: Iterable[int],
        shape: tuple[int, ...],
        saved: int = 0,
        shared: int = 0,
        cls: str = "Module",
        params: Iterable[tuple[str, tuple[int, ...]]] = (),
    ) -> int:
        module = self.module(path, cls)
        leaves = [self._leaf(path, module, *param) for param in params]
        size = 4
        for dim in shape:
            size *= dim
        row = len(self.rows)
        line = len(self.sources)
        self.sources.append(
            SourceLine(
                filename="cell",
                line=line % 40 + 1,
                cell=4,
                function="forward",
                text=f"    x = self.{path.rpartition('.')[2] or name}(x)",
            )
        )
        kind = "".join(part.capitalize() for part in name.split("_"))
        label = "×".join(map(str, shape)) or "scalar"
        columns = (self.text(f"{kind}Backward0"), self.text(name), 0, module, row, row)
        self.rows.append(
            (
                *columns,
                self.text(label),
                self.text("float32"),
                size,
                self.text(""),
                line,
                saved,
                shared,
            )
        )
        for source in [*inputs, *leaves]:
            self.edges.append((source, row, self.rows[source][8]))
        return row

    def _leaf(self, path: str, module: int, name: str, shape: tuple[int, ...]) -> int:
        size = 4
        for dim in shape:
            size *= dim
        self.parameter_bytes += size
        label = "×".join(map(str, shape))
        columns = (self.text("AccumulateGrad"), self.text("parameter"), 1, module, -1, -1)
        full = f"{path}.{name}" if path else name
        self.rows.append(
            (*columns, self.text(label), self.text("float32"), size, self.text(full), -1, 0, 0)
        )
        return len(self.rows) - 1

    def build(self, root: int, loss: float) -> GraphRecord:
        columns = list(zip(*self.rows, strict=True))
        edges = list(zip(*self.edges, strict=True))
        ordered = sorted(self.modules.items(), key=lambda item: item[1][2])
        return GraphRecord(
            title=self.title,
            model=self.model,
            experiment=None,
            step=42,
            loss=loss,
            device="cpu",
            torch_version="2.13.0",
            captured_at=time.time(),
            notes=(),
            strings=tuple(self.strings),
            modules=tuple(GraphModule(path=p, cls=c, parent=up) for p, (c, up, _) in ordered),
            sources=tuple(self.sources),
            node_type=columns[0],
            node_op=columns[1],
            node_kind=columns[2],
            node_module=columns[3],
            node_call=columns[4],
            node_sequence=columns[5],
            node_shape=columns[6],
            node_dtype=columns[7],
            node_output_bytes=columns[8],
            node_name=columns[9],
            node_source=columns[10],
            node_saved_bytes=columns[11],
            node_shared_bytes=columns[12],
            edge_from=edges[0],
            edge_to=edges[1],
            edge_bytes=edges[2],
            root=root,
            saved_bytes=sum(columns[11]),
            parameter_bytes=self.parameter_bytes,
            buffer_bytes=0,
            input_bytes=1_572_864,
        )


def conv_norm(
    b: Builder, x: int | None, path: str, conv: str, norm: str, shape: tuple[int, ...]
) -> int:
    """A convolution and its batch norm, as two one-operation modules."""
    size = 4
    for dim in shape:
        size *= dim
    prefix = f"{path}." if path else ""
    width = shape[1]
    y = b.op(
        "conv2d",
        f"{prefix}{conv}",
        [] if x is None else [x],
        shape,
        shared=size,
        cls="Conv2d",
        params=[("weight", (width, width, 3, 3))],
    )
    return b.op(
        "batch_norm",
        f"{prefix}{norm}",
        [y],
        shape,
        saved=size,
        cls="BatchNorm2d",
        params=[("weight", (width,)), ("bias", (width,))],
    )


def residual(
    b: Builder, x: int, path: str, shape: tuple[int, ...], convs: int, project: bool
) -> int:
    """A residual block; with ``project`` the skip has its own convolution."""
    size = 4
    for dim in shape:
        size *= dim
    b.module(path, "Bottleneck")
    y = x
    for index in range(1, convs + 1):
        y = conv_norm(b, y, path, f"conv{index}", f"bn{index}", shape)
        if index < convs:
            y = b.op("relu", f"{path}.relu", [y], shape, saved=size, cls="ReLU")
    skip = conv_norm(b, x, f"{path}.downsample", "0", "1", shape) if project else x
    y = b.op("add", path, [y, skip], shape)
    return b.op("relu", f"{path}.relu", [y], shape, saved=size, cls="ReLU")


def resnet50() -> GraphRecord:
    b = Builder("ResNet-50, step 42", "ResNet")
    x = conv_norm(b, None, "", "conv1", "bn1", (16, 64, 112, 112))
    x = b.op("relu", "relu", [x], (16, 64, 112, 112), saved=51_380_224, cls="ReLU")
    x = b.op("max_pool2d", "maxpool", [x], (16, 64, 56, 56), saved=25_690_112, cls="MaxPool2d")
    for layer, (blocks, width, side) in enumerate(
        [(3, 256, 56), (4, 512, 28), (6, 1024, 14), (3, 2048, 7)], start=1
    ):
        b.module(f"layer{layer}", "Sequential")
        for block in range(blocks):
            x = residual(b, x, f"layer{layer}.{block}", (16, width, side, side), 3, block == 0)
    x = b.op("adaptive_avg_pool2d", "avgpool", [x], (16, 2048, 1, 1), cls="AdaptiveAvgPool2d")
    x = b.op("flatten", "", [x], (16, 2048))
    x = b.op(
        "linear",
        "fc",
        [x],
        (16, 1000),
        saved=131_072,
        cls="Linear",
        params=[("weight", (1000, 2048)), ("bias", (1000,))],
    )
    x = b.op("cross_entropy", "loss", [x], (), saved=64_000)
    return b.build(x, 6.907)


def early_exit() -> GraphRecord:
    b = Builder("EarlyExitCNN, step 42", "EarlyExitCNN")
    x: int | None = None
    aux = -1
    for block, shape in enumerate(
        [(128, 32, 32, 32), (128, 64, 16, 16), (128, 128, 8, 8)], start=1
    ):
        path = f"block{block}"
        size = 4 * shape[0] * shape[1] * shape[2] * shape[3]
        b.module(path, "Block")
        y = conv_norm(b, x, path, "conv", "norm", shape)
        skip = b.op(
            "conv2d",
            f"{path}.skip",
            [] if x is None else [x],
            shape,
            shared=size,
            cls="Conv2d",
            params=[("weight", (shape[1], shape[1] // 2, 1, 1))],
        )
        y = b.op("add", path, [y, skip], shape)
        x = b.op("relu", path, [y], shape, saved=size)
        if block == 2:
            m = b.op("mean", "aux", [x], (128, 64), cls="ExitHead")
            aux = b.op(
                "linear",
                "aux.fc",
                [m],
                (128, 10),
                saved=32_768,
                cls="Linear",
                params=[("weight", (10, 64)), ("bias", (10,))],
            )
    assert x is not None
    b.module("head", "Head")
    x = b.op("mean", "head", [x], (128, 128))
    x = b.op(
        "linear",
        "head.fc",
        [x],
        (128, 10),
        saved=65_536,
        cls="Linear",
        params=[("weight", (10, 128)), ("bias", (10,))],
    )
    late = b.op("cross_entropy", "loss", [x], (), saved=5_120)
    early = b.op("cross_entropy", "loss", [aux], (), saved=5_120)
    scaled = b.op("mul", "loss", [early], (), saved=8)
    total = b.op("add", "loss", [late, scaled], ())
    return b.build(total, 0.377)


def dense() -> GraphRecord:
    b = Builder("DenseNet, step 42", "DenseNet")
    x = conv_norm(b, None, "features", "conv0", "norm0", (16, 64, 56, 56))
    for block, layers in enumerate([6, 12, 24, 16], start=1):
        features = [x]
        base = f"features.denseblock{block}"
        b.module(base, "_DenseBlock")
        for layer in range(1, layers + 1):
            path = f"{base}.denselayer{layer}"
            b.module(path, "_DenseLayer")
            width = 64 + 32 * layer
            y = b.op("cat", path, features, (16, width, 28, 28), saved=0)
            y = conv_norm(b, y, path, "conv1", "norm1", (16, 128, 28, 28))
            y = b.op("relu", f"{path}.relu", [y], (16, 128, 28, 28), saved=6_422_528)
            y = b.op(
                "conv2d",
                f"{path}.conv2",
                [y],
                (16, 32, 28, 28),
                shared=6_422_528,
                cls="Conv2d",
                params=[("weight", (32, 128, 3, 3))],
            )
            features.append(y)
        x = b.op("cat", base, features, (16, 64 + 32 * layers, 28, 28))
        if block < 4:
            path = f"features.transition{block}"
            b.module(path, "_Transition")
            x = conv_norm(b, x, path, "conv", "norm", (16, 128, 28, 28))
            x = b.op("avg_pool2d", f"{path}.pool", [x], (16, 128, 14, 14), saved=1_605_632)
    x = b.op(
        "linear",
        "classifier",
        [x],
        (16, 1000),
        saved=65_536,
        cls="Linear",
        params=[("weight", (1000, 1024)), ("bias", (1000,))],
    )
    x = b.op("cross_entropy", "loss", [x], (), saved=64_000)
    return b.build(x, 6.9)


def chain(length: int = 50_000) -> GraphRecord:
    b = Builder("Chain, step 42", "Recurrence")
    x = b.op("linear", "", [], (32, 64), saved=8_192)
    for index in range(length):
        name = ("mul", "add", "tanh", "sub")[index % 4]
        x = b.op(name, "", [x], (32, 64), saved=8_192 * (index % 4 == 2))
    return b.build(x, 1.25)


def hostile() -> GraphRecord:
    b = Builder("<script>alert(1)</script>\n" * 40, "<img src=x onerror=alert(1)>")
    x = b.op("linear", "a" * 10_000, [], (2, 2), saved=16, cls="<b>" * 500)
    x = b.op("relu", "a" * 10_000, [x], (2, 2), saved=16)
    x = b.op(
        "new\nline\r\n\t" * 50,
        "<script>.two\nlines",
        [x],
        (2, 2),
        saved=16,
        params=[("w" * 10_000, (2, 2))],
    )
    x = b.op("\u202ertl<i>", "<script>.two\nlines", [x], (), saved=4)
    return b.build(x, float("nan"))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    makers = {
        "resnet50": resnet50,
        "early_exit": early_exit,
        "dense": dense,
        "chain": chain,
        "hostile": hostile,
    }
    for name, make in makers.items():
        make().save(folder / f"{name}.wb")


if __name__ == "__main__":
    main()
