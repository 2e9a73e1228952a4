"""Which operation computed in which type: plain code, experiments, 8 bits, compiled code, files."""

# pyright: reportPrivateUsage=false
# What Dynamo counts, and what a notebook calls to show a view.

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import workbench as wb
from workbench.dtypes import DtypeView
from workbench.dtypes.operation_types import types_of
from workbench.records import DtypeRow, RecordError

ATEN = torch.ops.aten


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(self.up(self.norm(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv(x).flatten(1)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(32, 1, 4, 4), torch.randint(0, 4, (32,))


def experiment(modes: str, folder: Path) -> wb.Experiment:
    torch.manual_seed(0)
    return wb.Experiment(Net(), data(), modes=modes, optimizer="adamw", runs=folder, name="net")


def computed(view: DtypeView, phase: str, op: str) -> set[str]:
    rows = [row for row in view.rows() if row.phase == phase and row.op == f"aten.{op}"]
    assert rows, f"no {op} in {phase}: {sorted({row.op for row in view.rows()})}"
    return {row.computes for row in rows}


def test_under_bf16_products_run_in_bf16_and_the_loss_in_fp32(tmp_path: Path) -> None:
    view = wb.dtypes(experiment("bf16", tmp_path))
    assert computed(view, "forward", "addmm") == {"bfloat16"}
    assert computed(view, "forward", "convolution") == {"bfloat16"}
    assert computed(view, "forward", "native_layer_norm") == {"bfloat16 + float32"}
    assert computed(view, "forward", "_log_softmax") == {"float32"}
    assert computed(view, "backward", "mm") == {"bfloat16"}
    assert {row.computes for row in view.rows() if row.phase == "update"} == {"float32"}
    forward = next(line for line in str(view).splitlines() if line.startswith("Forward:"))
    assert "addmm" in forward
    assert "100 % of the FLOPs" in forward
    # weight and bias of five layers, the batch, and the logits of the loss
    assert sum(r.calls for r in view.rows() if r.phase == "forward" and r.kind == "casts") == 12


def test_fp32_has_no_casts(tmp_path: Path) -> None:
    view = wb.dtypes(experiment("", tmp_path))
    assert {row.computes for row in view.rows()} == {"float32"}
    assert all(row.kind == "computes" for row in view.rows())


def test_flops_and_elements_are_those_of_the_shapes(tmp_path: Path) -> None:
    rows = wb.dtypes(experiment("", tmp_path)).rows("head")
    product = next(row for row in rows if row.op == "aten.addmm")
    assert (product.calls, product.flops, product.elements) == (1, 2 * 32 * 32 * 4, 32 * 4)


def test_modules_are_named_in_forward_and_backward(tmp_path: Path) -> None:
    view = wb.dtypes(experiment("bf16", tmp_path))
    for phase in ("forward", "backward"):
        found = {row.module for row in view.rows("blocks.1") if row.phase == phase}
        assert {"blocks.1", "blocks.1.norm", "blocks.1.up"} <= found
    assert not [row for row in view.rows() if row.phase == "backward" and not row.module]
    assert {row.module for row in view.rows() if row.phase == "update"} == {"optimizer"}
    with pytest.raises(ValueError, match=r"no operation of 'tail'.*blocks\.0\.norm"):
        view.rows("tail")


def test_the_step_is_what_it_would_have_been(tmp_path: Path) -> None:
    seen, plain = (experiment("bf16", tmp_path / name) for name in "ab")
    seen.run(steps=1, wait=True)
    plain.run(steps=1, wait=True)
    wb.dtypes(seen)
    assert not [info for info in seen.captures.infos() if info.step > 2]
    for one in (seen, plain):
        one.run(steps=3 - one.step_count, wait=True)
    for mine, other in zip(seen.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_plain_code_needs_no_names() -> None:
    model, (x, y) = Net(), data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with wb.dtypes() as view:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert view.record.model == "Net"
    assert {row.phase for row in view.rows()} == {"forward", "backward", "update"}
    assert computed(view, "backward", "convolution_backward") == {"bfloat16"}


def test_a_block_that_raises_keeps_what_was_seen() -> None:
    def fails() -> float:
        return float((torch.ones(3) * 2).sum()) / 0

    with pytest.raises(ZeroDivisionError), wb.dtypes() as view:
        fails()
    assert "ended with ZeroDivisionError" in view.record.notes[0]
    assert computed(view, "forward", "mul") == {"float32"}
    with pytest.raises(RuntimeError, match="recorded already"), view:
        pass


def test_what_checkpointing_computes_again_is_backward_and_has_its_module() -> None:
    block = Block()
    x = torch.randn(4, 32, requires_grad=True)
    with wb.dtypes(block) as view:
        checkpoint(block, x, use_reentrant=False).sum().backward()
    again = [r for r in view.rows() if r.phase == "backward" and r.op == "aten.addmm"]
    assert [(row.module, row.calls) for row in again] == [("up", 1)]
    assert computed(view, "backward", "gelu_backward") == {"float32"}


@pytest.mark.parametrize(("mode", "types"), [("fp8", 3), ("fp8-rowwise", 3), ("mxfp8", 3)])
def test_products_in_8_bits_go_by_what_is_multiplied(mode: str, types: int, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    view = wb.dtypes(experiment(mode, tmp_path))
    eight = [row for row in view.rows("blocks") if "float8" in row.computes]
    assert {row.phase for row in eight} == {"forward", "backward"}
    assert all(row.emulated for row in eight) == (not torch.cuda.is_available())
    # output, gradient of the input, gradient of the weight
    assert sum(row.calls for row in eight) == types * 3
    assert computed_of(view.rows("head"), "aten.addmm") == {"bfloat16"}
    assert "emulated" in str(view)


def computed_of(rows: tuple[DtypeRow, ...], op: str) -> set[str]:
    return {row.computes for row in rows if row.op == op}


def test_the_inside_of_compiled_code_is_unknown_and_said_so() -> None:
    model, (x, y) = Net(), data()
    for block in model.blocks:
        block.compile(backend="aot_eager")
    F.cross_entropy(model(x), y).backward()
    counted = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with wb.dtypes(model) as view:
        F.cross_entropy(model(x), y).backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counted
    regions = [row for row in view.rows() if row.kind == "compiled"]
    assert {row.module for row in regions} >= {"blocks.0", "blocks.1", "blocks.2"}
    assert {row.computes for row in regions} == {""}
    assert "compiled regions, types unknown" in str(view)


def test_a_cast_a_view_and_a_number_are_distinguished() -> None:
    wide, narrow = torch.ones(4, 4), torch.ones(4, 4, dtype=torch.bfloat16)
    cast = types_of(ATEN._to_copy.default, (wide,), {}, narrow)
    assert cast is not None
    assert (cast.cast, cast.takes, cast.gives) == (True, "float32", "bfloat16")
    assert types_of(ATEN.t.default, (wide,), {}, wide) is None
    assert types_of(ATEN.add.Tensor, (torch.ones(2).long(),), {}, torch.ones(2).long()) is None
    product = types_of(ATEN.mul.Tensor, (narrow, torch.tensor(2.0)), {}, narrow)
    assert product is not None
    assert product.computes == "bfloat16"
    both = types_of(ATEN.add.Tensor, (narrow, wide), {}, wide)
    assert both is not None
    assert both.computes == "bfloat16 + float32"


@pytest.mark.gpu
def test_tf32_products_go_by_their_own_name() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA: TF32 is an arithmetic of NVIDIA GPUs")
    model = nn.Linear(64, 64, device="cuda")
    modes = wb.Modes("tf32")
    modes.prepare(model)
    with wb.dtypes(model) as view, modes.forward():
        model(torch.ones(8, 64, device="cuda"))
    assert computed(view, "forward", "addmm") == {"tf32"}


def test_saved_opened_and_drawn(tmp_path: Path) -> None:
    view = wb.dtypes(experiment("bf16", tmp_path))
    again = wb.open(view.save(tmp_path / "types.safetensors"))
    assert isinstance(again, DtypeView)
    assert str(again) == str(view)
    assert again.record.modes == "bf16"
    for name in ("types.txt", "types.html", "types.svg", "types.png"):
        assert view.save(tmp_path / name).stat().st_size > 500
    with pytest.raises(ValueError, match="a table of types is saved as"):
        view.save(tmp_path / "types.csv")
    shown, _ = view._repr_mimebundle_()
    assert "<table>" in shown["text/html"]
    assert len(shown["text/html"]) < 30_000
    labels = [text.get_text() for text in view.figure().axes[0].get_yticklabels()]
    assert "forward, FLOPs of products" in labels


def test_what_is_given_and_what_a_file_says_is_checked(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="dtypes\\(\\) got int; it takes an Experiment"):
        wb.dtypes(3)  # pyright: ignore[reportArgumentType, reportCallIssue] - what is tested
    with pytest.raises(FileNotFoundError, match="there is no file"):
        wb.dtypes(tmp_path / "none.safetensors")
    with pytest.raises(RuntimeError, match="nothing is recorded yet"):
        str(wb.dtypes())
    record = wb.dtypes(experiment("", tmp_path)).record
    broken = replace(record, row_op=record.row_op + len(record.strings))
    path = broken.save(tmp_path / "broken.safetensors")
    with pytest.raises(RecordError, match="row_op"):
        wb.open(path)


class Attends(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q)


def test_fused_attention_multiplies_the_inputs_that_it_gets() -> None:
    """The sums of its rows, in float32, are kept for backward and multiply nothing."""
    model, q = Attends(), torch.randn(2, 2, 8, 16, dtype=torch.bfloat16, requires_grad=True)
    with wb.dtypes(model) as view:
        model(q).sum().backward()
    attention = [row for row in view.rows() if "scaled_dot_product" in row.op]
    assert len(attention) == 2
    assert {row.computes for row in attention} == {"bfloat16"}
    assert "float32" in attention[0].gives
