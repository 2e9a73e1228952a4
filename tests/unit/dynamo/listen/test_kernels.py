"""Kernels of real compilations, and the reading of generated modules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.dynamo.listen.kernels import read_module, split_name
from workbench.torch_private.dynamo import operation_names

TRITON = """
# AOT ID: ['3_backward']
# kernel path: /tmp/x.py
# Topologically Sorted Source Nodes: [h, y], Original ATen: [aten.relu, aten.add]
# Source node to ATen node mapping:
#   h => relu
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
import triton
@triton.jit
def triton_poi_fused_add_relu_0(in_ptr0):
    pass
''', device_str='cuda')


async_compile.wait(globals())
del async_compile

def call(args):
    x, = args
    # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
    extern_kernels.mm(x, x, out=buf0)
    for_nothing = empty_strided_cuda((1,), (1,), torch.float32)
    triton_poi_fused_add_relu_0.run(buf0, 4, stream=stream0)
    triton_poi_fused_add_relu_0.run(buf1, 4, stream=stream0)
    buf2 = torch.ops.aten.sort.stable(buf1)
    return (buf0, )

def benchmark():
    triton_poi_fused_add_relu_0.run(buf0)
"""


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("gelu_native_layer_norm", ("gelu", "native_layer_norm")),
        (
            "native_layer_norm_native_layer_norm_backward_threshold_backward",
            ("native_layer_norm", "native_layer_norm_backward", "threshold_backward"),
        ),
        ("_softmax__to_copy", ("_softmax", "_to_copy")),
        ("nothing_that_torch_has", ()),
    ],
)
def test_a_kernel_s_name_is_read_as_operations(text: str, operations: tuple[str, ...]) -> None:
    assert split_name(text, operation_names()) == operations


def test_a_triton_module_is_read() -> None:
    """Written by hand after Inductor's: this machine may have no GPU."""
    module = read_module(TRITON, operation_names())
    assert module.backward
    fused, mm, sort = module.kernels
    assert (fused.language, fused.operations, fused.launches) == (
        "Triton",
        ("aten.relu", "aten.add"),
        2,
    )
    assert "@triton.jit" in fused.code
    assert (mm.name, mm.operations, mm.launches) == ("extern_kernels.mm", ("aten.mm",), 1)
    assert (sort.name, sort.operations) == ("torch.ops.aten.sort.stable", ())
    assert module.launches == 4


def test_the_kernels_of_a_model_lie_beside_it_with_what_they_fused(
    reported: Callable, clean: nn.Module
) -> None:
    compiled = torch.compile(clean)
    report = reported(lambda: compiled(torch.ones(4, 8)).sum().backward(), ())
    record = report.record
    fused = [k for k in record.kernels if k.language == "C++"]
    forward = {op for k in fused if not k.backward for op in k.operations}
    backward = {op for k in fused if k.backward for op in k.operations}
    assert {"aten.native_layer_norm", "aten.gelu"} <= forward
    assert {"aten.gelu_backward", "aten.native_layer_norm_backward"} <= backward
    library = [k for k in record.kernels if k.language == "library"]
    assert {op for k in library for op in k.operations} >= {"aten.mm", "aten.addmm"}
    for kernel in fused:
        assert 'extern "C"' in kernel.code
        assert kernel.launches == 1
        assert report.source(kernel.name)
    assert report.kernels("Clean") == record.kernels
    launched = sum(k.launches for k in record.kernels if not k.backward)
    assert record.compilation_forward_launches.tolist() == [launched]
    assert record.compilation_backward_launches[0] > 0


def test_unknown_regions_and_kernels_list_the_known_ones(
    reported: Callable, clean: nn.Module
) -> None:
    report = reported(torch.compile(clean), (torch.ones(4, 8),))
    with pytest.raises(ValueError, match="no region 'Dirty' was compiled; regions are: Clean"):
        report.kernels("Dirty")
    with pytest.raises(ValueError, match="no kernel 'x' has source here; kernels are: cpp_fused"):
        report.source("x")
