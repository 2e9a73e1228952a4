"""The workspaces of cuBLAS, by architecture.

PyTorch gives each cuBLAS handle a workspace from the caching allocator, at the first product that
the handle computes, and never frees it. A handle belongs to a thread and a stream. A training has
two: products of the forward run on the thread that called it, those of the backward on autograd's.
The recorded traces of training steps in this project contain two such blocks that are never freed,
those of forwards one.

Sizes are PyTorch's defaults if ``CUBLAS_WORKSPACE_CONFIG`` is not set (``parseChosenWorkspaceSize``
in ``aten/src/ATen/cuda/CublasHandlePool.cpp``): ``:4096:2:16:8``, that is two of 4 MiB and eight of
16 KiB, and 32 MiB on Hopper and Blackwell. cuBLASLt shares them
(``TORCH_CUBLASLT_UNIFIED_WORKSPACE`` is on by default, see
``torch.backends.cuda.blas_workspace_size``).
"""

from __future__ import annotations

import re

from workbench.allocator.simulator.settings import KIB, MIB

BEFORE_HOPPER = 2 * 4096 * KIB + 8 * 16 * KIB
SINCE_HOPPER = 32 * MIB
MAJOR_HOPPER = 9
"""Major compute capability from which the larger workspace is the default."""

MAJORS = {
    "T4": 7, "V100": 7, "A4000": 8, "A5000": 8, "A6000": 8, "A10": 8, "A10G": 8, "A40": 8,
    "A100": 8, "2060": 7, "2070": 7, "2080": 7, "3060": 8, "3070": 8, "3080": 8, "3090": 8,
    "4060": 8, "4070": 8, "4080": 8, "4090": 8, "L4": 8, "L40": 8, "L40S": 8, "P100": 6,
    "1080": 6, "H100": 9, "H200": 9, "H20": 9, "GH200": 9, "B100": 10, "B200": 10, "B300": 10,
    "GB200": 10, "5060": 12, "5070": 12, "5080": 12, "5090": 12,
}  # fmt: skip
"""Model number -> major compute capability (NVIDIA's table "CUDA GPU Compute Capability")."""


def blas_workspace(gpu: str) -> tuple[int, int]:
    """Return the bytes of one workspace on a GPU, at least and at most.

    Args:
        gpu: the name of the GPU, ``"RTX 4090"``; a GPU that is not known may have any
            architecture.
    """
    major = major_of(gpu)
    if major is None:
        return BEFORE_HOPPER, SINCE_HOPPER
    size = SINCE_HOPPER if major >= MAJOR_HOPPER else BEFORE_HOPPER
    return size, size


def major_of(gpu: str) -> int | None:
    """Return the major compute capability of a GPU by its name; None if it is not known."""
    for word in re.findall(r"[A-Za-z]*\d+[A-Za-z]*", gpu):
        found = MAJORS.get(word.upper().removesuffix("TI").removesuffix("SUPER"))
        if found is not None:
            return found
    return None
