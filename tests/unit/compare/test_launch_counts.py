"""What counts as a launch: calls that start kernels or CUDA graphs, and nothing beside them."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from workbench.compare.launch_counts import launches


def test_operations_inside_others_are_not_counted_again() -> None:
    layer, x = torch.nn.Linear(4, 3), torch.ones(2, 4)
    with torch.profiler.profile() as profile:
        layer(x)  # aten::linear calls aten::t, aten::transpose and aten::addmm
    assert launches(profile.events() or ()) < len(profile.events() or ())
    names = [e.name for e in profile.events() or () if not e.cpu_children]
    assert launches(profile.events() or ()) == len(names)
    assert "aten::linear" not in names


def test_on_a_gpu_calls_that_launch_are_counted() -> None:
    names = [
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx",
        "cudaLaunchCooperativeKernel", "cudaGraphLaunch", "hipLaunchKernel",
        "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch",
    ]  # fmt: skip
    others = [
        "aten::mm", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaDeviceSynchronize",
        "Memcpy HtoD (Pageable -> Device)", "triton_poi_fused_add_0", "ProfilerStep*",
        "Lazy Function Loading", "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaMemsetAsync",
    ]  # fmt: skip
    events = [SimpleNamespace(name=name, cpu_children=[]) for name in names + others]
    assert launches(events) == len(names)
