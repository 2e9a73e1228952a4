"""One filled-in record of every packed kind, and the copies that the TypeScript tests read.

``python -m tests.unit.records.support`` writes the copies anew after a record has changed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.records import (
    CATEGORIES,
    Branch,
    Certificate,
    ComparedArm,
    CompareRecord,
    CompiledKernel,
    CompiledRegion,
    CompileRecord,
    CompileSwitch,
    DiffSide,
    DtypeRecord,
    FlowRow,
    GradientFlow,
    GraphBreak,
    GraphDiff,
    GraphModule,
    GraphRecord,
    MemoryChart,
    MemoryRecord,
    NonFinite,
    Phase,
    Recompile,
    Record,
    Remedy,
    SourceLine,
    Unreached,
)

FIXTURES = Path(__file__).parents[3] / "extensions" / "records" / "test" / "fixtures"
DEVICE_ADDRESS = 0x7F12_3456_7000
"""Above 2**32, so that a reader that drops the high word is caught."""


def graph_record() -> GraphRecord:
    """``loss = cross_entropy(linear(x))``: a parameter, two operations, and their edges."""
    line = SourceLine(filename="<ipython>", line=3, cell=2, function="forward", text="x = f(x)")
    return GraphRecord(
        title="graph of exp, step 7",
        model="Net",
        experiment="exp-1",
        step=7,
        loss=float("nan"),
        device="cpu",
        torch_version="2.13.0",
        captured_at=1_700_000_000.5,
        notes=("one note",),
        strings=("", "AddmmBackward0", "linear", "128×10", "float32", "head.weight", "Größe\n<b>"),
        modules=(_module("", "Net", -1, 0.25), _module("head", "Linear", 0, None)),
        sources=(line,),
        node_type=np.array([0, 1, 1]),
        node_op=np.array([0, 2, 2]),
        node_kind=np.array([1, 0, 0]),
        node_module=np.array([1, 1, 0]),
        node_call=np.array([-1, 4, 5]),
        node_sequence=np.array([-1, 2**40, 2**40 + 1]),
        node_shape=np.array([3, 3, 3]),
        node_dtype=np.array([4, 4, 4]),
        node_output_bytes=np.array([40, 80, 2**33]),
        node_name=np.array([5, 0, 0]),
        node_source=np.array([-1, 0, -1]),
        node_saved_bytes=np.array([0, 512, 4]),
        node_shared_bytes=np.array([0, 0, 512]),
        edge_from=np.array([0, 1]),
        edge_to=np.array([1, 2]),
        edge_bytes=np.array([40, 80]),
        storage_bytes=np.array([512, 2**33]),
        storage_kind=np.array([0, 1]),
        hold_node=np.array([1, 1, 2]),
        hold_storage=np.array([0, 1, 0]),
        hold_name=np.array([6, 5, 6]),
        hold_shape=np.array([3, 3, 3]),
        node_gradient_norm=np.array([0.5, np.nan, np.inf]),
        node_gradient_max=np.array([0.25, np.nan, np.inf]),
        node_gradient_zeros=np.array([0.75, np.nan, 0.0]),
        node_gradient_non_finite=np.array([0, -1, 2**33]),
        bin_node=np.array([0, 0]),
        bin_power=np.array([-3, 0]),
        bin_share=np.array([0.25, 0.5]),
        gradients=True,
        non_finite=NonFinite(node=2, in_forward=False, samples=(1, 5), text="not finite"),
        unreached=(Unreached(name="tail.bias", reason="frozen", text="it is frozen", source=-1),),
        branches=(
            Branch(
                condition="sure > 0.5",
                values="0.25 > 0.5",
                taken=False,
                module=1,
                source=0,
                before=1,
                after=2,
            ),
        ),
        inner_node=np.array([1, 1]),
        inner_op=np.array([2, 1]),
        inner_module=np.array([1, 0]),
        inner_shape=np.array([3, 3]),
        inner_dtype=np.array([4, 4]),
        inner_source=np.array([0, -1]),
        inner_ends=np.array([1, 2]),
        link_from=np.array([0]),
        link_to=np.array([1]),
        root=2,
        saved_bytes=516,
        parameter_bytes=40,
        buffer_bytes=0,
        input_bytes=8,
    )


def _module(path: str, cls: str, parent: int, forward_s: float | None) -> GraphModule:
    return GraphModule(path=path, cls=cls, parent=parent, forward_s=forward_s)


def graph_diff() -> GraphDiff:
    """``graph_record()`` against one without its last operation and with a smaller first one."""
    union = graph_record()
    columns = {field.name: getattr(union, field.name) for field in dataclasses.fields(union)}
    return GraphDiff(
        **columns,
        a=_side("step 7", None),
        b=_side("step 8", 0.25),
        sentence="One operation left the graph.",
        cause_source=0,
        node_state=np.array([0, 3, 1]),
        node_a=np.array([0, 1, 2]),
        node_b=np.array([0, 1, -1]),
        node_shape_b=np.array([3, 6, -1]),
        node_dtype_b=np.array([4, 4, -1]),
        node_source_b=np.array([-1, 0, -1]),
        node_saved_bytes_b=np.array([0, 2**33, -1]),
        node_shared_bytes_b=np.array([0, 0, -1]),
        node_gradient_norm_b=np.array([0.125, np.nan, np.nan]),
        node_gradient_non_finite_b=np.array([0, -1, -1]),
        edge_state=np.array([0, 1]),
        edge_bytes_b=np.array([40, -1]),
    )


def _side(title: str, gradient_norm: float | None) -> DiffSide:
    return DiffSide(
        title=title,
        model="Net",
        experiment=None,
        step=7,
        loss=0.5,
        device="cpu",
        torch_version="2.13.0",
        captured_at=1_700_000_000.5,
        root=2,
        num_operations=2,
        num_parameters=1,
        saved_bytes=516,
        parameter_bytes=40,
        buffer_bytes=0,
        input_bytes=8,
        gradients=gradient_norm is not None,
        gradient_norm=gradient_norm,
    )


def memory_record() -> MemoryRecord:
    """A parameter that was there before, an activation freed half-way, a gradient that stays."""
    return MemoryRecord(
        title="memory of exp, step 7",
        experiment=None,
        step=7,
        device="cuda:0",
        basis="block bytes of the caching allocator",
        torch_version="2.13.0",
        captured_at=1_700_000_000.0,
        notes=(),
        batch_size=32,
        is_predicted=False,
        card="RTX 4090",
        card_bytes=2**34,
        settings="expandable_segments:True",
        peak_interval=(-1, 2**33),
        reasons=("a workspace is not known",),
        strings=("", "aten.mm", "head.weight"),
        sources=(
            SourceLine(filename="train.py", line=7, function="train"),
            SourceLine(filename="model.py", line=9, function="forward"),
        ),
        phases=(Phase(name="forward", start=0, end=1), Phase(name="backward", start=1, end=3)),
        event_time_us=np.array([5, 17, 2**41, 2**41]),
        event_kind=np.array([0, 0, 2, 8]),
        block_start=np.array([-1, 0, 1]),
        block_end=np.array([-1, 2, -1]),
        block_pending=np.array([-1, 1, -1]),
        block_bytes=np.array([1024, 4096, 1024]),
        block_requested=np.array([1000, 4096, 1024]),
        block_category=np.array([0, 4, 3]),
        block_op=np.array([0, 1, 1]),
        block_name=np.array([2, 0, 0]),
        block_module=np.array([0, 0, 0]),
        block_source=np.array([-1, 1, -1]),
        block_call=np.array([-1, 1, -1]),
        block_growth=np.array([0, 1, 2]),
        call_parent=np.array([-1, 0]),
        call_source=np.array([0, 1]),
        block_address=np.array([DEVICE_ADDRESS, DEVICE_ADDRESS + 1024, -1]),
        block_segment=np.array([0, 0, -1]),
        block_stream=np.array([0, 2**40, 0]),
        peak_event=1,
        peak_bytes=6144,
        reserved_bytes=2**21,
        segment_start=np.array([-1]),
        segment_end=np.array([-1]),
        segment_address=np.array([DEVICE_ADDRESS]),
        segment_bytes=np.array([2**21]),
        segment_stream=np.array([0]),
        segment_pool=np.array([0]),
        segment_expandable=np.array([0]),
        segment_private=np.array([0]),
        oom_event=np.array([3]),
        oom_bytes=np.array([2**35]),
        oom_free=np.array([2**33]),
        oom_largest=np.array([2**32]),
        obstacle_oom=np.array([0]),
        obstacle_block=np.array([2]),
        remedies=(
            Remedy(
                name="bf16",
                code='exp.modes += "bf16"',
                peak_bytes=2**32,
                fits=True,
                cost="rounding",
                basis="this step run again",
            ),
        ),
        certificate=Certificate(
            addresses=2,
            num_addresses=2,
            segments=0,
            num_segments=0,
            releases=0,
            num_releases=0,
            blocks=1,
            num_blocks=2,
            num_inferred=1,
            first_difference="block 1 lies elsewhere",
            settings="max_split_size_mb:128",
            cases=("small pool", "out of memory"),
        ),
    )


def memory_chart() -> MemoryChart:
    """Two points; the second is the peak."""
    return MemoryChart(
        step=7,
        device="cpu",
        basis="requested bytes of storages",
        num_points=2,
        bytes=np.arange(2 * len(CATEGORIES), dtype=np.float32),
        phases=(Phase(name="forward", start=0, end=2),),
        peak_point=1,
        peak_bytes=49,
        peak_label="forward of head",
        at_peak=tuple(range(1, 2 * len(CATEGORIES), 2)),
        reserved_bytes=-1,
    )


def gradient_flow() -> GradientFlow:
    """Two modules over three steps: one did not run, one was not finite, one came later."""
    rows = (_flow_row("body", 1), _flow_row("head.0", 4))
    return GradientFlow(
        title="gradient flow of exp, steps 1 to 9",
        model="Net",
        experiment="exp-1",
        device="cpu",
        recorded_at=1_700_000_000.0,
        total_sampled=5,
        notes=("old steps are thinned out",),
        rows=rows,
        step=np.array([1, 5, 9]),
        norm=np.array([0.5, np.inf, 0.0, -1.0, np.nan, 2.5]),
    )


def flow_of(norms: Sequence[Sequence[float]], labels: Sequence[str] = ()) -> GradientFlow:
    """One with these norms, a row a module and a column a step."""
    names = labels or [f"block{at}" for at in range(len(norms))]
    rows = tuple(_flow_row(name, 1) for name in names)
    steps = np.arange(1, len(norms[0]) + 1)
    found = dataclasses.replace(gradient_flow(), rows=rows, step=steps, norm=np.ravel(norms))
    return dataclasses.replace(found, total_sampled=len(steps), notes=())


def _flow_row(path: str, count: int) -> FlowRow:
    return FlowRow(path=path, label=path, cls="Block", num_modules=count, num_parameters=2)


def compile_record() -> CompileRecord:
    """A block that breaks at one line and was compiled again for another batch."""
    return CompileRecord(
        title="exp",
        model="Net",
        experiment="exp-1",
        device="cpu",
        torch_version="2.13.0",
        recorded_at=1_700_000_000.5,
        notes=("one note",),
        strings=("", "forward", "forward, from line 4 on"),
        sources=(
            SourceLine(filename="<ipython>", line=2, cell=3, function="forward", text="def f():"),
            SourceLine(filename="/home/net.py", line=4, function="forward", text="if x.sum() > 0:"),
        ),
        regions=(
            CompiledRegion(
                label="body.0 and body.1 (Block)",
                paths=("body.0", "body.1"),
                cls="Block",
                source=0,
                num_graphs=2,
                num_breaks=1,
                num_recompiles=1,
            ),
        ),
        breaks=(
            GraphBreak(
                region=0,
                source=1,
                reason="Data-dependent branching",
                explanation="A branch asks a tensor.",
                hints=("Use `torch.cond`.",),
                link="https://pytorch.org",
                skipped=False,
                count=2,
            ),
        ),
        recompiles=(
            Recompile(
                compilation=2,
                words="Dimension 0 of x was 4 and is 3.",
                remedy="drop_last=True",
                guard="tensor 'x' size mismatch at index 0. expected 4, actual 3",
                guards=("tensor 'x' size mismatch at index 0. expected 4, actual 3",),
                source=-1,
            ),
        ),
        kernels=(
            CompiledKernel(
                compilation=0,
                backward=True,
                name="cpp_fused_gelu_0",
                language="C++",
                operations=("aten.gelu",),
                complete=True,
                launches=1,
                from_cache=False,
                code="void kernel() {}\n",
            ),
        ),
        switches=(CompileSwitch(step=0, modes="compile", compiled=True, num_compilations=3),),
        compilation_region=np.array([0, 0, 0]),
        compilation_name=np.array([1, 2, 1]),
        compilation_source=np.array([0, 1, -1]),
        compilation_variant=np.array([0, 0, 1]),
        compilation_operations=np.array([4, 2, 4]),
        compilation_guards=np.array([12, 3, 13]),
        compilation_error=np.array([0, 0, 0]),
        compilation_started=np.array([1_700_000_000.5, 1_700_000_001.0, 1_700_000_002.0]),
        compilation_dynamo_s=np.array([0.5, 0.25, 0.5]),
        compilation_autograd_s=np.array([0.25, 0.125, 0.25]),
        compilation_inductor_s=np.array([1.0, 0.5, 1.0]),
        compilation_compiler_s=np.array([4.0, 2.0, 0.0]),
        compilation_autograd_hits=np.array([0, 0, 1]),
        compilation_autograd_misses=np.array([1, 1, 0]),
        compilation_fx_hits=np.array([0, 0, 2]),
        compilation_fx_misses=np.array([2, 1, 0]),
        compilation_forward_launches=np.array([3, 1, 3]),
        compilation_backward_launches=np.array([2, -1, 2]),
    )


def dtype_record() -> DtypeRecord:
    """A product under autocast, the cast before it, and a compiled region."""
    return DtypeRecord(
        title="exp, step 3",
        model="Net",
        experiment="exp",
        step=3,
        modes="compile+bf16",
        device="cpu",
        torch_version="2.13.0",
        recorded_at=1.75e9,
        notes=("Compiled regions ran as they always do.",),
        strings=("", "aten._to_copy", "aten.addmm", "head", "float32", "bfloat16", "region"),
        row_phase=np.array([0, 0, 1]),
        row_kind=np.array([1, 0, 2]),
        row_op=np.array([1, 2, 6]),
        row_module=np.array([3, 3, 0]),
        row_takes=np.array([4, 5, 0]),
        row_gives=np.array([5, 5, 0]),
        row_computes=np.array([0, 5, 0]),
        row_emulated=np.array([0, 0, 0]),
        row_calls=np.array([2, 1, 0]),
        row_elements=np.array([330, 40, 0]),
        row_flops=np.array([0, 2560, 0]),
    )


def compare_record() -> CompareRecord:
    """A baseline, a variant that is faster, and one that could not run."""
    base = ComparedArm(
        model="",
        modes="fp32",
        ranks=1,
        problem="",
        first_step_s=0.5,
        step_s=0.010,
        step_q1_s=0.009,
        step_q3_s=0.011,
        samples_per_s=6400.0,
        speedup=1.0,
        speedup_low=1.0,
        speedup_high=1.0,
        verdict="baseline",
        break_even=0.0,
        peak_bytes=64.0 * 2**20,
        operations=120,
        graphs=0,
        breaks=0,
        delta_logit=0.0,
        agreement=1.0,
        delta_loss=0.0,
        notes=(),
    )
    nan = math.nan
    faster = dataclasses.replace(
        base,
        modes="compile",
        first_step_s=12.5,
        step_s=0.005,
        speedup=2.0,
        speedup_low=1.9,
        speedup_high=2.1,
        verdict="faster",
        break_even=2400.0,
        graphs=3,
        breaks=1,
        delta_logit=2e-6,
    )
    missing = dataclasses.replace(
        base,
        modes="ddp:64",
        ranks=64,
        problem="no room",
        **dict.fromkeys(("first_step_s", "step_s", "step_q1_s", "step_q3_s", "speedup"), nan),
        **dict.fromkeys(("speedup_low", "speedup_high", "break_even", "delta_logit"), nan),
        verdict="",
    )
    return CompareRecord(
        title="exp",
        device="cpu",
        threads=2,
        torch_version="2.13.0",
        recorded_at=1_700_000_000.5,
        rounds=2,
        cancelled=True,
        equal_within=0.03,
        parity_samples=100,
        parity_on="validation",
        notes=("one note",),
        arms=(base, faster, missing),
        block_arm=np.array([0, 1, 1, 0]),
        block_round=np.array([0, 0, 1, 1]),
        block_steps=np.array([3, 3, 25, 50]),
        block_seconds=np.array([0.011, 0.006, 0.005, 0.010]),
        loss_arm=np.array([0, 0, 1, 1]),
        loss_step=np.array([1, 2, 1, 2]),
        loss_value=np.array([2.3, 2.2, 2.3, 2.2]),
    )


def samples() -> dict[str, Record]:
    """File stem of the copy -> the record."""
    return {
        "compare": compare_record(),
        "compile": compile_record(),
        "dtypes": dtype_record(),
        "gradient_flow": gradient_flow(),
        "graph": graph_record(),
        "graph_diff": graph_diff(),
        "memory": memory_record(),
        "memory_chart": memory_chart(),
    }


def main() -> None:
    """Write every sample where the TypeScript tests look."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, record in samples().items():
        record.save(FIXTURES / f"{name}.safetensors")


if __name__ == "__main__":
    main()
