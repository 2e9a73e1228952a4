"""Workspaces go by a GPU's architecture."""

from __future__ import annotations

import pytest

from workbench.allocator.simulator.gpus import GPUS
from workbench.memory.prediction.cublas_workspaces import MAJORS, blas_workspace, major_of

MIB = 2**20
BEFORE_HOPPER = 8_519_680
"""Bytes of the block that a linear layer leaves behind, as reported for years (pytorch#95668)."""
SINCE_HOPPER = 33_554_432
"""Bytes of such a block in a recorded trace of an H100."""


@pytest.mark.parametrize(
    ("card", "major"),
    [
        ("T4", 7), ("RTX 4090", 8), ("A100 80 GB", 8), ("H100 80 GB", 9), ("RTX 2080 Ti", 7),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 8), ("NVIDIA H200", 9), ("RTX 5090", 12),
        ("NVIDIA RTX A6000", 8), ("Tesla V100-SXM2-32GB", 7), ("GTX 1080Ti", 6), ("L40S", 8),
        ("NVIDIA A100-SXM4-80GB", 8), ("RTX 4070 SUPER", 8), ("H100 NVL", 9),
    ],
)  # fmt: skip
def test_the_architecture_is_read_from_the_name(card, major):
    assert major_of(card) == major


def test_every_gpu_of_the_table_has_an_architecture():
    assert all(major_of(card.name) is not None for card in GPUS)


def test_two_defaults():
    assert blas_workspace("RTX 4090") == (BEFORE_HOPPER, BEFORE_HOPPER)
    assert blas_workspace("H100 80 GB") == (SINCE_HOPPER, SINCE_HOPPER)


@pytest.mark.parametrize("card", ["", "24.0 GiB", "MI300X", "my card"])
def test_an_unknown_gpu_may_have_either(card):
    assert blas_workspace(card) == (BEFORE_HOPPER, SINCE_HOPPER)


def test_architectures_are_cudas():
    assert set(MAJORS.values()) <= {6, 7, 8, 9, 10, 12}
